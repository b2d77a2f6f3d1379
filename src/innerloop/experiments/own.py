"""A learner of the user's own, named `package.module:factory`."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from innerloop.algorithms import Estimator, as_learner
from innerloop.experiments.experiment import dtype_of
from innerloop.tasks import Task
from innerloop.training import load_weights, read_weights


def own_learner(
    name: str,
    task: Task,
    weights: Path | str | None = None,
    *,
    device: torch.device | str = "cpu",
) -> Any:
    """factory(task) of the named module, with weights from a safetensors file if one is given.

    An estimator of scikit-learn becomes a learner that fits a copy of it to every prompt.
    The module is looked for as Python does, and in the present folder. The file's tensors have the
    names of the model's state dict.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute.isidentifier():
        raise ValueError(f"a model of your own is named package.module:factory, got {name!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's own code raises
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"cannot import {module_name} of {name!r}: {reason}") from error
    if not hasattr(module, attribute):
        raise ValueError(f"the module {module_name} has no {attribute}")
    factory = getattr(module, attribute)
    if not callable(factory):
        raise ValueError(f"{name} must be a function of a task, got {type(factory).__name__}")
    try:
        learner = factory(task)
    except Exception as error:
        raise ValueError(f"{name} fails with {type(error).__name__}: {error}") from error
    if isinstance(learner, nn.Module):
        learner = learner.to(device, dtype_of(task))
        if weights is not None:
            load_weights(learner, read_weights(weights), Path(weights))
        return learner.eval()
    if weights is not None:
        raise ValueError(
            f"weights can be loaded into an nn.Module, {name} gives a {type(learner).__name__}"
        )
    if isinstance(learner, Estimator):
        return as_learner(learner)
    if not callable(learner):
        raise ValueError(
            f"{name} must give a learner, called with a prompt; got a {type(learner).__name__}"
        )
    return learner
