"""Objectives, optimizers and schedules by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from innerloop.memory import FLOAT64, require_memory
from innerloop.tasks import Task
from innerloop.tasks.checks import require_at_least
from innerloop.training import Exact, Objective, Prompts, Schedule, Wishart, cosine, warmup

Parameters = Iterable[nn.Parameter]


def exact(task: Task) -> Exact:
    """the expected loss itself, where it is known"""
    return Exact(task)


def wishart(task: Task, *, batch: int = 1000) -> Wishart:
    """sampled Gram matrices; query and, where possible, labels integrated out"""
    require_at_least("batch", batch, 1)
    require_memory(f"{batch} Gram matrices", 6 * FLOAT64 * batch * (task.d + 1) ** 2)
    return Wishart(task, batch)


def prompts(task: Task, *, batch: int = 1000) -> Prompts:
    """fresh prompts in every step; for any model and task"""
    require_at_least("batch", batch, 1)
    require_memory(f"{batch} prompts", 3 * FLOAT64 * batch * (task.n + 1) * (task.d + 1))
    return Prompts(task, batch)


def adam(parameters: Parameters, *, lr: float = 0.01) -> torch.optim.Optimizer:
    """Adam"""
    return torch.optim.Adam(parameters, lr=_rate(lr))


def adamw(
    parameters: Parameters, *, lr: float = 0.01, weight_decay: float = 0.01
) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay"""
    return torch.optim.AdamW(parameters, lr=_rate(lr), weight_decay=weight_decay)


def sgd(
    parameters: Parameters, *, lr: float = 0.01, momentum: float = 0.0
) -> torch.optim.Optimizer:
    """gradient descent, with momentum if asked"""
    return torch.optim.SGD(parameters, lr=_rate(lr), momentum=momentum)


def constant(steps: int) -> Schedule:
    """the learning rate as it is"""
    return lambda step: 1.0


def half_cosine(steps: int, *, floor: float = 0.01) -> Schedule:
    """half a cosine from the learning rate down to `floor` times it"""
    return cosine(steps, floor=floor)


def warm_up(steps: int, *, over: int = 100) -> Schedule:
    """up from 0 within `over` steps, then constant"""
    return warmup(over)


OBJECTIVES: dict[str, Callable[..., Objective]] = {
    "exact": exact,
    "wishart": wishart,
    "prompts": prompts,
}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": adam,
    "adamw": adamw,
    "sgd": sgd,
}
SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": constant,
    "cosine": half_cosine,
    "warm-up": warm_up,
}


def _rate(lr: float) -> float:
    if not lr > 0:
        raise ValueError(f"lr must be positive, got {lr}")
    return lr
