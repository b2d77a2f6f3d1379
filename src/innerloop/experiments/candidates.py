"""Candidates that are asked for: families by their names, compiled models, and models on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from innerloop.algorithms import answers
from innerloop.analysis.identification.candidates import Family, Fixed, InItsPrecision
from innerloop.analysis.identification.filtered import Filtered
from innerloop.experiments.compiled_models import PREFIX
from innerloop.experiments.experiment import Run, dtype_of
from innerloop.experiments.kinds import one_sample, require_readable
from innerloop.experiments.named_candidates import CANDIDATES, ON_REQUEST
from innerloop.experiments.named_models import MODELS
from innerloop.experiments.spec import Spec
from innerloop.tasks import Task, moved

COMPILED = {name: made for name, made in MODELS.items() if name.startswith(PREFIX)}
"""Models that no training has to finish: as candidates, nothing of them is open."""


def candidates_for(task: Task, names: Sequence[str] = ()) -> list[Family]:
    """The families of these names; without names, all that the task has what they need for.

    A name may also be a compiled model such as compiled-gd:loops=3, made for the task, or the file
    of a compiled model or folder of a run. Candidates compute in double precision, whatever the
    learner does; models on disk in their own.
    """
    exact = moved(task, "cpu", torch.float64)
    if names:
        return [_candidate(name, exact) for name in names]
    found = []
    for name, family in CANDIDATES.items():
        if name not in ON_REQUEST:
            try:
                found.append(family(exact))
            except ValueError:  # the task has no such thing: a covariance, features, a dictionary
                continue
    return found


def iterative(task: Task) -> list[Filtered]:
    """Algorithms whose every step is compared with every loop or layer of a model."""
    exact = moved(task, "cpu", torch.float64)
    names = ("preconditioned-gd", "gd", "feature-gd", "stable-gd", "newton", "fixed-newton")
    found = []
    for name in names:
        try:
            family = CANDIDATES[name](exact)
        except ValueError:  # without a covariance, or with one that is a multiple of I
            continue
        assert isinstance(family, Filtered)
        found.append(family)
    return found


def _candidate(words: str, task: Task) -> Family:
    if words.partition(":")[0] not in CANDIDATES and Path(words).exists():
        run = Run.open(words)
        require_readable(f"the candidate {words}", run.task, task)
        return _model(words, run.model, task, dtype_of(run.task))
    spec = Spec.parse("candidate", words, CANDIDATES | COMPILED)
    if spec.name in CANDIDATES:
        return spec.build(CANDIDATES, task)
    made = spec.build(COMPILED, task, torch.Generator())
    return _model(words, made.eval(), task, dtype_of(task))


def _model(words: str, model: nn.Module, task: Task, dtype: torch.dtype) -> Family:
    """A model as a candidate, refused now if it cannot read the task, such as so many examples."""
    learner = InItsPrecision(model.requires_grad_(False), dtype)
    try:
        answers(learner, one_sample(task))
    except ValueError as reason:
        raise ValueError(f"the candidate {words} does not read the task: {reason}") from reason
    return Fixed(words, learner)
