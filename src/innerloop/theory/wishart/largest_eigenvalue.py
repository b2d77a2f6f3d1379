"""The largest eigenvalue of a Wishart matrix: how likely it is to exceed a value."""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from innerloop.theory.checks import TooLargeError, require_count

Array = NDArray[np.float64]

NODES = 400
LARGEST_SIDE = 90
"""Of the smaller of n and d: from 100 on these nodes no longer resolve the polynomials."""
LARGEST_FREEDOM = 10**8
"""Of the larger one: an exponent of its size loses as many digits as it has before the point."""


def largest_eigenvalue_exceeds(value: float, n: int, d: int) -> float:
    """P(lambda_max(W) > value) for W ~ Wishart_d(I, n), without sampling.

    The error is about 1e-12, and 1e-15 n if that is larger. Of n and d the smaller is at most 90,
    the larger at most 1e8.

    The density of the eigenvalues is prod_{i<j} |t_i - t_j| prod_i t_i^{(n-d-1)/2} e^{-t_i/2}. By
    de Bruijn's formula the probability that all are below x is Pf A(x) / Pf A(infinity), with

        A_ij(x) = int int_{s < t < x} [phi_i(s) phi_j(t) - phi_j(s) phi_i(t)] ds dt,

    phi_i being any polynomials of degree i = 0 .. d - 1 times the weight; for odd d, A has one more
    row and column with int phi_i. (Khatri 1969; as a Pfaffian, Chiani 2014.) Orthonormal
    polynomials in the root s = sqrt(t) of an eigenvalue keep A well conditioned. With n < d the
    positive eigenvalues are those of the transposed problem.
    """
    n, d = require_count("n", n), require_count("d", d)
    if isinstance(value, bool) or math.isnan(value):
        raise ValueError(f"value must be a number, got {value}")
    if n < d:
        n, d = d, n
    if d > LARGEST_SIDE or n > LARGEST_FREEDOM:
        raise TooLargeError(
            f"n and d must be at most {LARGEST_SIDE} (the smaller) and {LARGEST_FREEDOM:.0e} (the "
            f"larger) for the probability to be right, got {d} and {n}; "
            "theory.wishart.sample_wishart counts instead"
        )
    # Singular values lie within a few units of [sqrt n - sqrt d, sqrt n + sqrt d]: beyond nine, a
    # probability of e^-40.
    low, high = max(0.0, math.sqrt(n) - math.sqrt(d) - 9), math.sqrt(n) + math.sqrt(d) + 9
    limit = math.sqrt(value) if value > 0 else 0.0
    if limit >= high:
        return 0.0
    if limit <= low:
        return 1.0
    below, total = (_log_pfaffian(low, end, n, d) for end in (limit, high))
    return float(min(max(-math.expm1(below - total), 0.0), 1.0))


def _log_pfaffian(low: float, high: float, n: int, d: int) -> float:
    nodes, weights = legendre.leggauss(NODES)
    s = low + (nodes + 1) / 2 * (high - low)
    phi = _weighted_polynomials(s, n - d, d)  # [d, nodes]
    integrated = phi * weights * (high - low) / 2
    cumulative = phi @ _cumulative_integral(nodes, weights).T * (high - low) / 2
    half = integrated @ cumulative.T
    matrix = half.T - half
    if d % 2:
        border = integrated.sum(1)[:, None]
        matrix = np.block([[matrix, border], [-border.T, np.zeros((1, 1))]])
    sign, log_determinant = np.linalg.slogdet(matrix)
    return float(log_determinant) / 2 if sign > 0 else -math.inf


def _weighted_polynomials(s: Array, excess: int, count: int) -> Array:
    """Laguerre polynomials in s^2, orthonormal to the square of the weight s^excess e^{-s^2/2}."""
    alpha, t = excess - 0.5, s**2
    peak = math.sqrt(excess) if excess else 1.0  # the weight is scaled to its largest value
    polynomials = [np.ones_like(s)]
    before = np.zeros_like(s)
    for k in range(count - 1):
        after = (2 * k + 1 + alpha - t) * polynomials[-1] - math.sqrt(k * (k + alpha)) * before
        before = polynomials[-1]
        polynomials.append(after / math.sqrt((k + 1) * (k + 1 + alpha)))
    weight = np.exp(excess * np.log(s / peak) - t / 2 + excess / 2)
    return np.stack(polynomials) * weight


def _cumulative_integral(nodes: Array, weights: Array) -> Array:
    """The matrix that takes values at Gauss-Legendre nodes to integrals from -1 to every node."""
    count = len(nodes)
    polynomials = legendre.legvander(nodes, count)
    coefficients = (polynomials[:, :count] * weights[:, None]).T * (np.arange(count) + 0.5)[:, None]
    # int_{-1}^z P_k = (P_{k+1}(z) - P_{k-1}(z)) / (2k + 1), and P_1 + P_0 for k = 0.
    k = np.arange(count)
    integral = np.zeros((count + 1, count))
    integral[k + 1, k] = 1 / (2 * k + 1)
    integral[k[1:] - 1, k[1:]] = -1 / (2 * k[1:] + 1)
    integral[0, 0] = 1
    result: Array = polynomials @ integral @ coefficients
    return result
