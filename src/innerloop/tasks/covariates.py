"""Where covariates come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.tasks.checks import require_at_least, require_covariance, require_positive


@runtime_checkable
class Covariates(Protocol):
    """A distribution of covariates."""

    @property
    def d(self) -> int: ...

    def draw(
        self, batch: int, count: int, *, generator: torch.Generator
    ) -> Float[Tensor, "#batch count d"]:
        """`count` covariates for every prompt."""
        ...


@dataclass(frozen=True)
class GaussianCovariates:
    """x ~ N(0, covariance), independent. A singular covariance leaves directions without x."""

    covariance: Float[Tensor, "d d"]

    def __post_init__(self) -> None:
        require_covariance("covariance", self.covariance, singular=True)

    @property
    def d(self) -> int:
        return len(self.covariance)

    def draw(self, batch: int, count: int, *, generator: torch.Generator) -> Tensor:
        root = square_root(self.covariance)
        return normal(generator, batch, count, self.d, dtype=root.dtype) @ root.mT


Law = Callable[[int, torch.Generator], Tensor]
"""From a batch and a generator to positive factors [batch, d]."""


@dataclass(frozen=True)
class ScaledCovariates:
    """A covariance of its own for every prompt: coordinate i of all its x is times sqrt(scale_i).

    With covariates from N(0, I) and independent scales, this is Zhang 2023, section 4.3.
    """

    covariates: Covariates
    law: Law

    @property
    def d(self) -> int:
        return self.covariates.d

    def draw(self, batch: int, count: int, *, generator: torch.Generator) -> Tensor:
        x = self.covariates.draw(batch, count, generator=generator)
        scales = self.law(batch, generator)
        if list(scales.shape) != [batch, self.d] or not (scales > 0).all():
            raise ValueError(
                f"law must give positive scales of shape {[batch, self.d]}, got shape "
                f"{list(scales.shape)} with smallest value {scales.min().item():.3g}"
            )
        return x * scales.sqrt().unsqueeze(1).to(x)


@dataclass(frozen=True)
class FirstCoordinates:
    """The same covariates with all coordinates after the first `active` set to 0.

    A curriculum over dimensions begins with few (Garg et al. 2022).
    """

    covariates: Covariates
    active: int

    def __post_init__(self) -> None:
        if not 1 <= self.active <= self.covariates.d:
            raise ValueError(
                f"active must be between 1 and d = {self.covariates.d}, got {self.active}"
            )

    @property
    def d(self) -> int:
        return self.covariates.d

    def draw(self, batch: int, count: int, *, generator: torch.Generator) -> Tensor:
        x = self.covariates.draw(batch, count, generator=generator)
        return torch.cat([x[..., : self.active], torch.zeros_like(x[..., self.active :])], dim=-1)


@dataclass(frozen=True)
class Exponential:
    """A law of independent exponential scales: Zhang 2023, section 4.3, and its Figure 1."""

    d: int
    mean: float = 1.0

    def __post_init__(self) -> None:
        require_at_least("d", self.d, 1)
        require_positive("mean", self.mean)

    def __call__(self, batch: int, generator: torch.Generator) -> Float[Tensor, "batch d"]:
        uniform = torch.rand(
            batch, self.d, generator=generator, dtype=torch.float64, device=generator.device
        )
        # Uniform numbers reach 0, and a scale of exactly 0 would be no covariance.
        return -self.mean * torch.log1p(-uniform).clamp_max(-1e-300)


def normal(
    generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "..."]:
    """Standard normal numbers, on the generator's device."""
    return torch.randn(shape, generator=generator, dtype=dtype, device=generator.device)


def square_root(matrix: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """R with R R^T = matrix: Cholesky's, or the symmetric one where that does not exist."""
    root, failed = torch.linalg.cholesky_ex(matrix)
    if not failed:
        return root
    values, vectors = torch.linalg.eigh(matrix)
    return vectors * values.clamp_min(0).sqrt() @ vectors.mT


def spelled(matrix: Float[Tensor, "d d"]) -> str:
    """A covariance in a few words: I, a multiple of it, a diagonal, or rotated eigenvalues."""
    diagonal = matrix.diagonal()
    if torch.equal(matrix, torch.diag(diagonal)):
        if (diagonal == diagonal[0]).all():
            return "I" if diagonal[0] == 1 else f"{diagonal[0]:g} I"
        return f"diag({_listed(diagonal)})"
    return f"U diag({_listed(torch.linalg.eigvalsh(matrix).flip(0))}) U^T"


def _listed(values: Float[Tensor, " d"]) -> str:
    """At most six of them."""
    words = [f"{value:.4g}" for value in values.tolist()]
    return ", ".join(words if len(words) <= 6 else [*words[:3], "...", *words[-2:]])
