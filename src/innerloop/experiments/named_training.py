"""Objectives, optimizers, schedules and curricula by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from innerloop.memory import FLOAT64, require_memory
from innerloop.models.blocks import Block
from innerloop.tasks import Task, narrowed
from innerloop.tasks.checks import require_at_least
from innerloop.training import (
    EveryPosition,
    Exact,
    LoopWindow,
    MuonAdam,
    Objective,
    Prompts,
    Schedule,
    Wishart,
    cosine,
    warmup,
    warmup_stable_decay,
)


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
    _require_batch(task, batch)
    return Prompts(task, batch)


def positions(task: Task, *, batch: int = 64) -> EveryPosition:
    """fresh prompts, every example predicted from those before it (Garg 2022)"""
    _require_batch(task, batch)
    return EveryPosition(task, batch)


def window(
    task: Task, *, batch: int = 64, loops: int = 8, window: int = 6, truncate: bool = True
) -> LoopWindow:
    """the same, averaged over the last `window` loop counts of a looped model (Gao 2024, Eq. 6)"""
    _require_batch(task, batch)
    return LoopWindow(task, batch, loops, window, truncate)


def adam(model: nn.Module, *, lr: float = 0.01) -> torch.optim.Optimizer:
    """Adam"""
    return torch.optim.Adam(model.parameters(), lr=_rate(lr))


def adamw(
    model: nn.Module, *, lr: float = 0.01, weight_decay: float = 0.01
) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay"""
    return torch.optim.AdamW(model.parameters(), lr=_rate(lr), weight_decay=weight_decay)


def sgd(model: nn.Module, *, lr: float = 0.01, momentum: float = 0.0) -> torch.optim.Optimizer:
    """gradient descent, with momentum if asked"""
    return torch.optim.SGD(model.parameters(), lr=_rate(lr), momentum=momentum)


def muon(
    model: nn.Module, *, lr: float = 0.02, adam_lr: float = 0.002, momentum: float = 0.95
) -> torch.optim.Optimizer:
    """Muon for the matrices of a transformer's layers, Adam for all other weights"""
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    inside = {id(p) for block in blocks for p in block.parameters() if p.ndim == 2}
    if not inside:
        raise ValueError(
            f"muon is for transformers, and {type(model).__name__} has no such layers; use adam"
        )
    return MuonAdam(
        model.parameters(),
        _rate(lr),
        adam_lr=_rate(adam_lr),
        momentum=momentum,
        matrix=lambda parameter: id(parameter) in inside,
    )


def constant(steps: int) -> Schedule:
    """the learning rate as it is"""
    return lambda step: 1.0


def half_cosine(steps: int, *, floor: float = 0.01) -> Schedule:
    """half a cosine from the learning rate down to `floor` times it"""
    return cosine(steps, floor=floor)


def warm_up(steps: int, *, over: int = 100) -> Schedule:
    """up from 0 within `over` steps, then constant"""
    return warmup(over)


def stable_decay(steps: int, *, warm: float = 0.02, decay: float = 0.3) -> Schedule:
    """up, constant, and linearly to 0 over the last share `decay` of the steps"""
    return warmup_stable_decay(steps, warm=warm, decay=decay)


@dataclass(frozen=True)
class Stage:
    """What a curriculum trains on at one step."""

    task: Task
    loops: int | None = None
    """The most loops of a looped model; None is all of the objective's."""


def none(task: Task) -> Callable[[int], Stage]:
    """the task as it is, from the first step"""
    return lambda step: Stage(task)


def grow(
    task: Task,
    *,
    dims: int = 5,
    points: int | None = None,
    loops: int | None = None,
    every: int = 100,
) -> Callable[[int], Stage]:
    """`dims` coordinates, `points` examples and `loops` first; 1, 2, 2 more `every` some steps"""
    for name, value in (("dims", dims), ("points", points), ("loops", loops), ("every", every)):
        if value is not None:
            require_at_least(name, value, 1)

    def at(step: int) -> Stage:
        grown = step // every
        examples = task.n if points is None else min(task.n, points + 2 * grown)
        return Stage(
            narrowed(task, min(task.d, dims + grown), examples),
            None if loops is None else loops + 2 * grown,
        )

    at(0)  # refused now, if it cannot be narrowed
    return at


OBJECTIVES: dict[str, Callable[..., Objective]] = {
    "exact": exact,
    "wishart": wishart,
    "prompts": prompts,
    "positions": positions,
    "window": window,
}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": adam,
    "adamw": adamw,
    "sgd": sgd,
    "muon": muon,
}
SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": constant,
    "cosine": half_cosine,
    "warm-up": warm_up,
    "stable-decay": stable_decay,
}
CURRICULA: dict[str, Callable[..., Callable[[int], Stage]]] = {
    "none": none,
    "grow": grow,
}
"""From the task to a function of the step: what is trained on there."""


def _require_batch(task: Task, batch: int) -> None:
    require_at_least("batch", batch, 1)
    require_memory(f"{batch} prompts", 3 * FLOAT64 * batch * (task.n + 1) * (task.d + 1))


def _rate(lr: float) -> float:
    if not lr > 0:
        raise ValueError(f"lr must be positive, got {lr}")
    return lr
