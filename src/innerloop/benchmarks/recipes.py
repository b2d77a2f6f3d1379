"""`innerloop bench recipes`: steps and seconds until a transformer has learned, recipe by recipe.

The error is that of the last prediction of a prompt, as a share of what predicting 0 would have,
on the same 2,048 fresh prompts for all. Trainings are kept below `runs/bench-recipes`, and found
again; all of them take more than an hour on one core. The time of a step is of the processor, and
is measured for all recipes when the table is printed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from innerloop.algorithms import answers
from innerloop.experiments.experiment import Experiment
from innerloop.experiments.pace import step_seconds
from innerloop.experiments.recipes import RECIPES

TASKS = {
    "covariance I": "linear:d=5,n=10,dtype=float32",
    "random covariances": "random-covariance:d=5,n=10,dtype=float32",
}
STEPS = {"muon": (1000, 2000), "adam": (4000,), "published": (10_000,)}
"""Lengths of the trainings; where the rate falls depends on them, and so does when an error is
reached."""
SEEDS = (0, 1, 2)
SHARES = (0.5, 0.2, 0.08)
"""Errors to be reached, as shares of predicting 0."""
PROMPTS = 2048
TIMED_STEPS = 20
FOLDER = Path("runs/bench-recipes")
Reached = Mapping[float, float]
"""From a share to the step after which a training first had it, infinite if it never had."""


def run(console: Console) -> None:
    for name, task in TASKS.items():
        console.print(table(name, task, console))


def table(name: str, task: str, console: Console) -> Table:
    """Medians over the seeds, and as ratios to the published recipe."""
    shown = Table(title=f"steps until the error is a share of E y², {name}, {len(SEEDS)} seeds")
    shares = [f"{share:.0%}" for share in SHARES]
    for column in ("recipe", "length", *shares, "seeds", "of published", "of its time"):
        shown.add_column(column, justify="right")
    found: dict[tuple[str, int], list[Reached]] = {}
    for recipe in RECIPES:
        for steps in STEPS[recipe]:
            experiments = [_experiment(recipe, task, steps, seed) for seed in SEEDS]
            with console.status(f"{name}: {recipe}, {steps} steps for each seed"):
                found[recipe, steps] = [reached(experiment) for experiment in experiments]
    with console.status(f"{name}: the time of a step"):
        pace = {
            r: step_seconds(_experiment(r, task, STEPS[r][0], SEEDS[0]), TIMED_STEPS)
            for r in RECIPES
        }
    (longest,) = STEPS["published"]
    for (recipe, steps), trained in found.items():
        counts = [_steps(trained, share, steps) for share in SHARES]
        there = sum(math.isfinite(each[SHARES[-1]]) for each in trained)
        ratios = _ratios(
            trained, found["published", longest], longest, pace[recipe] / pace["published"]
        )
        shown.add_row(recipe, str(steps), *counts, f"{there} of {len(trained)}", *ratios)
    shown.caption = f"seeds: those that reach {SHARES[-1]:.0%} at all"
    return shown


def _steps(trained: Sequence[Reached], share: float, most: int) -> str:
    steps = _median_steps(trained, share)
    return f"{steps:.0f}" if math.isfinite(steps) else f"> {most}"


def _ratios(
    trained: Sequence[Reached], published: Sequence[Reached], longest: int, slower: float
) -> tuple[str, str]:
    """Steps and time to the smallest error, as shares of those of the published recipe; upper
    bounds if that has not reached it.

    Args:
        longest: the length of the published recipe's trainings.
        slower: the time of a step over that of the published recipe.
    """
    steps, theirs = (_median_steps(each, SHARES[-1]) for each in (trained, published))
    if not math.isfinite(steps):
        return "", ""
    bound = "" if math.isfinite(theirs) else "< "
    ratio = steps / min(theirs, longest)
    return f"{bound}{ratio:.2f}", f"{bound}{ratio * slower:.2f}"


def _median_steps(trained: Sequence[Reached], share: float) -> float:
    return median(each[share] for each in trained)


def reached(experiment: Experiment, folder: Path = FOLDER) -> Reached:
    """Trains it, and reads off when its error first was below each of the shares."""
    task = experiment.build()[1]
    prompts = task.sample(PROMPTS, generator=torch.Generator().manual_seed(10**6))
    unit = prompts.targets.square().mean().item()

    @torch.no_grad()
    def error(model: nn.Module) -> float:
        return (answers(model, prompts) - prompts.targets).square().mean().item() / unit

    history = experiment.run(folder / experiment.key, metrics={"error": error}).history
    first = {}
    for share in SHARES:
        pairs = zip(history["step"], history["error"], strict=True)
        first[share] = min((step for step, off in pairs if off <= share), default=math.inf)
    return first


def _experiment(recipe: str, task: str, steps: int, seed: int) -> Experiment:
    return RECIPES[recipe].experiment("gpt2", task, steps=steps, seed=seed)
