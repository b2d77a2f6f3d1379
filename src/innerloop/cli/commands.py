"""What each command does. Arguments, defaults and docstrings are the command line's own help."""

from __future__ import annotations

import inspect
import json
import math
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from innerloop import papers
from innerloop.benchmarks import BENCHMARKS
from innerloop.cli.specs import ALGORITHMS, MODELS, TASKS, build, settable
from innerloop.papers import Outcome, Result, Scale
from innerloop.report import write_report
from innerloop.runs import RunStore, writable_folder, write_atomic
from innerloop.training import (
    Checkpoint,
    Exact,
    Objective,
    Prompts,
    Wishart,
    clip_norm,
    cosine,
)
from innerloop.training import train as run_training

STYLES = {
    Outcome.HOLDS: "green",
    Outcome.CORRECTED: "yellow",
    Outcome.FAILS: "red",
    Outcome.INCONCLUSIVE: "magenta",
}
Ids = Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="[ID ...]")]


def list_everything() -> None:
    """Lists papers, claims, figures, tasks, models and algorithms."""
    console = Console()
    entries = papers.entries()
    for key, paper in papers.PAPERS.items():
        table = Table(title=f"{key}: {paper.authors} ({paper.year}), {paper.title}", expand=True)
        table.add_column("id", no_wrap=True)
        table.add_column("source")
        table.add_column("statement")
        for entry in entries.values():
            if entry.id.startswith(f"{key}/"):
                table.add_row(entry.id, entry.source, entry.statement)
        console.print(table)
    tables: list[tuple[str, dict[str, Any], int]] = [
        ("tasks", dict(TASKS), 0),
        ("models", dict(MODELS), 2),
        ("algorithms", dict(ALGORITHMS), 1),
    ]
    for title, functions, given in tables:
        table = Table(title=title, expand=True)
        for column in ("name", "what it is", "options and defaults"):
            table.add_column(column)
        for name, function in functions.items():
            options = ", ".join(f"{p.name}={p.default}" for p in settable(function, given).values())
            table.add_row(name, inspect.getdoc(function), options)
        console.print(table)


