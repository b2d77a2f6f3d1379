"""`innerloop compile`: a file like any other, and what it says of itself."""

import re

import pytest
import torch

from innerloop.cli import main
from innerloop.compiled import Program
from innerloop.experiments import Experiment, Run
from innerloop.models import Decoder, Looped


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs a command that must end with this code; returns what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words, code=0):
        found = main(list(words))
        said = capsys.readouterr()
        assert found == code, said.err
        return " ".join((said.out + said.err).split())

    return run


def _next(said):
    """The words of the command that is named at the end."""
    return said.partition("next: innerloop ")[2].split()


def test_newton_is_compiled_and_evaluated_beside_newton(command):
    said = command(
        *("compile", "newton", "--dim", "3", "--examples", "8", "--loops", "25"),
        *("-o", "newton.safetensors"),
    )
    assert "before 1 x 2, loop 1 x 2, after 2 x 2" in said
    assert "u = M S m" in said
    measured = float(re.search(r"measured (\S+) on", said)[1])
    assert measured < 1e-6
    exactly = command(*_next(said), "--samples", "200")
    assert float(re.search(r"alpha=\S+ \S+ ± \S+ (\S+)", exactly)[1]) < 1e-6
    table = command(
        *("evaluate", "newton.safetensors", "--task", "linear:noise_std=0.1"),
        *("--against", "newton:steps=25", "zero", "--samples", "200"),
    )
    assert "linear:d=3,n=8,noise_std=0.1" in table  # what is not said is that of the file
    distance = {k: float(v) for k, v in re.findall(r"(newton\S*|zero) \S+ ± \S+ (\S+)", table)}
    assert distance["newton:steps=25"] < 1e-3 * distance["zero"]
    run = Run.open("newton.safetensors")
    assert (run.step, type(run.model.model)) == (0, Looped)


def test_an_unrolled_model_is_a_standard_transformer(command):
    words = ("compile", "gd", "--dim", "2", "--examples", "4", "--loops", "5")
    command(*words, "-o", "looped.safetensors")
    said = command(*words, "--unroll", "-o", "flat.safetensors")
    looped, flat = (Run.open(f"{name}.safetensors") for name in ("looped", "flat"))
    assert isinstance(flat.model.model, Decoder)
    prompt = looped.task.sample(5, generator=torch.Generator().manual_seed(3))
    assert torch.equal(looped.model(prompt), flat.model(prompt))
    assert "times the parameters" in said


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["gd", "--dtype", "float32", "--loops", "1000"], "after 1000 loops in float32"),
        (["gd:step_size=3"], "step_size = 3 makes descent diverge on 100% of the prompts"),
        (["newton:alpha=1"], "alpha = 1 makes Newton's iteration diverge"),
        (["gd", "--error", "1e-12"], "above the 1e-12 that is asked for"),
        (["nothing"], "no construction is called 'nothing'; known: gd, representation"),
        (["chain-of-thought", "--task", "chain-of-thought:slope=0"], "slope must be above 0"),
        (["representation", "--task", "linear"], "needs the network of a task representation"),
        (["gd", "--dim", "3", "--task", "linear:d=3"], "says what --dim would say"),
        (["linear-gd", "--draw", "maps.png"], "linear-gd has none"),
        (["gd:sink=20"], "mirror images need no sinks"),
        (["gd:form=sinks,sink=800"], "choose a smaller sink"),
    ],
)
def test_what_cannot_be_met_is_refused_with_the_reason(words, reason, command, tmp_path):
    assert reason in command("compile", *words, "-o", "file.safetensors", code=2)
    assert not list(tmp_path.iterdir())


def test_an_error_that_was_not_expected_is_measured_and_refused(command, monkeypatch, tmp_path):
    monkeypatch.setattr(Program, "expected_error", 0.0)
    words = ("compile", "gd", "--dim", "2", "--examples", "4", "--error", "1e-14")
    assert "was measured, above the 1e-14" in command(*words, "-o", "gd.safetensors", code=2)
    assert not list(tmp_path.iterdir())


def test_the_step_that_was_chosen_is_the_one_that_is_named_next(command):
    """Of descent without a step_size each prompt has a step of its own: another algorithm."""
    words = ("--dim", "2", "--examples", "4", "--loops", "3", "-o", "gd.safetensors")
    said = command("compile", "gd", *words)
    table = command(*_next(said), "gd:steps=3", "--samples", "200")
    own, other = re.findall(r"gd:steps=3\S* \S+ ± \S+ (\S+)", table)
    assert float(own) < 1e-9 < 1e-2 < float(other)
    assert "measured" in command("compile", "linear-gd", *words)


def test_a_compiled_model_is_trained_on_by_the_ordinary_trainer(tmp_path):
    """From coarse heads (c = 0.3): in three loops there is better than plain descent."""
    experiment = Experiment(
        "compiled-gd:loops=3,c=0.3,error=10", "linear:d=2,n=6", objective="prompts:batch=256",
        optimizer="adam:lr=0.0001", schedule="constant", steps=120, clip=1.0,
    )  # fmt: skip
    start, task, _ = experiment.build()
    run = experiment.run(tmp_path / "run")
    prompt = task.sample(4000, generator=torch.Generator().manual_seed(9))
    before, after = (
        (model(prompt) - prompt.targets).square().mean().item() for model in (start, run.model)
    )
    assert after < 0.85 * before
    again = Run.open(tmp_path / "run").model
    assert torch.equal(again(prompt), run.model(prompt))


def test_what_heads_attend_to_is_drawn_and_models_are_compared_loop_by_loop(command, tmp_path):
    words = ("--dim", "2", "--examples", "4", "--loops", "3", "-o", "gd.safetensors")
    command("compile", "gd:step_size=0.1", *words, "--draw", "maps.png")
    beside = ("--beside", "compiled-linear-gd:loops=4,step_size=0.1", "--curve", "loops.png")
    said = command("evaluate", "gd.safetensors", "--samples", "50", *beside)
    assert re.findall(r" (\d) (\d) \d\.?\d*e-1\d", said) == [("1", "1"), ("2", "2"), ("3", "3")]
    for name in ("maps.png", "loops.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    said = command("evaluate", "gd.safetensors", "--samples", "50", "--beside", "gd.safetensors")
    assert re.findall(r" (\d) (\d) 0 0", said) == [("1", "1"), ("2", "2"), ("3", "3")]
    said = command("evaluate", "gd.safetensors", "--beside", "gd", code=2)
    assert "got gd, which has learned nothing yet" in said
