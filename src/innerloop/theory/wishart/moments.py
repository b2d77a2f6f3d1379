"""Wishart matrices W = sum_{i=1}^n z_i z_i^T, z_i ~ N(0, I_d): exact moments, quadrature, samples.

Everything the linear papers average over is a polynomial of W. Three exact tools, from the most
general to the fastest:

* `expected_power_sums`: E of any product of traces tr W^k, by a recursion in integers;
* `trace_moment`: E tr W^k alone, for k into the hundreds, by zonal polynomials;
* `mean_spectrum`: nodes x_i > 0 and weights w_i > 0 with sum_i w_i f(x_i) = E tr f(W/n) for every
  polynomial f up to a degree. Sums of positive terms: no cancellation, and differentiable.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import torch
from jaxtyping import Float
from scipy.linalg import eigvalsh_tridiagonal
from torch import Tensor

from innerloop.theory.checks import (
    TooLargeError,
    require_count,
    require_room,
    require_tensor,
)

LARGEST_POWER = 300
"""Of `trace_moment`, where it takes ten seconds; the time grows as its fourth power."""
LARGEST_TOTAL = 45
"""Of the powers in `expected_power_sums`: 10^5 partitions of it, with as many large integers."""
MOST_COEFFICIENTS = 80
"""Of `recurrence`, where they take a minute."""


def sample_wishart(
    batch: int,
    n: int,
    d: int,
    *,
    generator: torch.Generator,
    dtype: torch.dtype = torch.float64,
) -> Float[Tensor, "batch d d"]:
    """W of n degrees of freedom, not divided by n; at a cost that does not grow with n.

    Bartlett: W = T T^T with T lower triangular, T_ii^2 ~ chi^2_{n-i} (i = 0, 1, ...), and standard
    normals below. With n < d, W has rank n and T its first n columns only: T_ij is standard normal
    for all i > j, which is again exact.
    """
    batch, n, d = (
        require_count("batch", batch),
        require_count("n", n, most=2**53, why="float64 does not count further"),
        require_count("d", d),
    )
    if not dtype.is_floating_point:
        raise ValueError(f"dtype must be a real floating-point type, got {dtype}")
    columns = min(n, d)
    require_room(f"{batch} Wishart matrices of d = {d}", batch * d * d)
    factor = torch.randn(
        batch, d, columns, generator=generator, dtype=dtype, device=generator.device
    ).tril(-1)
    freedom = torch.arange(n, n - columns, -1, dtype=dtype, device=generator.device)
    # chi^2_k is twice a Gamma(k/2); torch's sampler for it takes a generator.
    chi_squared = 2 * torch._standard_gamma(
        (freedom / 2).expand(batch, columns), generator=generator
    )
    factor.diagonal(dim1=-2, dim2=-1).copy_(chi_squared.sqrt())
    return factor @ factor.mT


def expected_power_sums(powers: tuple[int, ...], n: int, d: int) -> int:
    """E[prod_{k in powers} tr W^k], exactly.

    With p_k = tr W^k, p_0 = d, and O the product of the other factors, integrating one Gaussian
    vector by parts gives

        E[p_k O] = (n + k - 1) E[p_{k-1} O] + sum_{m=1}^{k-1} E[p_m p_{k-1-m} O]
                   + 2 sum_{q in O} q E[p_{k-1+q} O / p_q].

    Every coefficient is a positive integer. States are integer partitions: 791 of them up to
    k = 20, 44,582 up to k = 40. Powers are 0 or more, and sum to at most `LARGEST_TOTAL`.
    """
    n, d = require_count("n", n), require_count("d", d)
    powers = tuple(require_count("powers", k, least=0) for k in powers)
    if sum(powers) > LARGEST_TOTAL:
        raise TooLargeError(
            f"powers must sum to at most {LARGEST_TOTAL}, got {sum(powers)}; "
            "trace_moment, for one trace alone, goes further"
        )
    return _expected_power_sums(tuple(sorted(k for k in powers if k)), n, d) * d ** powers.count(0)


@cache
def _expected_power_sums(powers: tuple[int, ...], n: int, d: int) -> int:
    if not powers:
        return 1
    *others, k = powers

    def expectation(*new: int) -> int:
        left = tuple(sorted(q for q in new if q))
        return d ** (len(new) - len(left)) * _expected_power_sums(left, n, d)

    total = (n + k - 1) * expectation(*others, k - 1)
    total += sum(expectation(*others, m, k - 1 - m) for m in range(1, k))
    for i, q in enumerate(others):
        total += 2 * q * expectation(*others[:i], *others[i + 1 :], k - 1 + q)
    return total


def trace_moment(k: int, n: int, d: int) -> int:
    """E tr W^k by zonal polynomials, in O(k^3) operations on integers; k from 0 to 300.

    Write p_k = tr W^k in zonal polynomials Z_l (Jack polynomials with alpha = 2) and use
    E Z_l(W) = prod over cells of (n + c)(d + c), where the cell in row i and column j (from 0)
    has content c = 2j - i. The coefficient of Z_l in p_k is 2k prod_{cells but the corner} c / h_l,
    h_l = prod (2 arm + leg + 1)(2 arm + leg + 2). It vanishes as soon as the diagram contains
    the cell (2, 1), of content 0: only the diagrams (a, b, 1, ..., 1) remain.
    (Macdonald, Symmetric Functions and Hall Polynomials, VI.10 and VII.2.)
    """
    n, d = require_count("n", n), require_count("d", d)
    k = require_count("k", k, least=0, most=LARGEST_POWER, why="its moments take minutes")
    if k == 0:
        return d
    total = Fraction(0)
    for rows in _almost_hooks(k):
        columns = [sum(1 for length in rows if length > j) for j in range(rows[0])]
        numerator, hooks = 2 * k, 1
        for i, length in enumerate(rows):
            for j in range(length):
                content = 2 * j - i
                numerator *= (n + content) * (d + content) * (content if (i, j) != (0, 0) else 1)
                hook = 2 * (length - j - 1) + (columns[j] - i - 1)
                hooks *= (hook + 1) * (hook + 2)
        total += Fraction(numerator, hooks)
    assert total.denominator == 1
    return total.numerator


def _almost_hooks(k: int) -> Iterator[list[int]]:
    """Partitions (a, b, 1, ..., 1) of k."""
    for a in range(1, k + 1):
        rest = k - a
        if rest == 0:
            yield [a]
        for b in range(1, min(a, rest) + 1):
            yield [a, b] + [1] * (rest - b)


@dataclass(frozen=True)
class Recurrence:
    """The monic orthogonal polynomials of the mean spectrum, as exact rationals.

    pi_{k+1}(x) = (x - alpha_k) pi_k(x) - beta_k pi_{k-1}(x),   beta_0 = the total mass.
    """

    alpha: tuple[Fraction, ...]
    beta: tuple[Fraction, ...]

    def gauss(self) -> Quadrature:
        """The Gauss rule with as many nodes as there are coefficients."""
        diagonal = [float(a) for a in self.alpha]
        off_diagonal = [math.sqrt(b) for b in self.beta[1:]]
        nodes = torch.as_tensor(eigvalsh_tridiagonal(diagonal, off_diagonal))
        # A weight is 1 / sum_k p_k(x)^2 of the orthonormal polynomials. Eigenvectors would give it
        # too, but only to 1e-16 of the largest; the smallest are 1e-50 and meet huge integrands.
        older, old = torch.zeros_like(nodes), torch.full_like(nodes, 1 / math.sqrt(self.beta[0]))
        total = old.square()
        for k, scale in enumerate(off_diagonal):
            below = off_diagonal[k - 1] if k else 0.0
            older, old = old, ((nodes - diagonal[k]) * old - below * older) / scale
            total = total + old.square()
        return Quadrature(nodes, 1 / total)

    def least_square_at_zero(self, degree: int) -> Fraction:
        """min of E tr p(W/n)^2 over polynomials p of this degree with p(0) = 1.

        The Christoffel function at 0: 1 / sum_{k <= degree} pi_k(0)^2 / |pi_k|^2.
        """
        most = len(self.beta) - 1
        degree = require_count("degree", degree, least=0, most=most, why="more coefficients needed")
        previous, value, norm, total = Fraction(0), Fraction(1), Fraction(1), Fraction(0)
        for k in range(degree + 1):
            norm *= self.beta[k]
            total += value**2 / norm
            previous, value = value, -self.alpha[k] * value - self.beta[k] * previous
        return 1 / total


@dataclass(frozen=True)
class Quadrature:
    """sum_i weights_i f(nodes_i), in float64."""

    nodes: Float[Tensor, " nodes"]
    weights: Float[Tensor, " nodes"]

    def __post_init__(self) -> None:
        require_tensor("nodes", self.nodes, (None,))
        require_tensor("weights", self.weights, (len(self.nodes),), like=self.nodes)

    def __call__(self, values: Float[Tensor, "*batch nodes"]) -> Float[Tensor, "*batch"]:
        """The integral of a function given by its values at the nodes."""
        require_tensor("values", values, (len(self.nodes),), batched=True)
        return (values * self.weights).sum(-1)


def recurrence(n: int, d: int, count: int, *, weighted: bool = False) -> Recurrence:
    """The first `count` recurrence coefficients of the mean spectrum mu of W/n.

    With `weighted`, of the measure x dmu(x) instead. Chebyshev's algorithm turns moments into
    coefficients with a loss of digits that grows exponentially; here it runs in fractions and
    loses none.
    """
    count = require_count(
        "count", count, most=MOST_COEFFICIENTS, why="their exact moments take minutes"
    )
    return _recurrence(require_count("n", n), require_count("d", d), count, weighted)


@cache
def _recurrence(n: int, d: int, count: int, weighted: bool) -> Recurrence:
    shift = 1 if weighted else 0
    moments = [Fraction(trace_moment(k + shift, n, d), n ** (k + shift)) for k in range(2 * count)]
    alpha, beta = [moments[1] / moments[0]], [moments[0]]
    older, old = [Fraction(0)] * (2 * count), moments
    for k in range(1, count):
        new = [Fraction(0)] * (2 * count)
        for j in range(k, 2 * count - k):
            new[j] = old[j + 1] - alpha[-1] * old[j] - beta[-1] * older[j]
        alpha.append(new[k + 1] / new[k] - old[k] / old[k - 1])
        beta.append(new[k] / old[k - 1])
        older, old = old, new
    return Recurrence(tuple(alpha), tuple(beta))


def mean_spectrum(n: int, d: int, degree: int) -> Quadrature:
    """Nodes and weights with sum_i w_i f(x_i) = E tr f(W/n) for deg f <= degree, up to 159."""
    most = 2 * MOST_COEFFICIENTS - 1
    degree = require_count(
        "degree", degree, least=0, most=most, why="the exact moments behind it take minutes"
    )
    return _mean_spectrum(require_count("n", n), require_count("d", d), degree)


@cache
def _mean_spectrum(n: int, d: int, degree: int) -> Quadrature:
    return _recurrence(n, d, degree // 2 + 1, False).gauss()
