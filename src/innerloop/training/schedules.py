"""How the learning rate changes along a run."""

from __future__ import annotations

import math
from collections.abc import Callable

Schedule = Callable[[int], float]
"""From the step, 0 first, to a factor on the learning rate. Stateless: resuming is exact."""


def warmup(steps: int) -> Schedule:
    """Linear from 0 to 1 over these many steps, then constant."""
    if steps < 0:
        raise ValueError(f"steps must be 0 or more to warm up over them, got {steps}")
    return lambda step: min(1.0, (step + 1) / max(steps, 1))


def cosine(steps: int, floor: float = 0.0) -> Schedule:
    """Half a cosine from 1 down to `floor` over these many steps."""
    if not 0 <= floor <= 1:
        raise ValueError(f"floor must be between 0 and 1, got {floor}")
    return lambda step: (
        floor + (1 - floor) * (1 + math.cos(math.pi * min(step / max(steps, 1), 1))) / 2
    )


def warmup_stable_decay(steps: int, *, warm: float = 0.02, decay: float = 0.3) -> Schedule:
    """Up over the first share `warm` of the steps, constant, then linearly to 0 over the last."""
    for name, share in (("warm", warm), ("decay", decay)):
        if not 0 <= share <= 1:
            raise ValueError(f"{name} must be a share of the steps between 0 and 1, got {share}")
    rise, fall = max(warm * steps, 1), max(decay * steps, 1)
    return lambda step: max(0.0, min(1.0, (step + 1) / rise, (steps - step) / fall))
