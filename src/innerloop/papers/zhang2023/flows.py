"""Flows from balanced starts, and the constants that the paper states for them, as printed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import DTYPE, generator
from innerloop.papers.verdict import Scale
from innerloop.papers.zhang2023.lemmas5_2_C1_C3 import coefficients, printed_loss, velocity
from innerloop.papers.zhang2023.lemmas5_3_C4 import entry_excess, printed_excess
from innerloop.papers.zhang2023.prompts import minimum_around
from innerloop.papers.zhang2023.settings import (
    GammaOf,
    Mixture,
    exponential,
    fixed,
    gamma,
    nearly_fixed,
)


def direction(d: int, kind: str) -> Tensor:
    """Theta Theta^T of Assumption 3.3, of Frobenius norm 1."""
    if kind == "rank one":
        first = torch.arange(1, d + 1, dtype=DTYPE) * torch.tensor([1.0, -1.0] * d)[:d]
        return torch.outer(first, first) / (first @ first)
    return theory.flow.balanced_direction(d, generator(int(kind)))


def operator_norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, 2))


@dataclass(frozen=True, eq=False)
class Start:
    """U(0) = sigma Theta Theta^T and v(0) = sigma, for this law of covariances and length N."""

    law: Mixture
    n: int
    direction: Tensor
    fraction: float
    """Of the largest sigma that the paper allows."""

    @property
    def d(self) -> int:
        return self.law.d

    @property
    def is_fixed(self) -> bool:
        return len(self.law.probabilities) == 1

    @property
    def seen(self) -> float:
        """|E Lambda Theta|_F^2."""
        mean = self.law.mean(lambda c: c)
        return float((mean @ self.direction @ mean).trace())

    @property
    def heavy(self) -> float:
        """E |Gamma|_op |Lambda|_F^2, or |Gamma|_op |Lambda Theta|_F^2 for a fixed covariance."""
        if self.is_fixed:
            return operator_norm(gamma(self.law.covariances[0], self.n)) * self.seen
        pairs = zip(self.law.probabilities.tolist(), self.law.covariances, strict=True)
        return sum(p * operator_norm(gamma(c, self.n)) * float(c.norm()) ** 2 for p, c in pairs)

    @property
    def largest_scale(self) -> float:
        """The bound of Theorem 4.1 and Eq. A.13; of Eq. 4.11 and C.10."""
        if self.is_fixed:
            norm = operator_norm(gamma(self.law.covariances[0], self.n))
            return math.sqrt(2 / (math.sqrt(self.d) * norm))
        return math.sqrt(2 * self.seen / (math.sqrt(self.d) * self.heavy))

    @property
    def sigma(self) -> float:
        return self.fraction * self.largest_scale

    @property
    def lowest_v(self) -> float:
        """The bound of Eq. A.14; of Eq. C.12."""
        root, sigma = math.sqrt(self.d), self.sigma
        size = operator_norm(self.law.mean(lambda c: c @ c))  # |Lambda|_op^2 if it is fixed
        room = 2 * self.seen - root * sigma**2 * self.heavy
        return math.sqrt(sigma**2 / (2 * root * size) * room)

    @property
    def rate(self) -> float:
        """mu of Eq. 5.7; nu of Eq. C.13."""
        root, sigma = math.sqrt(self.d), self.sigma
        size = operator_norm(self.law.mean(lambda c: c @ c))
        room = 2 * self.seen - root * sigma**2 * self.heavy
        if self.is_fixed:
            inverse = torch.linalg.inv(self.law.covariances[0])
            other = torch.linalg.inv(gamma(self.law.covariances[0], self.n))
            traces = float((other @ inverse).trace() * inverse.trace())
            return sigma**2 / (root * size * traces) * room
        g, _, zeta = coefficients(self.law, self.n)
        apart = zeta[~torch.eye(self.d, dtype=torch.bool)]
        eta = float(torch.cat([g, apart]).min())
        return eta * sigma**2 / (2 * root * size) * room

    def first_loss(self) -> float:
        """l~ at the start, in units of sigma^2 E tr(Lambda^2 Theta Theta^T)."""
        u, v = self.sigma * self.direction, torch.tensor(self.sigma, dtype=DTYPE)
        unit = self.sigma**2 * (self.law.mean(lambda c: c @ c) @ self.direction).trace()
        return float(printed_loss(gamma, self.law, self.n, u, v) / unit)

    def limit(self, g: GammaOf) -> Tensor:
        """(v, U) of Eq. 5.9; for diagonal covariances of Eq. C.15 with the limit C.17 of v."""
        cubic = self.law.mean(lambda c: g(c, self.n) @ c @ c)
        product = torch.linalg.solve(cubic, self.law.mean(lambda c: c @ c))
        d = self.d
        return minimum_around(product)[d : d + 1 + d * d]

    @cached_property
    def flow(self) -> theory.flow.Flow:
        return self.from_direction(self.direction)

    def from_direction(self, u: Tensor) -> theory.flow.Flow:
        """From U(0) = sigma u and v(0) = sigma, balanced only if |u|_F = 1."""
        law = theory.linear.CovarianceLaw.mixture(*self.law)
        model = theory.flow.SingleLayerFlow(law, self.n)
        return model.flow(self.sigma * u, torch.tensor(self.sigma, dtype=DTYPE))

    def gaps(self, path: Tensor) -> Tensor:
        """l~ above its minimum on a path of (v, U): Corollary A.2 or Eq. C.7."""
        u, v = path[:, 1:].view(-1, self.d, self.d), path[:, 0]
        if self.is_fixed:
            covariance = self.law.covariances[0]
            return printed_excess(gamma(covariance, self.n), covariance, u, v)
        return entry_excess(coefficients(self.law, self.n), u, v)

    def squared_gradients(self, path: Tensor) -> Tensor:
        """|grad l~|^2 on a path of (v, U): the squared velocity of Eq. 5.4 or C.1."""
        u, v = path[:, 1:].view(-1, self.d, self.d), path[:, 0]
        u_velocity, v_velocity = velocity(gamma, self.law, self.n, u, v)
        return u_velocity.square().sum((-2, -1)) + v_velocity**2


TIGHT = 0.01
"""A fraction of the largest sigma so small that the bounds are nearly attained where d = 1."""


@cache
def fixed_starts(scale: Scale) -> list[Start]:
    """d, N, direction and fraction: also d = 1, N = 1 and Theta of rank one."""
    chosen = [(1, 1, "0", TIGHT), (2, 1, "rank one", 0.7), (3, 10, "3", 0.99)]
    if scale is not Scale.SMOKE:
        chosen += [(d, n, k, 0.1) for d, n in ((2, 4), (3, 1)) for k in ("rank one", "1", "2")]
        chosen += [(5, 20, k, f) for k in ("5", "rank one") for f in (0.1, 0.99)]
    return [Start(fixed(d), n, direction(d, kind), part) for d, n, kind, part in chosen]


@cache
def random_starts(scale: Scale) -> list[Start]:
    """Independent diagonal entries, nearly fixed or with the moments of exponential ones."""
    ones, unequal = (1.0, 1.0, 1.0), (1.0, 0.5, 2.0)
    chosen = [
        (nearly_fixed((1.0,)), 8, "0", TIGHT),
        (exponential(ones), 8, "7", 0.95),
        (exponential(unequal[:2]), 1, "rank one", 0.7),
    ]
    if scale is not Scale.SMOKE:
        laws = exponential(ones), exponential(unequal)
        chosen += [(law, 8, k, 0.2) for law in laws for k in ("rank one", "1", "2")]
    return [Start(law, n, direction(law.d, kind), part) for law, n, kind, part in chosen]


def described(starts: list[Start]) -> dict[str, str]:
    each = ", ".join(f"({s.d}, {s.n}, {s.fraction:g})" for s in starts)
    return {"(d, N, sigma over the largest allowed)": each, "Theta": "random, and of rank one"}
