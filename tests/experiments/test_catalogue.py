"""Every name of the catalogue is documented, can be built, and does what its kind does."""

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from innerloop import Prompt
from innerloop.algorithms import answers
from innerloop.analysis import estimate_risk
from innerloop.experiments import (
    ALGORITHMS,
    CURRICULA,
    MODELS,
    OBJECTIVES,
    OPTIMIZERS,
    REFERENCES,
    SCHEDULES,
    TABLES,
    TASKS,
    Spec,
)
from innerloop.tasks import Task
from innerloop.training import Objective
from tests.samples import seeded

HOME = {
    "model": {
        "heads": "dictionary",
        "translator": "translation",
        "compiled-representation": "representation",
        "compiled-autoregression": "autoregression",
        "compiled-chain-of-thought": "chain-of-thought",
    },
    "algorithm": {
        "feature-ridge": "dictionary",
        "feature-gd": "representation",
        "shown-labels": "dictionary",
        "pool-posterior": "pool",
        "unigram": "translation",
    },
}
"""The task of a name that belongs to one; all others are for linear regression."""


def task_for(kind, name):
    return built("task", HOME[kind].get(name, "linear"))


def built(kind, text, *given):
    return Spec.parse(kind, text, TABLES[kind]).build(TABLES[kind], *given)


@pytest.mark.parametrize(("kind", "name"), [(k, name) for k, t in TABLES.items() for name in t])
def test_every_name_says_in_a_line_what_it_stands_for(kind, name):
    line = (TABLES[kind][name].__doc__ or "").strip()
    assert line, f"{kind} {name} has no docstring, which `innerloop list` prints"
    assert len(line) < 100
    assert not line.endswith(".")


@pytest.mark.parametrize("name", TASKS)
def test_every_task_samples_in_either_precision(name):
    for dtype in (torch.float64, torch.float32):
        task = built("task", f"{name}:dtype={str(dtype).removeprefix('torch.')}")
        assert isinstance(task, Task)
        prompt = task.sample(3, generator=seeded())
        assert len(prompt) == 3
        if isinstance(prompt, Prompt):
            assert (prompt.n, prompt.d) == (task.n, task.d)
        tensors = [t for t in pytree.tree_leaves(prompt) if t.is_floating_point()]
        assert {t.dtype for t in tensors} | {prompt.dtype} == {dtype}


def test_every_task_has_references():
    assert REFERENCES.keys() == TASKS.keys(), "REFERENCES in named_tasks.py is to name every task"


@pytest.mark.parametrize(("name", "word"), [(n, w) for n, all in REFERENCES.items() for w in all])
def test_every_reference_answers_the_prompts_of_its_task(name, word):
    task = built("task", name)
    prompt = task.sample(4, generator=seeded())
    prediction = answers(built("algorithm", word, task), prompt)
    assert prediction.isfinite().all()


@pytest.mark.parametrize("name", TASKS)
def test_the_last_reference_of_a_task_knows_something_that_predicting_0_does_not(name):
    task = built("task", name)
    first, *_, last = (
        estimate_risk(built("algorithm", word, task), task, samples=500, generator=seeded()).mean
        for word in REFERENCES[name]
    )
    assert REFERENCES[name][0] == "zero"
    assert last < 0.7 * first


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_answers_the_task_it_is_made_for(name):
    task = task_for("algorithm", name)
    prompt = task.sample(4, generator=seeded())
    assert answers(built("algorithm", name, task), prompt).isfinite().all()


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_drawn_from_its_generator_alone(name):
    task = task_for("model", name)
    one, same, other = (built("model", name, task, seeded(seed)) for seed in (1, 1, 2))
    assert isinstance(one, nn.Module)
    prompt = task.sample(2, generator=seeded())
    assert answers(one.to(torch.float64), prompt).isfinite().all()
    pairs = [torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True)]
    assert all(pairs)
    other_pairs = zip(one.parameters(), other.parameters(), strict=True)
    drawn = not name.startswith("compiled-")
    assert all(torch.equal(a, b) for a, b in other_pairs) != drawn


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_has_a_loss_that_falls_along_its_gradient(name):
    task = built("task", "linear:d=2,n=4")
    needs = {"window": "looped-transformer:loops=8,width=8,heads=2"}
    model = built("model", needs.get(name, "gd:layers=1"), task, seeded()).double()
    objective = built("objective", name, task)
    assert isinstance(objective, Objective)
    batch = objective.sample(seeded())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    before = objective.loss(model, batch)
    before.backward()
    optimizer.step()
    assert objective.loss(model, batch) < before


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_moves_against_the_gradient(name):
    model = built("model", "gpt2:layers=1,width=8,heads=2", built("task", "linear:d=2"), seeded())
    optimizer = built("optimizer", f"{name}:lr=0.001", model)

    def size():
        return sum(p.square().sum() for p in model.parameters())

    before = size()
    before.backward()
    optimizer.step()
    assert size() < before


