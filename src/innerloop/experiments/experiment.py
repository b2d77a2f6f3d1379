"""An experiment: everything that makes a training what it is; and a run, what it left on disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from innerloop.experiments.catalogue import (
    MODELS,
    OBJECTIVES,
    OPTIMIZERS,
    SCHEDULES,
    TABLES,
    TASKS,
)
from innerloop.experiments.spec import Spec
from innerloop.locks import folder_lock
from innerloop.runs import write_atomic
from innerloop.tables import as_csv
from innerloop.tasks import Task, moved
from innerloop.training import (
    Checkpoint,
    CheckpointError,
    History,
    Metric,
    load_weights,
    read_checkpoint,
    train,
)

WEIGHTS = "checkpoint.safetensors"
RECORDS = 100
"""Rows of the history of a run, about."""


@dataclass(frozen=True)
class Experiment:
    """A model, a task, and how the one is trained on the other.

        Experiment("gd:layers=2", "linear:d=5,n=20", objective="exact", steps=500)

    Specs are given in the short form or as `Spec`. Two experiments that are equal are the same
    training, on any machine, whatever has changed in the code around it.
    """

    model: Spec
    task: Spec
    objective: Spec = field(default="prompts")  # type: ignore[assignment]
    optimizer: Spec = field(default="adam")  # type: ignore[assignment]
    schedule: Spec = field(default="cosine")  # type: ignore[assignment]
    steps: int = 2000
    """Optimizer steps in all."""
    clip: float | None = 10.0
    """The largest norm of a gradient; None does not limit it."""
    seed: int = 0
    """Of the initial weights and of the data."""

    def __post_init__(self) -> None:
        for kind in SPECS:
            spec = Spec.parse(kind, getattr(self, kind), TABLES[kind])
            object.__setattr__(self, kind, spec)
        if type(self.steps) is not int or self.steps < 1:
            raise ValueError(f"steps must be a whole number of at least 1, got {self.steps!r}")
        if type(self.seed) is not int or not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be between 0 and 2^63 - 1, got {self.seed!r}")
        if self.clip is not None and not 0 < self.clip < float("inf"):
            raise ValueError(f"clip must be positive and finite, or None, got {self.clip}")

    def as_json(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {k: v.as_json() if isinstance(v, Spec) else v for k, v in values.items()}

    @classmethod
    def from_json(cls, record: Any) -> Experiment:
        """What `as_json` wrote; refuses anything else with a sentence."""
        known = {f.name for f in fields(cls)}
        if not isinstance(record, Mapping) or set(record) != known:
            got = sorted(record) if isinstance(record, Mapping) else record
            raise ValueError(f"an experiment has the entries {sorted(known)}, got {got!r}")
        given: dict[str, Any] = dict(record)
        for kind in SPECS:
            given[kind] = Spec.from_json(kind, record[kind], TABLES[kind])
        return cls(**given)

    def build(self, device: torch.device | str = "cpu") -> tuple[nn.Module, Task, torch.Generator]:
        """The model at its start, the task, and the generator that the data will come from."""
        task = self.task.build(TASKS)
        # Weights are drawn on the CPU, so that a seed means the same start everywhere.
        start = torch.Generator().manual_seed(self.seed)
        model = self.model.build(MODELS, task, start).to(device, dtype_of(task))
        generator = start
        if torch.device(device).type != "cpu":
            generator = torch.Generator(device).manual_seed(self.seed)
        return model, moved(task, device), generator

    def run(
        self,
        folder: Path | str,
        *,
        device: torch.device | str = "cpu",
        metrics: Mapping[str, Metric] | None = None,
        watch: Callable[[int, float], None] = lambda step, loss: None,
        notify: Callable[[str], None] = lambda sentence: None,
    ) -> Run:
        """Trains into the folder, going on from what it already holds of this experiment.

        Args:
            metrics: read off the model along the way, into the history.
            watch: called after every step with its number and loss.
            notify: told what a user should know, such as a run that other versions began.
        """
        folder = Path(folder)
        model, task, generator = self.build(device)
        with folder_lock(folder):
            checkpoint = Checkpoint(folder / WEIGHTS, max(1, self.steps // 10), self.as_json())
            history = train(
                model,
                self.objective.build(OBJECTIVES, task),
                self.optimizer.build(OPTIMIZERS, model.parameters()),
                steps=self.steps,
                generator=generator,
                schedule=self.schedule.build(SCHEDULES, self.steps),
                clip=self.clip,
                metrics=metrics,
                every=max(1, self.steps // RECORDS),
                checkpoint=checkpoint,
                watch=watch,
                notify=notify,
            )
            write_atomic(folder / "experiment.json", json.dumps(self.as_json(), indent=1))
            write_atomic(folder / "history.csv", as_csv(history.columns))
        return Run(folder, self, model, task, history, self.steps)


SPECS = ("model", "task", "objective", "optimizer", "schedule")
"""The fields of an experiment that are specs."""


@dataclass(frozen=True)
class Run:
    """A training on disk: what was trained, on what, and how it went."""

    folder: Path
    experiment: Experiment
    model: nn.Module
    task: Task
    history: History
    step: int

    @classmethod
    def open(cls, path: Path | str, *, device: torch.device | str = "cpu") -> Run:
        """From the folder of a run, or from its checkpoint file."""
        path = Path(path)
        file = path / WEIGHTS if path.is_dir() else path
        header, tensors = read_checkpoint(file)
        try:
            experiment = Experiment.from_json(header["config"])
        except ValueError as error:
            raise CheckpointError(
                f"{file} does not say which experiment it belongs to: {error}"
            ) from error
        model, task, _ = experiment.build(device)
        load_weights(model, tensors, file)
        model.eval()
        return cls(file.parent, experiment, model, task, History(header["history"]), header["step"])


def dtype_of(task: Task) -> torch.dtype:
    """The precision of what a task samples."""
    return task.sample(1, generator=torch.Generator().manual_seed(0)).targets.dtype
