"""What a command looks at: a trained model, a record or a user's own learner, and its task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from innerloop.algorithms import Learner
from innerloop.experiments import MODELS, TASKS, Run, Spec, own_learner
from innerloop.experiments.experiment import dtype_of
from innerloop.experiments.kinds import require_readable
from innerloop.experiments.records import Record, names
from innerloop.experiments.study import records_root
from innerloop.tasks import Task, moved
from innerloop.training import load_weights, read_weights


@dataclass(frozen=True)
class Subject:
    """What is evaluated, where, and beside what."""

    learner: Learner
    task: Task
    task_spec: Spec
    note: str
    """Which state of training it is in, or where it came from."""


def subject_of(run: Path | None, task: str | None, model: str | None, device: str) -> Subject:
    """From a run or a record, or from a model by name with the file of its weights."""
    if model is None:
        if run is None:
            raise ValueError("evaluate takes the folder of a run, or --model with --task")
        return trained(run, task, device)
    if task is None:
        raise ValueError("--model goes with --task: say on which prompts to evaluate it")
    spec = Spec.parse("task", task, TASKS)
    chosen = moved(spec.build(TASKS), device)
    if model.partition(":")[0] not in MODELS:
        return Subject(own_learner(model, chosen, run, device=device), chosen, spec, model)
    made = Spec.parse("model", model, MODELS).build(MODELS, chosen, torch.Generator())
    made = made.to(device, dtype_of(chosen))
    if run is None:
        raise ValueError(f"the model {model} needs weights: give a file of them before --model")
    load_weights(made, read_weights(run), run)
    return Subject(made.eval(), chosen, spec, f"weights of {run}")


def trained(run: Path, task: str | None, device: str) -> Subject:
    """The model of a run on disk or of a record, on its own task or on another."""
    saved = opened(run, device)
    own = saved.experiment.task
    spec = own if task is None else Spec.parse("task", task, TASKS, like=own)
    chosen = saved.task if task is None else moved(spec.build(TASKS), device)
    require_readable("the model", saved.task, chosen)
    return Subject(saved.model, chosen, spec, f"step {saved.step}")


def opened(run: Path, device: str) -> Run:
    """A run on disk, or a record by its name."""
    if not run.exists() and str(run) in names(records_root()):
        return Record.open(str(run), records_root()).run(device)
    return Run.open(run, device=device)
