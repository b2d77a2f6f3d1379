"""Flows from balanced starts; `theory.flow.SingleLayerFlow` has the paper's constants for them."""

from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import DTYPE, generator
from innerloop.papers.verdict import Scale
from innerloop.papers.zhang2023 import settings
from innerloop.papers.zhang2023.prompts import minimum_around

TIGHT = 0.01
"""A fraction of the largest sigma where the bounds are nearly attained for d = 1."""


def direction(d: int, kind: str) -> Tensor:
    """Theta Theta^T of Assumption 3.3, of Frobenius norm 1."""
    if kind == "rank one":
        first = torch.arange(1, d + 1, dtype=DTYPE) * torch.tensor([1.0, -1.0] * d)[:d]
        return torch.outer(first, first) / (first @ first)
    return theory.flow.balanced_direction(d, generator(int(kind)))


@dataclass(frozen=True, eq=False)
class Start:
    """U(0) = sigma Theta Theta^T and v(0) = sigma, for this law of covariances and length N."""

    law: settings.Mixture
    n: int
    direction: Tensor
    fraction: float
    """Of the largest sigma that the paper allows (Theorem 4.1, Eq. A.13; Eq. 4.11, C.10)."""

    @cached_property
    def model(self) -> theory.flow.SingleLayerFlow:
        law = theory.linear.CovarianceLaw.mixture(*self.law)
        return theory.flow.SingleLayerFlow(law, self.n)

    @property
    def sigma(self) -> float:
        return self.fraction * self.model.largest_scale(self.direction)

    @property
    def rate(self) -> float:
        """mu of Eq. 5.7; nu of Eq. C.13."""
        return self.model.pl_constant(self.direction, self.sigma)

    def first_loss(self) -> float:
        """l~ at the start, in units of sigma^2 E tr(Lambda^2 Theta Theta^T)."""
        loss = self.model.loss(*self.model.start(self.direction, self.sigma))
        return float(loss / (self.sigma**2 * (self.law.square() @ self.direction).trace()))

    def minimum(self, g: settings.GammaOf) -> Tensor:
        """(p, v, U, r) of Eq. 4.1 or 4.12."""
        return minimum_around(settings.product_at_minimum(self.law, self.n, g))

    def limit(self, g: settings.GammaOf) -> Tensor:
        """(v, U) of Eq. 5.9; for diagonal covariances of Eq. C.15 with the limit C.17 of v."""
        return self.minimum(g)[self.law.d : -self.law.d]

    @cached_property
    def flow(self) -> theory.flow.Flow:
        return self.from_direction(self.direction)

    def from_direction(self, u: Tensor) -> theory.flow.Flow:
        """From U(0) = sigma u and v(0) = sigma, balanced only if |u|_F = 1."""
        return self.model.flow(self.sigma * u, torch.tensor(self.sigma, dtype=DTYPE))


def fixed_start(d: int, n: int, kind: str, fraction: float) -> Start:
    return Start(settings.fixed(d), n, direction(d, kind), fraction)


@cache
def fixed_starts(scale: Scale) -> list[Start]:
    """d, N, direction and fraction: also d = 1, N = 1 and Theta of rank one."""
    chosen = [(1, 1, "0", TIGHT), (2, 1, "rank one", 0.7), (3, 10, "3", 0.99)]
    if scale is not Scale.SMOKE:
        chosen += [(d, n, k, 0.1) for d, n in ((2, 4), (3, 1)) for k in ("rank one", "1", "2")]
        chosen += [(5, 20, k, f) for k in ("5", "rank one") for f in (0.1, 0.99)]
    return [fixed_start(*each) for each in chosen]


@cache
def random_starts(scale: Scale) -> list[Start]:
    """Independent diagonal entries, nearly fixed or with the moments of exponential ones."""
    ones, unequal = settings.exponential((1.0,) * 3), settings.exponential((1.0, 0.5, 2.0))
    nearly = torch.tensor([[[0.99]], [[1.01]]], dtype=DTYPE)
    chosen = [
        (settings.Mixture(nearly, torch.full((2,), 0.5, dtype=DTYPE)), 8, "0", TIGHT),
        (ones, 8, "7", 0.95),
        (settings.exponential((1.0, 0.5)), 1, "rank one", 0.7),
    ]
    if scale is not Scale.SMOKE:
        chosen += [(law, 8, k, 0.2) for law in (ones, unequal) for k in ("rank one", "1", "2")]
    return [Start(law, n, direction(law.d, kind), part) for law, n, kind, part in chosen]


def described(starts: list[Start]) -> dict[str, str]:
    each = ", ".join(f"({s.law.d}, {s.n}, {s.fraction:g})" for s in starts)
    return {"(d, N, sigma over the largest allowed)": each, "Theta": "random, and of rank one"}
