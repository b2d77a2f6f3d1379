"""The dictionary benchmark measures what it says; how fast things are is never asserted."""

import pytest
import torch
from rich.console import Console

from innerloop.benchmarks import BENCHMARKS, dictionary
from innerloop.training import Exact, Prompts

TINY = dictionary.Sizes(d=4, features=3, shown=3, tokens=8, heads=4)


def test_a_timed_step_trains_the_model():
    model = TINY.model()
    exact = Exact(TINY.task())
    before = exact.loss(model).item()
    step = dictionary._step(exact, model)
    for _ in range(20):
        step()
    assert exact.loss(model).item() < before


def test_the_gradient_of_many_prompts_is_near_the_exact_one():
    task = TINY.task()
    few, many = (
        dictionary._gradient_error(Exact(task), Prompts(task, batch), TINY.model())
        for batch in (100, 100_000)
    )
    assert many < few / 5


def test_the_block_form_takes_the_same_steps_as_the_short_form():
    objective = Prompts(TINY.task(), 5)
    models = TINY.model(), TINY.model()
    for each, model in zip((objective, dictionary.AllBlocks(objective)), models, strict=True):
        step = dictionary._step(each, model)
        for _ in range(3):
            step()
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(one, other)


def test_sizes_grow_one_at_a_time():
    for name, settings in dictionary.CHANGES.items():
        values = {"H": "heads", "K": "tokens", "N": "shown"}[name]
        grown = [getattr(sizes, values) for sizes in settings]
        assert grown == sorted(set(grown))
        assert dictionary.FIGURE2 in settings


@pytest.mark.slow
def test_the_benchmark_prints_its_tables(capsys):
    BENCHMARKS["dictionary"](Console(width=120))
    output = capsys.readouterr().out
    assert "sampled / exact" in output
    assert "gap to the infimum" in output
