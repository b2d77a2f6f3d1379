"""`innerloop bench recipes`: steps and seconds until a transformer has learned, recipe by recipe.

The error is that of the last prediction of a prompt, as a share of what predicting 0 would have,
on the same 2,048 fresh prompts for all. Trainings are kept below `runs/bench-recipes`, and found
again. All of them take the better part of an hour on one core; nothing else should run beside.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from innerloop.algorithms import answers
from innerloop.experiments.experiment import Experiment
from innerloop.experiments.recipes import RECIPES

TASKS = {
    "covariance I": "linear:d=5,n=10,dtype=float32",
    "random covariances": "random-covariance:d=5,n=10,dtype=float32",
}
STEPS = {"muon": 2000, "adam": 4000, "published": 10_000}
SEEDS = (0, 1, 2)
SHARES = (0.5, 0.2, 0.08)
"""Errors to be reached, as shares of predicting 0."""
PROMPTS = 2048
FOLDER = Path("runs/bench-recipes")


@dataclass(frozen=True)
class Reached:
    """When a training first had an error; infinite if never."""

    steps: float
    seconds: float


def run(console: Console) -> None:
    for name, task in TASKS.items():
        console.print(table(name, task, console))


def table(name: str, task: str, console: Console) -> Table:
    """Medians over the seeds, and as ratios to the published recipe."""
    shown = Table(title=f"steps until the error is a share of E y², {name}, {len(SEEDS)} seeds")
    for column in ("recipe", *(f"{share:.0%}" for share in SHARES), "of published", "of its time"):
        shown.add_column(column, justify="right")
    found: dict[str, list[Mapping[float, Reached]]] = {}
    for recipe in RECIPES:
        experiments = [_experiment(recipe, task, seed) for seed in SEEDS]
        with console.status(f"{name}: {recipe}, {STEPS[recipe]} steps for each seed"):
            found[recipe] = [reached(experiment) for experiment in experiments]
    last = SHARES[-1]
    base = Reached(*_medians(found["published"], last))
    for recipe, by_seed in found.items():
        steps, seconds = _medians(by_seed, last)
        counts = [_medians(by_seed, share)[0] for share in SHARES]
        ratios = (steps / base.steps, seconds / base.seconds)
        shown.add_row(recipe, *(f"{c:.0f}" for c in counts), *(f"{r:.2f}" for r in ratios))
    return shown


def reached(experiment: Experiment, folder: Path = FOLDER) -> dict[float, Reached]:
    """Trains it, and reads off when its error first was below each of the shares."""
    task = experiment.build()[1]
    prompts = task.sample(PROMPTS, generator=torch.Generator().manual_seed(10**6))
    unit = prompts.targets.square().mean().item()

    @torch.no_grad()
    def error(model: nn.Module) -> float:
        return (answers(model, prompts) - prompts.targets).square().mean().item() / unit

    metrics = {"error": error, "clock": lambda model: time.perf_counter()}
    history = experiment.run(folder / experiment.key, metrics=metrics).history
    pace = _pace(history["step"], history["clock"])
    first = {}
    for share in SHARES:
        pairs = zip(history["step"], history["error"], strict=True)
        steps = min((step for step, off in pairs if off <= share), default=math.inf)
        first[share] = Reached(steps, steps * pace)
    return first


def _pace(steps: Sequence[float], clock: Sequence[float]) -> float:
    """Seconds for a step, as the median between two entries of the history: a training that was
    interrupted and went on later has one that is not like the others."""
    rows = pairwise(zip(steps, clock, strict=True))
    return median((later - t) / (after - step) for (step, t), (after, later) in rows)


def _experiment(recipe: str, task: str, seed: int) -> Experiment:
    return RECIPES[recipe].experiment("gpt2", task, steps=STEPS[recipe], seed=seed)


def _medians(by_seed: list[Mapping[float, Reached]], share: float) -> tuple[float, float]:
    return (
        median(each[share].steps for each in by_seed),
        median(each[share].seconds for each in by_seed),
    )
