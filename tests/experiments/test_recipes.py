"""Recipes: the parts of an experiment that say how a transformer is trained."""

import io
from functools import partial

import pytest
from rich.console import Console

from innerloop.benchmarks import recipes as bench
from innerloop.experiments import Experiment, pace
from innerloop.experiments.recipes import RECIPES

TASK = "linear:d=5,n=10,dtype=float32"


def test_a_recipe_is_an_ordinary_experiment():
    made = RECIPES["muon"].experiment("gpt2:layers=2", TASK, steps=50, seed=3)
    assert made == Experiment(
        "gpt2:layers=2", TASK, "positions", "muon", "stable-decay", steps=50, seed=3
    )


def test_the_published_recipe_starts_from_small_weights():
    made = RECIPES["published"].experiment("gpt2", TASK, steps=50)
    assert made.model.options["start"] == "gpt2"
    assert made.clip is None
    model = made.build()[0]
    largest = max(p.std().item() for n, p in model.named_parameters() if n.endswith("value.weight"))
    assert largest == pytest.approx(0.02, rel=0.05)


def test_what_is_asked_for_beside_a_recipe_stays():
    made = RECIPES["published"].experiment(
        "gpt2:start=fan-in", TASK, steps=50, optimizer="adam:lr=0.01"
    )
    assert made.model.options["start"] == "fan-in"
    assert made.optimizer.options["lr"] == 0.01


@pytest.mark.parametrize(("d", "curriculum"), [(5, "none"), (20, "grow")])
def test_dimensions_grow_only_where_there_are_many(d, curriculum):
    made = RECIPES["muon"].experiment("gpt2", f"linear:d={d},n=40,dtype=float32", steps=50)
    assert made.curriculum.name == curriculum


def test_linear_attention_has_no_recipe():
    with pytest.raises(ValueError, match="for transformers, whose start can be chosen; gd has"):
        RECIPES["muon"].experiment("gd", TASK, steps=5)


def test_the_steps_to_an_error_are_read_off_the_history(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "PROMPTS", 64)
    monkeypatch.setattr(bench, "SHARES", (100.0, 1e-9))
    small = RECIPES["muon"].experiment("gpt2:layers=1,width=8,heads=2", TASK, steps=4)
    assert bench.reached(small, tmp_path) == {100.0: 0, 1e-9: float("inf")}


def test_an_error_that_the_published_recipe_never_had_bounds_the_ratio():
    last = bench.SHARES[-1]
    quick, slow, never = {last: 500.0}, {last: 5000.0}, {last: float("inf")}
    assert bench._ratios([quick] * 3, [slow, slow, never], 10_000, 2.0) == ("0.10", "0.20")
    assert bench._ratios([quick] * 3, [slow, never, never], 10_000, 2.0) == ("< 0.05", "< 0.10")
    assert bench._ratios([never] * 3, [slow] * 3, 10_000, 2.0) == ("", "")
    assert bench._steps([quick, never, never], last, 2000) == "> 2000"


def test_the_table_has_every_recipe_and_its_share_of_the_published_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "PROMPTS", 64)
    monkeypatch.setattr(bench, "SEEDS", (0,))
    monkeypatch.setattr(bench, "STEPS", dict.fromkeys(RECIPES, (2,)))
    monkeypatch.setattr(bench, "TIMED_STEPS", 1)
    monkeypatch.setattr(bench, "reached", partial(bench.reached, folder=tmp_path))
    console = Console(width=120, record=True, file=io.StringIO())
    bench.run(console)
    said = " ".join(console.export_text().split())
    for name in (*bench.TASKS, *RECIPES, "of its time"):
        assert name in said
    assert "> 2" in said  # no error falls in two steps
    assert "0 of 1" in said


def test_the_time_of_a_step_is_the_median_of_several(monkeypatch):
    clock = iter([0.0, 1.0, 5.0, 8.0, 20.0, 22.0])
    monkeypatch.setattr(pace.time, "process_time", lambda: next(clock))
    small = Experiment("gpt2:layers=1,width=8,heads=2", TASK, "positions:batch=2")
    assert pace.step_seconds(small, 3) == 2.0


@pytest.mark.parametrize("task", ["autoregression:d=8", "chain-of-thought:d=8", "dictionary"])
def test_tasks_that_cannot_be_narrowed_have_a_recipe_without_a_curriculum(task):
    made = RECIPES["muon"].experiment("gpt2", task, steps=50)
    assert made.curriculum.name == "none"


def test_a_curriculum_over_a_sequence_is_refused_before_anything_is_written(tmp_path):
    grows = Experiment("gpt2", "autoregression", "positions", curriculum="grow:dims=1", steps=5)
    with pytest.raises(ValueError, match="a curriculum over coordinates and examples is for tasks"):
        grows.run(tmp_path / "run")
    assert not (tmp_path / "run").exists()
