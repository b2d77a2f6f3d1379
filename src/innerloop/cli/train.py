"""`innerloop train`: any model on a task, resumable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from innerloop import papers
from innerloop.cli.specs import MODELS, TASKS, build
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
