"""Descent by linear attention: Lemma 2 of Ahn et al. (2023), and GD++ of von Oswald et al. (2022).

Linear attention multiplies as it is, so that these are exact, and there are no constants to choose.
"""

from __future__ import annotations

import torch

from innerloop.compiled.gradient_descent import require_decay, require_sizes
from innerloop.models import GDPlusPlusWeights, GradientDescentWeights, LinearAttention


def linear_gradient_descent(
    d: int, *, loops: int, step_size: float, dtype: torch.dtype = torch.float64
) -> LinearAttention:
    """One layer, looped: w <- w - step_size grad R(w), with A = step_size I in Ahn 2023, Eq. 9."""
    require_sizes(d=d, loops=loops)
    require_decay(step_size, 0.0)
    step = step_size * torch.eye(d, dtype=dtype)
    return LinearAttention(GradientDescentWeights(step[None]), loops)


def linear_gd_plus_plus(
    d: int,
    *,
    loops: int,
    step_size: float,
    transform: float,
    dtype: torch.dtype = torch.float64,
) -> LinearAttention:
    """One layer, looped: a step of size `step_size`, and x <- x - transform step_size S x."""
    require_sizes(d=d, loops=loops)
    require_decay(step_size, 0.0)
    unit = torch.eye(d, dtype=dtype)[None]
    return LinearAttention(GDPlusPlusWeights(step_size * unit, transform * unit), loops)
