"""Covariances, tolerances and wrong versions of Gamma that the claims share.

The paper has no numbers for its theory: sizes and spectra are ours. Covariances are rotated, so
that no formula holds because matrices are diagonal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from typing import NamedTuple, TypeVar

import torch
from scipy.special import roots_laguerre
from torch import Tensor

from innerloop.papers.common import DTYPE, normal, rotated
from innerloop.papers.quantity import Cases, Measured, Quantity, Tolerance, at_most
from innerloop.papers.verdict import Check

SPECTRA = {1: [0.7], 2: [1.5, 0.4], 3: [1.5, 0.8, 0.4], 5: [1.5, 1.0, 0.8, 0.4, 0.2]}
"""Of Lambda, by dimension."""
LIMIT = at_most(
    1e-6,
    "the integrator may err by 1e-10 in each of about a thousand steps, and stops at a gradient of "
    "1e-10 where the smallest curvature is above 0.01",
)
LOWEST = at_most(1e-8, "the loss is quadratic around a minimum, found to 1e-6 or better")
T = TypeVar("T")
GammaOf = Callable[[Tensor, float], Tensor]
"""From Lambda and N to Gamma, right or wrong."""


class Mixture(NamedTuple):
    """A law of covariances: these, with these probabilities."""

    covariances: Tensor
    probabilities: Tensor

    @property
    def d(self) -> int:
        return self.covariances.shape[-1]

    def mean(self, of: Callable[[Tensor], Tensor]) -> Tensor:
        """The expectation of a function of the covariance."""
        parts = [p * of(c) for p, c in zip(self.probabilities, self.covariances, strict=True)]
        return torch.stack(parts).sum(0)

    def averaged(self) -> Mixture:
        """Every prompt has the mean covariance: the near miss of a random one."""
        return only(self.mean(lambda c: c))


def only(covariance: Tensor) -> Mixture:
    return Mixture(covariance.unsqueeze(0), torch.ones(1, dtype=DTYPE))


@cache
def fixed(d: int) -> Mixture:
    """One covariance, which is not diagonal."""
    return only(rotated(SPECTRA[d], seed=0))


@cache
def exponential(means: tuple[float, ...]) -> Mixture:
    """Independent diagonal entries with the moments of exponential ones up to the third.

    Two nodes of Gauss-Laguerre quadrature for each. The expected loss is cubic in Lambda, so it is
    that of exponential entries, exactly.
    """
    return two_point(means, *(torch.as_tensor(values) for values in roots_laguerre(2)))


@cache
def nearly_fixed(means: tuple[float, ...]) -> Mixture:
    """Independent diagonal entries that differ by 1 % from their means: bounds are tight here."""
    values = torch.tensor([0.99, 1.01], dtype=DTYPE)
    return two_point(means, values, torch.full((2,), 0.5, dtype=DTYPE))


def two_point(means: tuple[float, ...], values: Tensor, weights: Tensor) -> Mixture:
    grid = [list(point) for point in product(range(2), repeat=len(means))]
    entries = torch.stack([values[point] for point in grid]) * torch.tensor(means, dtype=DTYPE)
    return Mixture(torch.diag_embed(entries), torch.stack([weights[p].prod() for p in grid]))


@cache
def dependent() -> Mixture:
    """Diagonal covariances whose entries depend on each other."""
    entries = torch.tensor([[1.5, 0.3], [0.4, 1.2], [2.0, 1.6]], dtype=DTYPE)
    return Mixture(torch.diag_embed(entries), torch.tensor([0.5, 0.3, 0.2], dtype=DTYPE))


@cache
def crossing(d: int) -> Mixture:
    """Covariances that do not commute."""
    spectra = [[1.5, 0.8, 0.4], [2.0, 0.3, 0.6], [0.7, 1.1, 0.2]]
    covariances = torch.stack([rotated(s[:d], seed) for seed, s in enumerate(spectra)])
    return Mixture(covariances, torch.tensor([0.5, 0.3, 0.2], dtype=DTYPE))


def gamma(covariance: Tensor, n: float) -> Tensor:
    """Gamma = (1 + 1/N) Lambda + tr(Lambda)/N I of Theorem 4.1."""
    identity = torch.eye(len(covariance), dtype=DTYPE)
    return (1 + 1 / n) * covariance + covariance.trace() / n * identity


def gammas() -> dict[str, GammaOf]:
    """Gamma as printed, and near misses."""

    def without_trace(covariance: Tensor, n: float) -> Tensor:
        return (1 + 1 / n) * covariance

    def without_second(covariance: Tensor, n: float) -> Tensor:
        return covariance + covariance.trace() / n * torch.eye(len(covariance), dtype=DTYPE)

    return {
        "Gamma as printed": gamma,
        "Gamma without tr(Lambda)/N": without_trace,
        "Gamma without Lambda/N": without_second,
        "N + 1 for N": lambda covariance, n: gamma(covariance, n + 1),
    }


def checked(
    name: str, tolerance: Tolerance, cases: Mapping[str, T], measure: Callable[[T], Measured]
) -> list[Check]:
    """One quantity of several cases: the first must pass, and every other one must not."""
    return against_the_rest(Quantity(name, measure, tolerance).of(cases))


def checked_gammas(
    name: str,
    tolerance: Tolerance,
    measure: Callable[[GammaOf], float],
    others: Mapping[str, float] | None = None,
) -> list[Check]:
    """The same of Gamma and its near misses; other wrong cases are measured already."""
    values = {case: measure(g) for case, g in gammas().items()}
    return against_the_rest(Cases(name, tolerance, values | dict(others or {})))


def against_the_rest(cases: Cases) -> list[Check]:
    first, *others = cases
    return [cases.check(first, unlike=other) for other in others]


def random_weights(d: int, seed: int) -> tuple[Tensor, Tensor]:
    """(U, v) with normal entries."""
    values = normal(seed, d * d + 1)
    return values[1:].view(d, d), values[0]
