"""The error of the trained single layer on prompts from any joint distribution of (x, y).

The layer predicts x_q^T A m with m = (1/M) sum_i y_i x_i (Zhang 2023, Eq. 4.3); trained on prompts
of N examples its preconditioner is A = Gamma^-1, `one_step_preconditioner(covariance, N)`. Whatever
the labels are, linear or not, the error depends on them through four moments only, because m is a
mean of M independent copies of y x and is independent of the query.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from scipy.special import roots_hermitenorm
from torch import Tensor

from innerloop.theory.checks import (
    TooLargeError,
    cholesky,
    require_count,
    require_covariance,
    require_length,
    require_noise,
    require_prior,
    require_room,
    require_tensor,
)

LabelFunction = Callable[[Tensor], Tensor]
"""From covariates [points, d] to labels [points]."""
PairSampler = Callable[[int, torch.Generator], tuple[Tensor, Tensor]]
"""From a count and a generator to covariates [count, d] and labels [count]."""


@dataclass(frozen=True)
class JointMoments:
    """What the prediction error needs to know of the distribution of (x, y)."""

    second: Float[Tensor, "*batch d d"]
    """E x x^T."""
    cross: Float[Tensor, "*batch d"]
    """E x y."""
    spread: Float[Tensor, "*batch d d"]
    """Cov(x y), the Sigma of Zhang 2023, Eq. 4.5."""
    label_power: Float[Tensor, "*batch"]
    """E y^2. Zhang 2023, Theorem 4.2, needs it to be finite but does not list it."""

    def __post_init__(self) -> None:
        require_tensor("cross", self.cross, (None,), batched=True)
        *batch, d = self.cross.shape
        for name, moment in (("second", self.second), ("spread", self.spread)):
            require_tensor(name, moment, (*batch, d, d), like=self.cross)
        require_tensor("label_power", self.label_power, tuple(batch), like=self.cross)

    @classmethod
    def linear(cls, covariance: Float[Tensor, "d d"], weight: Float[Tensor, " d"]) -> JointMoments:
        """y = <w, x> with x ~ N(0, Lambda): Cov(x y) = (w^T Lambda w) Lambda + Lambda w w^T Lambda.

        Zhang 2023, below Theorem 4.2.
        """
        d = require_covariance("covariance", covariance, definite=False)
        require_tensor("weight", weight, (d,), like=covariance)
        cross = covariance @ weight
        power = weight @ cross
        return cls(covariance, cross, power * covariance + torch.outer(cross, cross), power)

    @classmethod
    def of_function(
        cls,
        function: LabelFunction,
        covariance: Float[Tensor, "d d"],
        *,
        degree: int = 3,
        limit: int = 2_000_000,
    ) -> JointMoments:
        """y = function(x) with x ~ N(0, covariance), by Gauss-Hermite quadrature.

        Exact for polynomials of total degree up to `degree`: the largest integrand is y^2 x x^T, of
        degree 2 degree + 2, and K nodes in every direction are exact to degree 2 K - 1. For other
        smooth functions a larger degree is more precise.
        """
        d, limit = require_covariance("covariance", covariance), require_count("limit", limit)
        count = require_count("degree", degree, least=0) + 2
        if d > limit.bit_length() or count > limit or count**d > limit:
            raise TooLargeError(
                f"quadrature of degree {degree} in d = {d} dimensions takes {count}^{d} "
                f"points, and at most {limit} are allowed. Sample instead: "
                "SampledMoments.draw(gaussian_pairs(covariance, function), ...)"
            )
        nodes, weights = (torch.as_tensor(v).to(covariance) for v in roots_hermitenorm(count))
        z = torch.cartesian_prod(*[nodes] * d).view(-1, d)
        mass = torch.cartesian_prod(*[weights / weights.sum()] * d).view(-1, d).prod(-1)
        x = z @ torch.linalg.cholesky(covariance).mT
        return cls._from_raw(*_raw_moments(x, _labels(function, x), mass))

    def with_noise(self, noise_std: float) -> JointMoments:
        """The same labels with independent noise of this standard deviation added to all of them.

        Cov(x y) grows by noise_std^2 E x x^T. The query's label carries noise too: Theorem 4.2
        draws it from the same distribution as the others.
        """
        require_noise(noise_std)
        return JointMoments(
            self.second,
            self.cross,
            self.spread + noise_std**2 * self.second,
            self.label_power + noise_std**2,
        )

    @classmethod
    def _from_raw(
        cls, second: Tensor, cross: Tensor, fourth: Tensor, power: Tensor
    ) -> JointMoments:
        """From means of x x^T, x y, y^2 x x^T and y^2."""
        return cls(second, cross, fourth - cross.unsqueeze(-1) * cross.unsqueeze(-2), power)


def _labels(function: LabelFunction, x: Tensor) -> Tensor:
    """One label for each point; [points, 1] would be broadcast into all pairs of points."""
    y = function(x)
    require_tensor("the value of function", y, (len(x),), like=x)
    return y


def _raw_moments(x: Tensor, y: Tensor, mass: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weighted sums of x x^T, x y, y^2 x x^T and y^2."""
    return (
        torch.einsum("p,pi,pj->ij", mass, x, x),
        torch.einsum("p,pi->i", mass * y, x),
        torch.einsum("p,pi,pj->ij", mass * y**2, x, x),
        (mass * y**2).sum(),
    )