def reproduce(
    ids: Ids,
    scale: Annotated[Scale, tyro.conf.EnumChoicesFromValues] = Scale.QUICK,
    force: bool = False,
    json_file: Annotated[Path | None, tyro.conf.arg(name="json")] = None,
    report: Path = Path("report"),
    runs: Path = Path("runs"),
    workers: int = os.cpu_count() or 1,
) -> None:
    """Measures claims and figures, prints the verdicts and writes the report.

    Results are kept in the runs folder and found again until the code changes.

    Args:
        ids: papers, claims or figures, such as ahn2023 or ahn2023/theorem1; none means all.
        scale: smoke (seconds), quick (minutes on two cores) or paper (the paper's own settings).
        force: measure again what is already on disk.
        json_file: also write the verdicts to this file, as a list of objects.
        report: the folder of the report.
        runs: the folder of results.
        workers: processes that measure at the same time, each on one thread.
    """
    chosen = papers.select(ids)
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    for folder in (report, runs, *([json_file.parent] if json_file else [])):
        writable_folder(folder)
    console, store = Console(), RunStore(runs)
    on_disk = {e.id: None if force else papers.found(e, scale, store) for e in chosen}
    by_id = {id: result for id, result in on_disk.items() if result is not None}
    missing = [entry for entry in chosen if entry.id not in by_id]
    if missing:
        with console.status(f"measuring {len(missing)} claims and figures") as status:
            for result in papers.measure_all(missing, scale, store, workers=workers):
                by_id[result.id] = result
                console.print(_verdict_line(result), highlight=False)
                left = [entry.id for entry in missing if entry.id not in by_id]
                status.update(f"{len(left)} to go: {', '.join(left[:4])}")
    elif chosen:
        console.print("all of it was found on disk; --force measures again")
    results = [by_id[entry.id] for entry in chosen]
    console.print(_verdict_table(results, scale))
    counts = {outcome: sum(r.outcome == outcome for r in results) for outcome in Outcome}
    console.print(", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count))
    if json_file is not None:
        records = [_finite(result.as_json()) for result in results]
        write_atomic(json_file, json.dumps(records, indent=1, allow_nan=False))
        console.print(f"verdicts: {json_file}", soft_wrap=True)
    console.print(f"report: {write_report(results, report).resolve()}", soft_wrap=True)


def _verdict_line(result: Result) -> str:
    style = STYLES[result.outcome]
    return f"[{style}]{result.outcome}[/] {result.id} ({result.seconds:.1f} s)"


def _verdict_table(results: list[Result], scale: Scale) -> Table:
    table = Table(title=f"verdicts at scale {scale}", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("id", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for name in ("measured", "tolerance", "control"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in results:
        verdict = result.verdict
        checks = verdict.printed if result.outcome == Outcome.HOLDS else verdict.corrected
        checks = checks or verdict.printed
        # Of several checks, one that fails or came closest to failing stands for the row.
        check = min(checks, key=lambda c: (c.passes, _margin(c)), default=None)
        style = STYLES[result.outcome]
        cells = ["", "", ""]
        if check is not None:
            sign = "≥" if check.at_least else "≤"
            cells = [
                f"{check.measured:.2g}",
                f"{sign} {check.tolerance:.2g}",
                f"{check.control:.2g}",
            ]
        table.add_row(result.id, f"[{style}]{result.outcome}[/]", *cells)
    return table


def _margin(check: papers.Check) -> float:
    """How many orders of magnitude the measurement is away from the tolerance."""
    measured, tolerance = abs(check.measured) or 1e-300, abs(check.tolerance) or 1e-300
    return abs(math.log(measured / tolerance)) if math.isfinite(measured) else math.inf


def _finite(value: Any) -> Any:
    """JSON has no NaN or infinity: null stands for them."""
    if isinstance(value, dict):
        return {key: _finite(v) for key, v in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def train(
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    task: str = "linear",
    objective: Literal["exact", "wishart", "prompts"] = "prompts",
    steps: int = 2000,
    batch: int = 1000,
    lr: float = 0.01,
    optimizer: Literal["adam", "sgd"] = "adam",
    clip: float = 10.0,
    seed: int = 0,
    run: Path | None = None,
    runs: Path = Path("runs"),
) -> None:
    """Trains a model on a task; the same command goes on where an earlier one stopped.

    Args:
        model: such as gd:layers=3 or gd++:layers=2,loops=4; see `innerloop list`.
        task: such as linear:d=5,n=20,noise_std=0.1; see `innerloop list`.
        objective: exact (no sampling), wishart (sample Gram matrices) or prompts.
        steps: optimizer steps in all.
        batch: prompts or Gram matrices per step.
        lr: the first learning rate; it falls to a hundredth along half a cosine.
        optimizer: which one.
        clip: the largest norm of a gradient.
        seed: of the initial weights and of the data.
        run: the folder of this run; by default one below `runs`, named by the settings.
        runs: the folder of runs.
    """
    generator = torch.Generator().manual_seed(seed)
    target = build("task", task, TASKS)
    learner = build("model", model, MODELS, target.d, generator)
    if steps < 1 or batch < 1 or not lr > 0:
        raise ValueError(
            f"steps and batch must be at least 1 and lr positive, got {steps}, {batch} and {lr}"
        )
    config: dict[str, Any] = {
        "id": f"train-{model.partition(':')[0]}",
        "model": model,
        "task": task,
        "objective": objective,
        "steps": steps,
        "batch": batch,
        "lr": lr,
        "optimizer": optimizer,
        "clip": clip,
        "seed": seed,
    }
    folder = writable_folder(run or RunStore(runs).folder(config))
    checkpoint = Checkpoint(folder / "checkpoint.safetensors", max(1, steps // 10), config)
    objectives: dict[str, Objective] = {
        "exact": Exact(target),
        "wishart": Wishart(target, batch),
        "prompts": Prompts(target, batch),
    }
    optimizers = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    console = Console()
    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4g}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=steps, loss=float("nan"))
        history = run_training(
            learner,
            objectives[objective],
            optimizers[optimizer](learner.parameters(), lr=lr),
            steps=steps,
            generator=generator,
            schedule=cosine(steps, floor=0.01),
            clip=clip_norm(clip),
            every=max(1, steps // 100),
            checkpoint=checkpoint,
            watch=lambda step, loss: progress.update(bar, completed=step, loss=loss),
        )
        progress.update(bar, completed=steps, loss=history["loss"][-1])
    write_atomic(folder / "history.csv", papers.as_csv(history.columns))
    console.print(f"loss {history['loss'][-1]:.5g} after {steps} steps")
    console.print(f"run: {folder}", soft_wrap=True)
    console.print(f"next: innerloop evaluate {folder} --against ols one-step", soft_wrap=True)


def bench(
    names: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME ...]")],
) -> None:
    """Measures speed, every number as a ratio within one run.

    Args:
        names: which benchmarks; none means all. Known: linear, dictionary.
    """
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        raise ValueError(f"no benchmark is called {unknown[0]!r}; known: {', '.join(BENCHMARKS)}")
    for name in names or BENCHMARKS:
        BENCHMARKS[name](Console())
