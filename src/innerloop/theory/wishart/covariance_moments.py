"""Moments of a sample covariance whose population is not white, eigenvalue by eigenvalue."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from math import comb

from innerloop.theory.checks import TooLargeError, require_count

LARGEST_POWER = 30
"""Of a sample covariance; the recursion passes through all partitions of it."""
LARGEST_SPECTRUM = 1000

Spectrum = tuple[Fraction, ...]


def moment_eigenvalues(spectrum: Sequence[Fraction | int], n: int, k: int) -> Spectrum:
    """The eigenvalues of E[S^k], S = (1/n) sum_i x_i x_i^T, x ~ N(0, Sigma), as exact fractions.

    E[S^k] has the eigenvectors of Sigma, whose eigenvalues are `spectrum`; the j-th number belongs
    to the j-th of them (alpha_{n,d,k}^{(j)} in Gatmiry 2024, Lemma 4.2). With W = n S,
    p_q = tr W^q, and O a product of such traces, integrating one Gaussian vector by parts gives

        E[W^k O] = Sigma ( (n + k - 1) E[W^{k-1} O] + sum_{m=1}^{k-1} E[p_m W^{k-1-m} O]
                           + 2 sum_{q in O} q E[W^{k-1+q} O / p_q] ),

    and E[p_q O] = tr E[W^q O] closes the recursion. Every term is positive, and the first one
    alone makes n^k Sigma^k, so E[S^k] >= Sigma^k.
    """
    exact, n, k = _checked(spectrum, n, k)
    return tuple(value / n**k for value in _expected_power(k, (), n, exact))


def residual_eigenvalues(spectrum: Sequence[Fraction | int], n: int, k: int) -> Spectrum:
    """The eigenvalues of E[(I - S)^k], exactly: beta_i^{(k)} in Gatmiry 2024, Lemma 4.3."""
    exact, n, k = _checked(spectrum, n, k)
    moments = [moment_eigenvalues(exact, n, j) for j in range(k + 1)]
    return tuple(
        sum(((-1) ** j * comb(k, j) * moments[j][i] for j in range(k + 1)), Fraction(0))
        for i in range(len(exact))
    )


def _checked(spectrum: Sequence[Fraction | int], n: int, k: int) -> tuple[Spectrum, int, int]:
    n = require_count("n", n)
    k = require_count("k", k, least=0, most=LARGEST_POWER, why="its moments take minutes")
    if len(spectrum) > LARGEST_SPECTRUM:
        raise TooLargeError(
            f"spectrum must hold at most {LARGEST_SPECTRUM} eigenvalues, got {len(spectrum)}"
        )
    try:
        exact = tuple(Fraction(value) for value in spectrum)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"spectrum must hold finite numbers, got {spectrum}") from None
    if not exact or min(exact) < 0:
        raise ValueError(f"spectrum must hold numbers of 0 or more, at least one, got {spectrum}")
    return exact, n, k


@cache
def _expected_power(k: int, traces: tuple[int, ...], n: int, spectrum: Spectrum) -> Spectrum:
    """The eigenvalues of E[W^k prod_q tr W^q], q in `traces`."""
    if k == 0:
        if not traces:
            return (Fraction(1),) * len(spectrum)
        *rest, q = traces
        total = sum(_expected_power(q, tuple(rest), n, spectrum), Fraction(0))
        return (total,) * len(spectrum)
    terms = [(n + k - 1, k - 1, traces)]
    terms += [(1, k - 1 - m, tuple(sorted((*traces, m)))) for m in range(1, k)]
    terms += [(2 * q, k - 1 + q, traces[:i] + traces[i + 1 :]) for i, q in enumerate(traces)]
    bracket = [Fraction(0)] * len(spectrum)
    for factor, power, others in terms:
        values = _expected_power(power, others, n, spectrum)
        bracket = [b + factor * v for b, v in zip(bracket, values, strict=True)]
    return tuple(value * b for value, b in zip(spectrum, bracket, strict=True))
