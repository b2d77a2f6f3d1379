"""Distribution shifts of linear regression: a learner trained on a task is tested on one of these.

Each wraps the task that the learner was trained on. The kinds are those of Zhang 2023, section 4.2
(after Garg 2022): a *task shift* changes how labels depend on covariates, a *query shift* the
query alone, a *covariate shift* all covariates; a random covariance is drawn anew for every prompt.

A shift that leaves the task a Gaussian linear regression returns just that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.prompt import Prompt
from innerloop.tasks.linear import LinearRegression


def with_noise(task: LinearRegression, noise_std: float) -> LinearRegression:
    """Task shift: labels of the examples carry noise of this standard deviation."""
    return replace(task, noise_std=noise_std)


def with_scaled_weights(task: LinearRegression, factor: float) -> LinearRegression:
    """Task shift: w is multiplied by the factor."""
    _require_positive("factor", factor)
    return replace(task, weight_covariance=factor**2 * task.prior)


def with_scaled_covariates(task: LinearRegression, factor: float) -> LinearRegression:
    """Covariate shift: all x, the query too, are multiplied by the factor; w is as before."""
    _require_positive("factor", factor)
    return replace(task, covariance=factor**2 * task.covariance)


def with_covariance(task: LinearRegression, covariance: Float[Tensor, "d d"]) -> LinearRegression:
    """Covariate shift: x has this covariance, w the distribution of before."""
    _require_matrix("covariance", covariance, task.d)
    return replace(task, covariance=covariance, weight_covariance=task.prior)


def with_rotated_covariates(
    task: LinearRegression, rotation: Float[Tensor, "d d"]
) -> LinearRegression:
    """Covariate shift: all x, the query too, are multiplied by a rotation; w is as before."""
    _require_matrix("rotation", rotation, task.d)
    error = (rotation @ rotation.mT - torch.eye(task.d).to(rotation)).abs().max().item()
    if error > 1e-6:
        raise ValueError(f"rotation must be orthogonal, got |R R^T - I| up to {error:.3g}")
    covariance = rotation @ task.covariance @ rotation.mT
    return with_covariance(task, (covariance + covariance.mT) / 2)


@dataclass(frozen=True)
class NonlinearLabels:
    """Task shift: labels response(<w, x>) with a response that is not the identity."""

    task: LinearRegression
    response: Callable[[Tensor], Tensor]
    """Applied to every entry of a tensor, such as torch.tanh."""

    def sample(self, batch: int, *, generator: torch.Generator) -> Prompt:
        w = self.task.sample_weights(batch, generator=generator)
        x = self.task.sample_covariates(batch, self.task.n + 1, generator=generator)
        return self.task.prompt(w, x[:, :-1], x[:, -1], self.response, generator=generator)


@dataclass(frozen=True)
class OtherQuery:
    """Query shift: x_q ~ N(0, covariance), independent of the examples."""

    task: LinearRegression
    covariance: Float[Tensor, "d d"]

    def __post_init__(self) -> None:
        _require_matrix("covariance", self.covariance, self.task.d)
        with_covariance(self.task, self.covariance)  # refuses what is not a covariance

    def sample(self, batch: int, *, generator: torch.Generator) -> Prompt:
        queries = with_covariance(self.task, self.covariance)
        w = self.task.sample_weights(batch, generator=generator)
        x = self.task.sample_covariates(batch, self.task.n, generator=generator)
        x_query = queries.sample_covariates(batch, 1, generator=generator)[:, 0]
        return self.task.prompt(w, x, x_query, generator=generator)


@dataclass(frozen=True)
class OrthogonalQuery:
    """Query shift: x_q is what the examples do not span of a fresh covariate. Needs n < d."""

    task: LinearRegression

    def __post_init__(self) -> None:
        if self.task.n >= self.task.d:
            raise ValueError(
                f"n must be below d = {self.task.d} to leave a direction that no example spans, "
                f"got {self.task.n}"
            )

    def sample(self, batch: int, *, generator: torch.Generator) -> Prompt:
        w = self.task.sample_weights(batch, generator=generator)
        x = self.task.sample_covariates(batch, self.task.n + 1, generator=generator)
        examples, query = x[:, :-1], x[:, -1:]
        basis = torch.linalg.qr(examples.mT).Q  # [batch, d, n]
        query = query - query @ basis @ basis.mT
        return self.task.prompt(w, examples, query[:, 0], generator=generator)


@dataclass(frozen=True)
class InContextQuery:
    """Query shift: the query is one of the examples, and its clean label is asked for."""

    task: LinearRegression

    def sample(self, batch: int, *, generator: torch.Generator) -> Prompt:
        w = self.task.sample_weights(batch, generator=generator)
        x = self.task.sample_covariates(batch, self.task.n, generator=generator)
        # Examples are exchangeable: the first one is as good as any.
        return self.task.prompt(w, x, x[:, 0], generator=generator)


Law = Callable[[int, torch.Generator], Tensor]
"""From a batch and a generator to positive factors [batch, d]."""


@dataclass(frozen=True)
class RandomCovariance:
    """A covariance of its own for every prompt: coordinate i of all its x is times sqrt(scale_i).

    With covariates from N(0, I) and independent scales, this is Zhang 2023, section 4.3.
    """

    task: LinearRegression
    law: Law

    def sample(self, batch: int, *, generator: torch.Generator) -> Prompt:
        w = self.task.sample_weights(batch, generator=generator)
        x = self.task.sample_covariates(batch, self.task.n + 1, generator=generator)
        scales = self.law(batch, generator)
        if list(scales.shape) != [batch, self.task.d] or not (scales > 0).all():
            raise ValueError(
                f"law must give positive scales of shape {[batch, self.task.d]}, got shape "
                f"{list(scales.shape)} with smallest value {scales.min().item():.3g}"
            )
        x = x * scales.sqrt().unsqueeze(1).to(x)
        return self.task.prompt(w, x[:, :-1], x[:, -1], generator=generator)


@dataclass(frozen=True)
class Exponential:
    """A law of independent exponential scales: Zhang 2023, section 4.3, and its Figure 1."""

    d: int
    mean: float = 1.0

    def __post_init__(self) -> None:
        _require_positive("mean", self.mean)

    def __call__(self, batch: int, generator: torch.Generator) -> Float[Tensor, "batch d"]:
        uniform = torch.rand(batch, self.d, generator=generator, dtype=torch.float64)
        # Uniform numbers reach 0, and a scale of exactly 0 would be no covariance.
        return -self.mean * torch.log1p(-uniform).clamp_max(-1e-300)


def _require_positive(name: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} must be positive and finite, got {value}")


def _require_matrix(name: str, matrix: Tensor, d: int) -> None:
    if list(matrix.shape) != [d, d]:
        raise ValueError(
            f"{name} must have shape [{d}, {d}], as the task's covariance, got {list(matrix.shape)}"
        )
