"""Every task, model, objective and algorithm of the catalogue with every other.

Each pair either works or is refused with a sentence; nothing is a defect, and what ought to work
does. A new name takes part by itself, at the sizes below.
"""

import pytest

from innerloop.cli import main
from innerloop.experiments import ALGORITHMS, MODELS, OBJECTIVES, TASKS

SIZES = {
    "linear": "d=2,n=4",
    "sparse": "d=2,n=4,nonzero=1",
    "random-covariance": "d=2,n=4",
    "pool": "d=2,n=4,tasks=3",
    "relu-network": "d=2,n=4,hidden=5",
    "tree": "d=2,n=4,depth=2",
    "representation": "d=2,n=4",
    "autoregression": "d=2,n=4,q=2",
    "chain-of-thought": "d=2,n=2,layers=2",
    "dictionary": "tokens=6,shown=4,d=2,features=2",
    "translation": "vocabulary=300,n=48",
    "gd": "layers=2",
    "looped": "loops=2",
    "gd++": "layers=1",
    "dense": "layers=2",
    "heads": "heads=3",
    "encoder": "layers=1,heads=2,width=8,hidden=8",
    "gpt2": "layers=1,heads=2,width=8,examples=6",
    "looped-transformer": "loops=2,heads=2,width=8,examples=6",
    "algoformer": "loops=2,heads=2,width=8,examples=6",
    "translator": "layers=1,heads=2,width=8",
    "compiled-newton": "loops=2",
    "compiled-causal-newton": "loops=2",
    "compiled-linear-gd": "loops=2",
    "compiled-linear-gd++": "loops=1",
    "positions": "batch=4",
    "window": "batch=4,loops=3,window=2",
    "wishart": "batch=10",
    "prompts": "batch=10",
}
"""Small ones; a name that is not here has its defaults."""
LINEAR = {"compiled-linear-gd", "compiled-linear-gd++"}
ATTENTION = {"gd", "looped", "gd++", "dense", "single-layer", *LINEAR}
CLOSED = {"gd", "looped", "gd++", "single-layer", *LINEAR}
COMPILED = {
    "compiled-gd": "linear",
    "compiled-newton": "linear",
    "compiled-causal-gd": "linear",
    "compiled-causal-newton": "linear",
    "compiled-representation": "representation",
    "compiled-autoregression": "autoregression",
    "compiled-chain-of-thought": "chain-of-thought",
}
"""Transformers that are compiled for a task, and the task."""
OF_SEQUENCES = {"compiled-autoregression", "compiled-chain-of-thought"}
LOOPED = {"looped-transformer", "algoformer", *COMPILED} - OF_SEQUENCES
SAMPLED = {"encoder", "gpt2", "translator", *LOOPED, *COMPILED}
"""Models that know no exact loss."""
ANYWHERE = {
    *("zero", "ols", "ridge", "lasso", "gd", "newton"),
    *("averaging", "neighbours", "network", "tree", "boosted-trees"),
}
SEQUENCES = {"autoregression", "chain-of-thought"}
HOME = {"heads": "dictionary", "translator": "translation"}
"""The task of a model that belongs to one."""
ALIKE = {"random-covariance", "pool", "relu-network", "tree", "representation"}
"""Composed of other parts than sparse regression, and otherwise the same to a model."""
PAIRS = [
    (t, m)
    for t in TASKS
    for m in MODELS
    if (t in ("linear", "chain-of-thought", COMPILED.get(m)))
    or (not m.startswith("compiled-") and (t not in ALIKE or m in ("gd", "encoder", "gpt2")))
]
TRANSFORMERS = {"gpt2", *LOOPED, *OF_SEQUENCES}


def trains(task, model, objective):
    """Whether a model of today's catalogue can be trained so."""
    if task in SEQUENCES and model not in TRANSFORMERS:
        return False
    if "translation" in (task, HOME.get(model)):
        return task == HOME.get(model) and objective in ("prompts", "positions")
    of_its_own = model in OF_SEQUENCES or model == "compiled-representation"
    if (of_its_own and COMPILED[model] != task) or (model in COMPILED and task in SEQUENCES):
        return COMPILED[model] == task and objective in ("prompts", "positions")
    if objective == "window":
        return model in LOOPED
    if model == "heads":
        return task == "dictionary" and objective in ("exact", "prompts", "positions")
    if objective in ("prompts", "positions"):
        return True
    return task == "linear" and model in (CLOSED if objective == "exact" else ATTENTION)


def answers(task, algorithm):
    if algorithm == "feature-ridge":
        return task in ("dictionary", "representation", *SEQUENCES)
    if algorithm == "feature-gd":
        return task in ("representation", *SEQUENCES)
    if task in SEQUENCES:
        return algorithm == "zero"
    if task == "translation" or algorithm == "unigram":
        return task == "translation" and algorithm in ("zero", "unigram")
    if algorithm == "posterior-mean":
        return task in ("linear", "random-covariance", "pool", "representation")
    if algorithm in ("shown-labels", "pool-posterior"):
        return task == {"shown-labels": "dictionary", "pool-posterior": "pool"}[algorithm]
    return algorithm in ANYWHERE or task == "linear"