def gaussian_pairs(
    covariance: Float[Tensor, "d d"], function: LabelFunction, noise_std: float = 0.0
) -> PairSampler:
    """Samples x ~ N(0, covariance) and y = function(x) + noise_std N(0, 1)."""
    require_noise(noise_std)
    require_covariance("covariance", covariance)
    root = cholesky("covariance", covariance)

    def sample(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        count = require_count("count", count)
        require_room(f"{count} pairs", count * (len(root) + 1))
        z = torch.randn(count, len(root) + 1, generator=generator, dtype=root.dtype)
        x = z[:, :-1] @ root.mT
        return x, _labels(function, x) + noise_std * z[:, -1]

    return sample


@dataclass(frozen=True)
class SampledMoments:
    """Moments from samples, kept so that whatever is computed from them has a standard error."""

    pooled: JointMoments
    """From all samples."""
    left_out: JointMoments
    """From all samples but one group, for every group in turn: [groups, ...]."""

    @classmethod
    def draw(
        cls, sampler: PairSampler, samples: int, *, generator: torch.Generator, groups: int = 50
    ) -> SampledMoments:
        """Moments of `samples` pairs (rounded down to equal groups), drawn one group at a time."""
        samples, groups = require_count("samples", samples), require_count("groups", groups)
        if groups < 2 or samples < groups:
            raise ValueError(
                "groups must be at least 2 and samples at least as many as groups, "
                f"got {groups} groups and {samples} samples"
            )
        size = samples // groups
        require_room(f"a group of {size} samples", size)
        drawn = []
        for _ in range(groups):
            x, y = sampler(size, generator)
            require_tensor("the labels of sampler", y, (size,))
            require_tensor("the covariates of sampler", x, (size, None), like=y)
            drawn.append(_raw_moments(x, y, torch.full_like(y, 1 / size)))
        raw = [torch.stack(moment) for moment in zip(*drawn, strict=True)]
        pooled = [moment.mean(0) for moment in raw]
        left_out = [
            (groups * mean - moment) / (groups - 1)
            for mean, moment in zip(pooled, raw, strict=True)
        ]
        return cls(JointMoments._from_raw(*pooled), JointMoments._from_raw(*left_out))

    def estimate(self, function: Callable[[JointMoments], Tensor]) -> tuple[float, float]:
        """The value of a function of the moments and its standard error, by the grouped jackknife.

        se^2 = (G - 1)/G sum_g (f_g - mean f)^2, f_g being the value without group g.
        """
        without = function(self.left_out)
        groups = len(without)
        variance = (groups - 1) / groups * (without - without.mean()).square().sum()
        return function(self.pooled).item(), variance.sqrt().item()


def prediction_error(
    preconditioner: Float[Tensor, "d d"], moments: JointMoments, length: int | float
) -> Float[Tensor, "*batch"]:
    """E (x_q^T A m - y_q)^2 on prompts of `length` examples, (x_q, y_q) being one more of them.

        E y^2 - 2 c^T A c + tr(A^T E[x x^T] A (Cov(x y) / M + c c^T)),     c = E x y

    for any A, also one that is not symmetric; M may be math.inf. Differentiable in A.
    """
    require_length(length)
    d = moments.cross.shape[-1]
    require_tensor("preconditioner", preconditioner, (d, d), like=moments.cross)
    a, c = preconditioner, moments.cross
    seen = moments.spread / length + c.unsqueeze(-1) * c.unsqueeze(-2)
    power = torch.einsum("...ij,...ji->...", a.mT @ moments.second @ a, seen)
    return moments.label_power - 2 * torch.einsum("...i,ij,...j->...", c, a, c) + power


@dataclass(frozen=True)
class ErrorParts:
    """The three terms of Zhang 2023, Theorem 4.2, Eq. 4.6."""

    best_linear: float
    """min_w E (<w, x> - y)^2: what no linear predictor can avoid."""
    variance: float
    """(1/M) tr(Cov(x y) A^T E[x x^T] A): from the finite test prompt."""
    bias: float
    """|A c - a|^2 in the norm of E x x^T, a = E[x x^T]^-1 c: from the finite training prompts.
    For A = Gamma^-1 it is of order 1/N^2."""

    @property
    def total(self) -> float:
        return self.best_linear + self.variance + self.bias


def error_parts(
    preconditioner: Float[Tensor, "d d"], moments: JointMoments, length: int | float
) -> ErrorParts:
    """`prediction_error` taken apart: best linear predictor, variance and bias; one batch only."""
    require_tensor("moments.cross", moments.cross, (None,))
    require_covariance("moments.second", moments.second)
    return _parts(
        preconditioner,
        moments.second,
        torch.outer(moments.cross, moments.cross),
        moments.spread,
        moments.label_power,
        length,
    )


def mean_error_parts(
    preconditioner: Float[Tensor, "d d"],
    covariance: Float[Tensor, "d d"],
    length: int | float,
    prior: Float[Tensor, "d d"] | None = None,
    noise_std: float = 0.0,
) -> ErrorParts:
    """The parts for y = <w, x> + noise, averaged over w ~ N(0, Omega); None is the identity.

    The error is linear in E y^2, c c^T and Cov(x y), whose means over w are tr(Lambda Omega) +
    noise_std^2, Lambda Omega Lambda, and the former times Lambda plus the latter.
    """
    require_noise(noise_std)
    require_covariance("covariance", covariance)
    require_prior(prior, covariance)
    omega = torch.eye(len(covariance)).to(covariance) if prior is None else prior
    outer = covariance @ omega @ covariance
    power = (covariance @ omega).trace() + noise_std**2
    return _parts(preconditioner, covariance, outer, power * covariance + outer, power, length)


def _parts(
    a: Tensor, second: Tensor, outer: Tensor, spread: Tensor, power: Tensor, length: int | float
) -> ErrorParts:
    """`outer` is c c^T, or its mean over tasks."""
    require_length(length)
    require_tensor("preconditioner", a, tuple(second.shape), like=second)
    inverse = torch.linalg.inv(second)
    off = a - inverse
    return ErrorParts(
        best_linear=(power - (inverse @ outer).trace()).item(),
        variance=((spread @ a.mT @ second @ a).trace() / length).item(),
        bias=(off.mT @ second @ off @ outer).trace().item(),
    )
