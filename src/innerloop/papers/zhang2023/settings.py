"""Covariances, tolerances and near misses that the claims share.

The paper has no numbers for its theory: sizes and spectra are ours. Covariances are rotated, so
that no formula holds because matrices are diagonal.
"""

from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from typing import NamedTuple, TypeVar

import torch
from scipy.special import roots_laguerre
from torch import Tensor

from innerloop.papers.common import DTYPE, identity, normal, rotated
from innerloop.papers.quantity import INEQUALITY, ROUNDING, Measured, Tolerance, at_most, checks
from innerloop.papers.verdict import Check

SPECTRA = {1: [0.7], 2: [1.5, 0.4], 3: [1.5, 0.8, 0.4], 5: [1.5, 1.0, 0.8, 0.4, 0.2]}
"""Of Lambda, by dimension."""
ROTATED = {d: f"eigenvalues {spectrum}, rotated" for d, spectrum in SPECTRA.items()}
LIMIT = at_most(
    1e-6, "a thousand steps may err by 1e-10 each; the last gradient is 1e-10, curvatures > 0.01"
)
LONG = 10**6
"""Examples in a prompt, where a statement is about the limit."""
K = 1 + sum(SPECTRA[3]) / min(SPECTRA[3])
"""Lambda <= Gamma <= (1 + K/N) Lambda for d = 3."""
NEARLY = at_most((2 * K + K**2) / LONG, f"2k/N of the variance, k^2 M/N^2 of bias, k = {K:.4g}")
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
        return torch.stack([p * of(c) for c, p in zip(*self, strict=True)]).sum(0)

    def square(self) -> Tensor:
        """E Lambda^2."""
        return self.mean(lambda c: c @ c)

    def averaged(self) -> "Mixture":
        """The mean covariance alone: the near miss of a random one."""
        return only(self.mean(lambda c: c))


def only(covariance: Tensor) -> Mixture:
    return Mixture(covariance.unsqueeze(0), torch.ones(1, dtype=DTYPE))


@cache
def fixed(d: int) -> Mixture:
    """One covariance, which is not diagonal."""
    return only(rotated(SPECTRA[d], seed=0))


@cache
def exponential(means: tuple[float, ...]) -> Mixture:
    """Independent diagonal entries of two values, with three moments of exponential ones.

    The expected loss is cubic in Lambda, so it is that of exponential entries, exactly.
    """
    values, weights = map(torch.as_tensor, roots_laguerre(2))
    grid = torch.tensor(list(product(range(2), repeat=len(means))))
    entries = values[grid] * torch.tensor(means, dtype=DTYPE)
    return Mixture(torch.diag_embed(entries), weights[grid].prod(-1))


PROBABILITIES = torch.tensor([0.5, 0.3, 0.2], dtype=DTYPE)
ENTRIES = torch.tensor([[1.5, 0.3], [0.4, 1.2], [2.0, 1.6]], dtype=DTYPE)
DEPENDENT = Mixture(torch.diag_embed(ENTRIES), PROBABILITIES)
"""Diagonal covariances whose entries depend on each other."""


@cache
def crossing(d: int) -> Mixture:
    """Covariances that do not commute."""
    spectra = [[1.5, 0.8, 0.4], [2.0, 0.3, 0.6], [0.7, 1.1, 0.2]]
    covariances = torch.stack([rotated(s[:d], seed) for seed, s in enumerate(spectra)])
    return Mixture(covariances, PROBABILITIES)


def gamma(covariance: Tensor, n: float) -> Tensor:
    """Gamma = (1 + 1/N) Lambda + tr(Lambda)/N I of Theorem 4.1."""
    return (1 + 1 / n) * covariance + covariance.trace() / n * identity(len(covariance))


def gammas() -> dict[str, GammaOf]:
    return {
        "Gamma as printed": gamma,
        "Gamma without tr(Lambda)/N": lambda lam, n: (1 + 1 / n) * lam,
        "Gamma without Lambda/N": lambda lam, n: gamma(lam, n) - lam / n,
        "N + 1 for N": lambda lam, n: gamma(lam, n + 1),
    }


def as_stated(
    name: str,
    right: T,
    wrong: Mapping[str, T],
    measure: Callable[[T], Measured] | None = None,
    tolerance: Tolerance = ROUNDING,
) -> list[Check]:
    """What is stated, beside near misses of it."""
    return checks(name, tolerance, {"as stated": right}, unlike=wrong, measure=measure)


def gamma_checks(
    name: str,
    measure: Callable[[GammaOf], float],
    tolerance: Tolerance = ROUNDING,
    others: Mapping[str, float] | None = None,
) -> list[Check]:
    """Gamma beside near misses of it, and others measured already."""
    (_, right), *wrong = ((case, measure(g)) for case, g in gammas().items())
    return as_stated(name, right, {**dict(wrong), **(others or {})}, tolerance=tolerance)


def tight(name: str, ratio: float, near: float) -> list[Check]:
    """A ratio of at most 1, which exceeds 1 if the inequality is this much stronger."""
    wrong = {f"{near:.3g} times as strong": near * ratio}
    return as_stated(name, ratio, wrong, tolerance=INEQUALITY)


def inverse_gamma(covariance: Tensor, n: float) -> Tensor:
    """The preconditioner of the layer trained on N examples."""
    return torch.linalg.inv(gamma(covariance, n))


def product_at_minimum(law: Mixture, n: float, g: GammaOf) -> Tensor:
    """(E Gamma Lambda^2)^-1 E Lambda^2 of Eq. 4.12; with one covariance it is Gamma^-1."""
    return torch.linalg.solve(law.mean(lambda c: g(c, n) @ c @ c), law.square())


def random_weights(d: int, seed: int) -> tuple[Tensor, Tensor]:
    """(U, v) with normal entries."""
    values = normal(seed, d * d + 1)
    return values[1:].view(d, d), values[0]