FEW = ("--samples", "50", "--translated", "1")
"""Prompts, and sentences that are translated word by word."""


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs a command and returns its exit code and output, after what must be true of any."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words):
        code = main(list(words))
        said = capsys.readouterr()
        line = " ".join(words)
        assert code in (0, 2), f"{line}: {said.err}"
        assert "Traceback" not in said.out + said.err, line
        if code == 2:
            sentence = said.err.removeprefix("innerloop: ").strip()
            assert len(sentence.split()) > 4, f"{line} is refused with {sentence!r}"
        return code, said.out

    return run


def spec(name):
    return f"{name}:{SIZES[name]}" if name in SIZES else name


def algorithm(name):
    quick = {"network": "network:hidden=5,steps=5", "boosted-trees": "boosted-trees:trees=3"}
    return quick.get(name, name)


def rate(model):
    """Weights that compute to ten digits have no room for a step of ordinary size."""
    return ("--lr", "1e-12") if model in COMPILED else ()


def trained(command, task, model, objective):
    return command(
        *("train", spec(model), "--task", spec(task), "--objective", spec(objective)),
        *("--steps", "2", "--run", objective, *rate(model)),
    )[0]


@pytest.mark.parametrize(("task", "model"), PAIRS)
def test_a_model_is_trained_on_a_task_and_evaluated_in_every_way(task, model, command, tmp_path):
    runs = [o for o in OBJECTIVES if trained(command, task, model, o) == 0]
    assert runs == [o for o in OBJECTIVES if trains(task, model, o)]
    for run in runs:
        code, output = command("evaluate", run, *FEW, "--against", "zero")
        assert (code, "the model" in output) == (0, True)
        assert ("exact loss" in output) == (model not in SAMPLED)
    if not runs:
        return
    # What was trained is the same kind of model, whichever objective it was trained with.
    evaluate = ("evaluate", runs[-1], *FEW)
    code, output = command(*evaluate, "--shifts")
    assert (code == 0) == ("as trained" in output) == (task not in {*SEQUENCES, "translation"})
    code, _ = command(*evaluate, "--against", "zero", "--curve", "curve.png")
    if task == "translation":
        assert code == 2, "sentences have no learning curve"
    else:
        assert code == 0
        assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert (command(*evaluate, "--loops", "2")[0] == 0) == (model in ATTENTION | LOOPED)


@pytest.mark.parametrize("task", TASKS)
def test_every_algorithm_answers_a_task_or_says_why_not(task, command):
    model = {home: model for model, home in HOME.items()}.get(task, "gpt2")
    assert trained(command, task, model, "prompts") == 0
    evaluate = ("evaluate", "prompts", *FEW)
    answered = [a for a in ALGORITHMS if command(*evaluate, "--against", algorithm(a))[0] == 0]
    assert answered == [a for a in ALGORITHMS if answers(task, a)]


@pytest.mark.parametrize("model", MODELS)
def test_a_model_is_evaluated_on_every_other_task_or_the_reason_is_said(model, command):
    home = HOME.get(model, COMPILED.get(model, "linear"))
    assert trained(command, home, model, "prompts") == 0
    for task in TASKS:
        code, _ = command("evaluate", "prompts", *FEW, "--task", spec(task))
        reads = task == home if model in HOME else task not in {*SEQUENCES, "translation"}
        if model in OF_SEQUENCES:
            reads = task == home or (home, task) == ("chain-of-thought", "autoregression")
        assert (code == 0) == reads, task
        if task == "translation":
            continue  # of single precision unless asked otherwise
        other = f"{spec(task)},dtype=float32"
        code, _ = command("evaluate", "prompts", *FEW, "--task", other)
        assert code == 2, f"a model in double precision reads {other}"


@pytest.mark.parametrize("model", MODELS)
def test_single_precision_is_trained_and_evaluated_like_double(model, command):
    task = HOME.get(model, COMPILED.get(model, "linear"))
    words = ("--task", f"{spec(task)},dtype=float32", "--steps", "2", "--run", "run")
    assert command("train", spec(model), *words, "--batch", "10", *rate(model))[0] == 0
    shifts = [] if task in {*SEQUENCES, "translation"} else [["--shifts"]]
    curve = [] if task == "translation" else [["--curve", "curve.svg"]]
    for extra in ([], *shifts, *curve):
        assert command("evaluate", "run", *FEW, *extra)[0] == 0
    everywhere = [algorithm(a) for a in ALGORITHMS if answers(task, a)]
    assert command("evaluate", "run", *FEW, "--against", *everywhere)[0] == 0


def test_a_device_that_this_machine_does_not_have_is_refused(command):
    assert trained(command, "linear", "gd", "prompts") == 0
    for device in ("nowhere", "meta"):
        assert command("train", "gd", "--device", device, "--run", "new")[0] == 2
        assert command("evaluate", "prompts", "--device", device)[0] == 2
