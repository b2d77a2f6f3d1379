"""Where labels come from: distributions over functions, a fresh one for every prompt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.tasks.checks import require_at_least, require_covariance
from innerloop.tasks.covariates import normal, square_root

Function = Callable[[Tensor], Tensor]
"""From covariates [#batch, points, d] to labels [batch, points], prompt by prompt."""


@runtime_checkable
class Functions(Protocol):
    """A distribution over functions of covariates."""

    @property
    def d(self) -> int:
        """The dimension of the covariates."""
        ...

    def draw(self, batch: int, *, generator: torch.Generator) -> Function:
        """One function for each prompt of a batch."""
        ...


@dataclass(frozen=True)
class LinearFunctions:
    """<w, x> with w ~ N(0, weight_covariance)."""

    weight_covariance: Float[Tensor, "d d"]

    def __post_init__(self) -> None:
        require_covariance("weight_covariance", self.weight_covariance, singular=True)

    @property
    def d(self) -> int:
        return len(self.weight_covariance)

    def draw(self, batch: int, *, generator: torch.Generator) -> Function:
        return linear(self.draw_weights(batch, generator=generator))

    def draw_weights(self, batch: int, *, generator: torch.Generator) -> Float[Tensor, "batch d"]:
        root = square_root(self.weight_covariance)
        return normal(generator, batch, len(root), dtype=root.dtype) @ root.mT


@dataclass(frozen=True)
class SparseLinearFunctions:
    """<w, x> where `nonzero` coordinates of w, chosen at random, are N(0, 1) and the others 0.

    Garg 2022, section 3.1: with few examples, the Lasso finds the coordinates that least squares
    spreads over.
    """

    d: int
    nonzero: int
    dtype: torch.dtype = torch.float64

    def __post_init__(self) -> None:
        require_at_least("d", self.d, 1)
        require_at_least("nonzero", self.nonzero, 1)
        if self.nonzero > self.d:
            raise ValueError(f"nonzero must be at most d = {self.d}, got {self.nonzero}")

    def draw(self, batch: int, *, generator: torch.Generator) -> Function:
        w = normal(generator, batch, self.d, dtype=self.dtype)
        # The places of the largest of d random numbers are a random subset.
        keys = torch.rand(batch, self.d, generator=generator, device=generator.device)
        kept = keys.topk(self.nonzero, dim=1).indices
        mask = torch.zeros_like(w).scatter_(1, kept, 1.0)
        return linear(w * mask)


@dataclass(frozen=True)
class TransformedFunctions:
    """response(f(x)) for f of other functions, such as tanh <w, x>."""

    functions: Functions
    response: Callable[[Tensor], Tensor]
    """Applied to every entry of a tensor, such as torch.tanh."""

    @property
    def d(self) -> int:
        return self.functions.d

    def draw(self, batch: int, *, generator: torch.Generator) -> Function:
        function = self.functions.draw(batch, generator=generator)
        return lambda x: self.response(function(x))


def linear(w: Float[Tensor, "batch d"]) -> Function:
    """x -> <w, x>, for a w of every prompt."""

    def function(x: Tensor) -> Tensor:
        if x.dtype != w.dtype:
            raise ValueError(
                f"covariates must have the dtype {w.dtype} of the weights, got {x.dtype}"
            )
        return (x @ w.unsqueeze(-1)).squeeze(-1)

    return function
