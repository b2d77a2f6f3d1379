"""Where labels come from: distributions over functions, a fresh one for every prompt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, relu

from innerloop.tasks.checks import require_at_least, require_covariance
from innerloop.tasks.covariates import normal, square_root
from innerloop.tasks.representation import LeakyNetwork

DEEPEST_TREE = 16
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
class PooledLinearFunctions:
    """<w, x> with w one of the rows of `pool`, all equally likely: a finite number of tasks.

    A learner may then recognise the task instead of learning it (Raventos et al. 2023).
    """

    pool: Float[Tensor, "tasks d"]

    def __post_init__(self) -> None:
        if self.pool.ndim != 2 or self.pool.numel() == 0:
            raise ValueError(f"pool must have shape [tasks, d], got {list(self.pool.shape)}")

    @property
    def d(self) -> int:
        return self.pool.shape[1]

    def draw(self, batch: int, *, generator: torch.Generator) -> Function:
        chosen = torch.randint(
            len(self.pool), (batch,), generator=generator, device=generator.device
        )
        return linear(self.pool[chosen])


@dataclass(frozen=True)
class ReluNetworkFunctions:
    """sqrt(2 / hidden) sum_j a_j max(0, <w_j, x>), all a_j and entries of w_j from N(0, 1).

    Two-layer networks of Garg 2022, section 3.3, scaled so that E f(x)^2 = d for x ~ N(0, I).
    """

    d: int
    hidden: int = 100
    dtype: torch.dtype = torch.float64

    def __post_init__(self) -> None:
        require_at_least("d", self.d, 1)
        require_at_least("hidden", self.hidden, 1)

    def draw(self, batch: int, *, generator: torch.Generator) -> Function:
        inner = normal(generator, batch, self.d, self.hidden, dtype=self.dtype)
        outer = normal(generator, batch, self.hidden, 1, dtype=self.dtype)
        scale = (2 / self.hidden) ** 0.5
        return lambda x: scale * (relu(x @ inner) @ outer).squeeze(-1)


@dataclass(frozen=True)
class TreeFunctions:
    """A full binary tree: each node asks for the sign of a random coordinate, leaves are N(0, 1).

    Decision trees of Garg 2022, section 3.3, which have a depth of 4.
    """

    d: int
    depth: int = 4
    dtype: torch.dtype = torch.float64

    def __post_init__(self) -> None:
        require_at_least("d", self.d, 1)
        require_at_least("depth", self.depth, 1)
        if self.depth > DEEPEST_TREE:
            raise ValueError(f"depth must be at most {DEEPEST_TREE}, got {self.depth}")

    def draw(self, batch: int, *, generator: torch.Generator) -> Function:
        device, nodes = generator.device, 2**self.depth - 1
        asked = torch.randint(self.d, (batch, nodes), generator=generator, device=device)
        leaves = normal(generator, batch, nodes + 1, dtype=self.dtype)

        def function(x: Tensor) -> Tensor:
            signs = x.expand(batch, -1, -1) > 0
            node = torch.zeros(signs.shape[:2], dtype=torch.long, device=device)
            for _ in range(self.depth):
                coordinate = asked.gather(1, node)
                right = signs.gather(2, coordinate.unsqueeze(2)).squeeze(2)
                node = 2 * node + 1 + right  # children of i are 2i + 1 and 2i + 2
            return leaves.gather(1, node - nodes)

        return function


@dataclass(frozen=True)
class RepresentedFunctions:
    """<a, phi(x)> with a ~ N(0, I): linear regression on a representation that all prompts share.

    Gao 2024, section 3.1; Yang 2024 has a dictionary in its place.
    """

    representation: LeakyNetwork

    @property
    def d(self) -> int:
        return self.representation.d

    def draw(self, batch: int, *, generator: torch.Generator) -> Function:
        phi = self.representation
        weights = linear(normal(generator, batch, phi.outputs, dtype=phi.weights[0].dtype))
        return lambda x: weights(phi(x))


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
