"""An experiment: everything that makes a training what it is; and a run, what it left on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from innerloop.corpora import CorpusError
from innerloop.experiments.catalogue import (
    CURRICULA,
    MODELS,
    OBJECTIVES,
    OPTIMIZERS,
    SCHEDULES,
    TABLES,
    TASKS,
)
from innerloop.experiments.devices import usable
from innerloop.experiments.kinds import one_sample
from innerloop.experiments.spec import Spec, settable
from innerloop.locks import folder_lock
from innerloop.runs import write_atomic
from innerloop.tables import as_csv
from innerloop.tasks import Task, moved
from innerloop.tasks.checks import require_at_least, require_seed
from innerloop.training import (
    Checkpoint,
    CheckpointError,
    Curriculum,
    History,
    LoopWindow,
    Metric,
    MixedPrecision,
    Objective,
    compile_layers,
    load_weights,
    read_checkpoint,
    train,
)

WEIGHTS = "checkpoint.safetensors"
RECORDS = 100
"""Rows of the history of a run, about."""


@dataclass(frozen=True, init=False)
class Experiment:
    """A model, a task, and how the one is trained on the other.

        Experiment("gd:layers=2", "linear:d=5,n=20", objective="exact", steps=500)

    Specs are given in the short form or as `Spec`. Two experiments that are equal are the same
    training, on any machine, whatever has changed in the code around it.
    """

    model: Spec
    task: Spec
    objective: Spec
    optimizer: Spec
    schedule: Spec
    curriculum: Spec
    steps: int
    """Optimizer steps in all."""
    clip: float | None
    """The largest norm of a gradient; None does not limit it."""
    seed: int
    """Of the initial weights and of the data."""

    def __init__(
        self,
        model: Spec | str,
        task: Spec | str,
        objective: Spec | str = "prompts",
        optimizer: Spec | str = "adam",
        schedule: Spec | str = "cosine",
        curriculum: Spec | str = "none",
        *,
        steps: int = 2000,
        clip: int | float | None = 10.0,
        seed: int = 0,
    ) -> None:
        given = (model, task, objective, optimizer, schedule, curriculum)
        specs = zip(SPECS, given, strict=True)
        values = {kind: Spec.parse(kind, words, TABLES[kind]) for kind, words in specs}
        require_at_least("steps", steps, 1)
        require_seed(seed)
        if clip is not None:
            if type(clip) not in (int, float) or not 0 < clip < float("inf"):
                raise ValueError(f"clip must be positive and finite, or None, got {clip!r}")
            clip = float(clip)
        # Past the dataclass, which is frozen.
        vars(self).update(values, steps=steps, clip=clip, seed=seed)

    def as_json(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {k: v.as_json() if isinstance(v, Spec) else v for k, v in values.items()}

    @property
    def chosen(self) -> dict[str, Any]:
        """As JSON, without options that have their default.

        What a training is known by: an option that the catalogue gains later changes nothing.
        """
        chosen = self.as_json()
        for kind in SPECS:
            known = settable(TABLES[kind][chosen[kind]["name"]])
            options = chosen[kind]["options"]
            chosen[kind]["options"] = {
                key: value for key, value in options.items() if value != known[key].default
            }
        return chosen

    @property
    def key(self) -> str:
        """Twelve letters that stand for all that was chosen."""
        text = json.dumps(self.chosen, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

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
        device = usable(device)
        task = self.task.build(TASKS)
        # Weights are drawn on the CPU, so that a seed means the same start everywhere.
        start = torch.Generator().manual_seed(self.seed)
        model = self.model.build(MODELS, task, start).to(device, dtype_of(task))
        generator = start
        if device.type != "cpu":
            generator = torch.Generator(device).manual_seed(self.seed)
        return model, moved(task, device), generator

    def _objective(self, task: Task, mixed: torch.device | None = None) -> Curriculum:
        """What is minimised at each step: the objective on the task that the curriculum gives; in
        mixed precision on the device, if one is named."""
        self.objective.build(OBJECTIVES, task)  # refused now, if it cannot be
        stage_at = self.curriculum.build(CURRICULA, task)

        def objective_at(step: int) -> Objective:
            stage = stage_at(step)
            objective = self.objective.build(OBJECTIVES, stage.task)
            if stage.loops is not None:
                if not isinstance(objective, LoopWindow):
                    raise ValueError(
                        "a curriculum over loops needs the objective window, got "
                        f"{self.objective.name}"
                    )
                objective = objective.limited(stage.loops)
            return objective if mixed is None else MixedPrecision(objective, mixed)

        objective_at(0)
        return objective_at

    def _tell_of_loops(self, notify: Callable[[str], None]) -> None:
        own, trained = (s.options.get("loops") for s in (self.model, self.objective))
        if own is not None and trained is not None and own != trained:
            notify(
                f"the model loops {own} times unless told otherwise, and is trained at T = "
                f"{trained}; {self.objective.name}:loops={own} would train it at {own}"
            )
        how = self.objective.options
        short = how.get("truncate") and how["window"] < how["loops"]
        if short and self.model.options.get("inject") is False:
            notify(
                f"the gradient goes back {how['window']} of {how['loops']} loops, and with "
                "inject=false no other way to what is before the loop, which stays as it starts; "
                "truncate=false lets it through"
            )

    def run(
        self,
        folder: Path | str,
        *,
        device: torch.device | str = "cpu",
        mixed_precision: bool = False,
        torch_compile: bool = False,
        metrics: Mapping[str, Metric] | None = None,
        watch: Callable[[int, float], None] = lambda step, loss: None,
        notify: Callable[[str], None] = lambda sentence: None,
    ) -> Run:
        """Trains into the folder, going on from what it already holds of this experiment.

        Args:
            mixed_precision: whether products of matrices are in bfloat16.
            torch_compile: whether the layers of a transformer are compiled to machine code.
            metrics: read off the model along the way, into the history.
            watch: called after every step with its number and loss.
            notify: told what a user should know, such as a run that other versions began.
        """
        folder = Path(folder)
        self._tell_of_loops(notify)
        model, task, generator = self.build(device)
        mixed = usable(device) if mixed_precision else None
        if torch_compile:
            compile_layers(model)
        objective = self._objective(task, mixed)
        optimizer = self.optimizer.build(OPTIMIZERS, model)
        schedule = self.schedule.build(SCHEDULES, self.steps)
        with folder_lock(folder):  # what is refused before leaves no folder
            _keep_files(folder, task)
            checkpoint = Checkpoint(folder / WEIGHTS, max(1, self.steps // 10), self.chosen)
            history = train(
                model,
                objective,
                optimizer,
                steps=self.steps,
                generator=generator,
                schedule=schedule,
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


SPECS = ("model", "task", "objective", "optimizer", "schedule", "curriculum")
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
        device = usable(device)
        header, tensors = read_checkpoint(file)
        try:
            experiment = Experiment.from_json(header["config"])
            model, task, _ = experiment.build(device)
        except CorpusError:  # the experiment is known, and its data is not here
            raise
        except (ValueError, OverflowError) as error:
            raise CheckpointError(
                f"the checkpoint {file} does not say which experiment it belongs to: {error}"
            ) from error
        _require_files(file.parent, task)
        load_weights(model, tensors, file)
        model.eval()
        return cls(file.parent, experiment, model, task, History(header["history"]), header["step"])


def _keep_files(folder: Path, task: Task) -> None:
    """Writes what the task says that a run needs, such as a tokeniser, beside the weights."""
    _require_files(folder, task)
    for name, text in getattr(task, "files", {}).items():
        write_atomic(folder / name, text)


def _require_files(folder: Path, task: Task) -> None:
    """Refuses a run whose task is no longer what it was: numbers would mean other words."""
    for name, text in getattr(task, "files", {}).items():
        file = folder / name
        kept = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else text
        if _known_by(kept) != _known_by(text):
            raise CheckpointError(
                f"{file} is not what the task {type(task).__name__} has now: the run belongs to "
                "data that has been built anew since; train in another folder"
            )


def _known_by(text: str) -> str:
    """The digest that a file has of what it speaks of, or else the whole file."""
    with suppress(ValueError, TypeError, KeyError):
        return str(json.loads(text)["digest"])
    return text


def dtype_of(task: Task) -> torch.dtype:
    """The precision of what a task samples."""
    return one_sample(task).dtype
