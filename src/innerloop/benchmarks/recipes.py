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
    """After how many steps a training first had each of the errors, infinite if it never had, and
    how long a step took."""

    steps: Mapping[float, float]
    seconds_per_step: float


def run(console: Console) -> None:
    for name, task in TASKS.items():
        console.print(table(name, task, console))


def table(name: str, task: str, console: Console) -> Table:
    """Medians over the seeds, and as ratios to the published recipe."""
    shown = Table(title=f"steps until the error is a share of E y², {name}, {len(SEEDS)} seeds")
    for column in ("recipe", *(f"{share:.0%}" for share in SHARES), "of published", "of its time"):
        shown.add_column(column, justify="right")
    found: dict[str, list[Reached]] = {}
    for recipe in RECIPES:
        experiments = [_experiment(recipe, task, seed) for seed in SEEDS]
        with console.status(f"{name}: {recipe}, {STEPS[recipe]} steps for each seed"):
            found[recipe] = [reached(experiment) for experiment in experiments]
    published = found["published"]
    for recipe, trained in found.items():
        counts = [_steps(trained, share, STEPS[recipe]) for share in SHARES]
        shown.add_row(recipe, *counts, *_ratios(trained, published))
    return shown


def _steps(trained: Sequence[Reached], share: float, most: int) -> str:
    steps = _median_steps(trained, share)
    return f"{steps:.0f}" if math.isfinite(steps) else f"> {most}"


def _ratios(trained: Sequence[Reached], published: Sequence[Reached]) -> tuple[str, str]:
    """Steps and seconds to the smallest error, as shares of those of the published recipe; upper
    bounds if that has not reached it."""
    steps, theirs = (_median_steps(each, SHARES[-1]) for each in (trained, published))
    if not math.isfinite(steps):
        return "", ""
    bound = "" if math.isfinite(theirs) else "< "
    ratio = steps / min(theirs, STEPS["published"])
    pace, their_pace = (median(e.seconds_per_step for e in each) for each in (trained, published))
    return f"{bound}{ratio:.2f}", f"{bound}{ratio * pace / their_pace:.2f}"


def _median_steps(trained: Sequence[Reached], share: float) -> float:
    return median(each.steps[share] for each in trained)


def reached(experiment: Experiment, folder: Path = FOLDER) -> Reached:
    """Trains it, and reads off when its error first was below each of the shares."""
    task = experiment.build()[1]
    prompts = task.sample(PROMPTS, generator=torch.Generator().manual_seed(10**6))
    unit = prompts.targets.square().mean().item()

    @torch.no_grad()
    def error(model: nn.Module) -> float:
        return (answers(model, prompts) - prompts.targets).square().mean().item() / unit

    metrics = {"error": error, "clock": lambda model: time.perf_counter()}
    history = experiment.run(folder / experiment.key, metrics=metrics).history
    first = {}
    for share in SHARES:
        pairs = zip(history["step"], history["error"], strict=True)
        first[share] = min((step for step, off in pairs if off <= share), default=math.inf)
    return Reached(first, _pace(history["step"], history["clock"]))


def _pace(steps: Sequence[float], clock: Sequence[float]) -> float:
    """Seconds for a step, as the median between two entries of the history: a training that was
    interrupted and went on later has one that is not like the others."""
    rows = pairwise(zip(steps, clock, strict=True))
    return median((later - t) / (after - step) for (step, t), (after, later) in rows)


def _experiment(recipe: str, task: str, seed: int) -> Experiment:
    return RECIPES[recipe].experiment("gpt2", task, steps=STEPS[recipe], seed=seed)
