"""`innerloop evaluate`: a trained model beside algorithms, under shifts, and looped longer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from innerloop import theory
from innerloop.algorithms import Learner
from innerloop.analysis import (
    estimate_risk,
    loop_curve,
    loop_spectral_radius,
    one_step_risk,
    prediction_distance,
    shift_table,
    standard_shifts,
)
from innerloop.cli.specs import ALGORITHMS, MODELS, TASKS, build
from innerloop.models import LinearAttention
from innerloop.tasks import LinearRegression
from innerloop.training import CheckpointError, Exact
from innerloop.training.checkpoints import load_weights, read_checkpoint

SHIFT_RIVALS = ("ols", "ridge", "zero")


@dataclass(frozen=True)
class SavedRun:
    """A trained model as `train` left it."""

    model: LinearAttention
    task: LinearRegression
    task_spec: str
    step: int


def _open_run(path: Path) -> SavedRun:
    file = path / "checkpoint.safetensors" if path.is_dir() else path
    header, tensors = read_checkpoint(file)
    config = header["config"]
    if not {"model", "task"} <= config.keys():
        raise CheckpointError(f"{file} does not say which model and task it belongs to")
    task = build("task", config["task"], TASKS)
    model = build("model", config["model"], MODELS, task.d, torch.Generator())
    load_weights(model, tensors, file)
    return SavedRun(model, task, config["task"], header["step"])


def evaluate(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    task: str | None = None,
    against: tuple[str, ...] = ("zero", "ols", "one-step"),
    shifts: bool = False,
    loops: int | None = None,
    samples: int = 100_000,
    seed: int = 1,
) -> None:
    """Compares a trained model with algorithms on fresh prompts.

    Prints every learner's loss, and how far its predictions are from the model's: the algorithm
    that a model has learned is the one at distance zero.

    Args:
        run: the folder of a run, or a checkpoint file.
        task: where to compare; by default the task of the run.
        against: algorithms, such as ols ridge:penalty=0.1 gd:steps=3; see `innerloop list`.
        shifts: instead, the loss under distribution shifts of the task, of the model, of least
            squares, ridge regression and zero, and of what else `against` names.
        loops: instead, the loss of the model looped 1, 2, ... up to this many times.
        samples: fresh prompts.
        seed: of the prompts.
    """
    saved = _open_run(run)
    target = build("task", task, TASKS) if task else saved.task
    if target.d != saved.model.d:
        raise ValueError(f"the model reads d = {saved.model.d}, the task has d = {target.d}")
    if loops is not None:
        _print_loops(saved.model, target, loops, samples, seed)
        return
    rivals = {spec: build("algorithm", spec, ALGORITHMS, target) for spec in against}
    if shifts:
        usual = {spec: build("algorithm", spec, ALGORITHMS, target) for spec in SHIFT_RIVALS}
        learners = {"the model": saved.model, **usual, **rivals}
        console = Console()
        with console.status("measuring under shifts"):
            table = _shift_table(learners, target, samples, seed)
        console.print(table)
        return
    table = Table(title=f"{task or saved.task_spec}, {samples} prompts, step {saved.step}")
    table.add_column("learner")
    table.add_column("loss ± standard error", justify="right")
    table.add_column("distance to the model", justify="right")
    for name, learner in {"the model": saved.model, **rivals}.items():
        generator = torch.Generator().manual_seed(seed)
        loss = estimate_risk(learner, target, samples=samples, generator=generator)
        generator = torch.Generator().manual_seed(seed)
        distance = prediction_distance(
            learner, saved.model, target, batch=min(samples, 20_000), generator=generator
        )
        table.add_row(name, str(loss), f"{distance:.3g}")
    console = Console()
    console.print(table)
    try:
        console.print(f"exact loss of the model: {Exact(target).loss(saved.model).item():.6g}")
    except (theory.wishart.TooLargeError, ValueError):
        return


def _shift_table(
    learners: Mapping[str, Learner], task: LinearRegression, samples: int, seed: int
) -> Table:
    best = theory.linear.one_step_preconditioner(
        task.covariance, task.n, task.prior, task.noise_std
    )
    table = Table(title=f"loss under shifts, ± standard error, {samples} prompts", box=SIMPLE_HEAD)
    table.add_column("kind", no_wrap=True)
    table.add_column("shift")
    for name in learners:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("best step, exact", justify="right", no_wrap=True)
    shifts = standard_shifts(task)
    rows = shift_table(learners, shifts, samples=samples, seed=seed)
    for before, row in zip([None, *shifts], rows, strict=False):
        shift = row.shift
        kind = "" if before is not None and before.kind == shift.kind else shift.kind
        exact = one_step_risk(shift.task, best)
        cells = [str(loss) for loss in row.losses.values()]
        table.add_row(kind, shift.name, *cells, "" if exact is None else f"{exact:.4g}")
    return table


def _print_loops(
    model: LinearAttention, task: LinearRegression, loops: int, samples: int, seed: int
) -> None:
    """The model looped longer: mean, median and 99th percentile, and whether loops contract."""
    console = Console()
    table = Table(title=f"squared error after each loop, {samples} prompts", box=SIMPLE_HEAD)
    for column in ("loops", "mean ± standard error", "median", "99th percentile"):
        table.add_column(column, justify="right", no_wrap=True)
    with console.status("looping"):
        generator = torch.Generator().manual_seed(seed)
        curve = loop_curve(model, task, loops=loops, samples=samples, generator=generator)
        prompt = task.sample(min(samples, 10_000), generator=generator)
        radius = loop_spectral_radius(model, prompt)
    for row in curve:
        trained = " (trained)" if row.loops == model.loops else ""
        table.add_row(
            f"{row.loops}{trained}", str(row.mean), f"{row.median:.4g}", f"{row.upper:.4g}"
        )
    console.print(table)
    console.print(
        f"one loop expands on {(radius > 1).double().mean().item():.2%} of {len(radius)} prompts "
        f"(median spectral radius {radius.median().item():.3g}); on those, looping longer diverges"
    )