def test_muon_is_for_transformers():
    task = built("task", "linear:d=2")
    with pytest.raises(ValueError, match="muon is for transformers, and LinearAttention has no"):
        built("optimizer", "muon", built("model", "gd", task, seeded()))


@pytest.mark.parametrize("name", CURRICULA)
def test_every_curriculum_ends_with_the_task_itself(name):
    task = built("task", "linear:d=3,n=4")
    at = built("curriculum", name, task)
    assert at(10**6).task is task
    assert at(0).task.sample(2, generator=seeded()).d == 3


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_is_a_factor_between_0_and_1(name):
    factors = [built("schedule", name, 200)(step) for step in range(201)]
    assert all(0 <= factor <= 1 for factor in factors)
    assert max(factors) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("kind", "text", "sentence"),
    [
        ("task", "linear:d=0", "d must be a whole number of at least 1, got 0"),
        ("task", "linear:d=2,spectrum=1/2/3", "spectrum must give d = 2 variances, got 3; set d=3"),
        ("task", "linear:d=10000000", "d must be at most .*, got 10000000"),
        ("task", "sparse:nonzero=21", "nonzero must be at most d = 20, got 21"),
        ("task", "dictionary:shown=0", "shown must be between 1 and the 20 tokens"),
        ("task", "dictionary:seed=-1", "seed must be between 0 and 2\\^63 - 1, got -1"),
        ("task", "dictionary:tokens=100000000000", "100000000000 tokens of d = 8 would need about"),
        ("model", "gd:layers=0", "layers must be a whole number of at least 1, got 0"),
        ("model", "looped:loops=0", "loops must be a whole number of at least 1, got 0"),
        ("model", "gd:layers=1000,loops=1000", "layers times loops must be at most .*, got 1000"),
        ("model", "heads", "the model heads learns one dictionary"),
        ("model", "encoder:layers=0", "layers must be a whole number of at least 1, got 0"),
        ("model", "encoder:heads=3", "heads must"),
        ("algorithm", "gd:steps=0,step_size=0.1", "steps must be between 1 and .*, got 0"),
        ("algorithm", "ridge:penalty=0", "penalty must be positive and finite, got 0.0"),
        ("algorithm", "lasso:penalty=-1", "penalty must be positive and finite, got -1.0"),
        ("algorithm", "feature-ridge", "feature-ridge needs a task with features"),
        ("algorithm", "shown-labels", "shown-labels is known for the task dictionary only"),
        ("model", "translator", "translator reads pairs of sentences, .* LinearRegression samples"),
        ("algorithm", "unigram", "unigram is known for the task translation only"),
        ("task", "translation:corpus=smell", "there is no corpus 'smell' below .* nearest are"),
        ("task", "translation:vocabulary=20", "vocabulary must be at least 259 pieces, got 20"),
        ("objective", "prompts:batch=0", "batch must be a whole number of at least 1, got 0"),
        ("objective", "wishart:batch=1000000000000", "Gram matrices would need about"),
        ("optimizer", "adam:lr=0", "lr must be positive, got 0.0"),
        ("schedule", "warm-up:over=-1", "warm|over"),
        ("schedule", "cosine:floor=-1", "floor"),
    ],
)
def test_sizes_that_do_not_exist_or_do_not_fit_are_refused_before_anything_is_made(
    kind, text, sentence
):
    task = built("task", "linear")
    given = {
        "task": [],
        "model": [task, seeded()],
        "optimizer": [nn.Linear(1, 1)],
        "schedule": [100],
    }.get(kind, [task])
    with pytest.raises(ValueError, match=sentence):
        built(kind, text, *given)
