"""What a command looks at: a trained model, a record or a user's own learner, and its task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from innerloop.algorithms import Learner
from innerloop.experiments import MODELS, TASKS, Run, Spec, own_learner
from innerloop.experiments.compiled_models import CompiledFactory
from innerloop.experiments.experiment import dtype_of
from innerloop.experiments.kinds import require_readable
from innerloop.experiments.records import Record
from innerloop.experiments.study import records_of
from innerloop.experiments.translators import held_out, pairs_in_tokens_of
from innerloop.tasks import Task, Translation, moved
from innerloop.training import load_weights, read_weights

SIZES = ("d", "n", "dtype")
"""Options of tasks that a model was made for."""


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
    if run is None and not is_compiled(model):
        raise ValueError(
            f"the model {model} has learned nothing yet: give a run that has, a compiled model, or "
            "with evaluate a file of weights before --model"
        )
    made = Spec.parse("model", model, MODELS).build(MODELS, chosen, torch.Generator())
    made = made.to(device, dtype_of(chosen))
    if run is None:
        return Subject(made.eval(), chosen, spec, model)
    load_weights(made, read_weights(run), run)
    return Subject(made.eval(), chosen, spec, f"weights of {run}")


def is_compiled(model: str) -> bool:
    """Whether these words name a model whose weights are written, not trained."""
    return isinstance(MODELS.get(model.partition(":")[0]), CompiledFactory)


def trained(run: Path, task: str | None, device: str) -> Subject:
    """The model of a run on disk or of a record, on its own task or on another.

    A translator's own task is that of held-out pairs, and it reads any pairs in its own tokens.
    """
    saved = opened(run, device)
    own = saved.experiment.task
    if isinstance(saved.task, Translation):
        own = held_out(own)
    spec = own if task is None else Spec.parse("task", task, TASKS, like=own, kept=SIZES)
    chosen: Task = saved.task
    if isinstance(saved.task, Translation) and spec.name == own.name:
        chosen = moved(pairs_in_tokens_of(saved.task, own, spec), device)
    elif task is not None:
        chosen = moved(spec.build(TASKS), device)
    require_readable("the model", saved.task, chosen)
    return Subject(saved.model, chosen, spec, f"step {saved.step}")


def opened(run: Path, device: str) -> Run:
    """A run on disk, or a record by its name."""
    if run.exists() or run.suffix == ".safetensors":
        return Run.open(run, device=device)
    try:
        record = Record.open(str(run), records_of(str(run.parent)))
    except ValueError as error:
        raise ValueError(f"there is no checkpoint at {run}, and {error}") from error
    return record.run(device)
