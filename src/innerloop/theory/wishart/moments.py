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
    if n < 1 or d < 1:
        raise ValueError(f"n and d must be at least 1, got n = {n}, d = {d}")
    columns = min(n, d)
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
    k = 20, 44,582 up to k = 40.
    """
    _require_sizes(n, d)
    if min(powers, default=0) < 0:
        raise ValueError(f"powers must be 0 or more, got {powers}")
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
    """E tr W^k by zonal polynomials, in O(k^3) operations on integers.

    Write p_k = tr W^k in zonal polynomials Z_l (Jack polynomials with alpha = 2) and use
    E Z_l(W) = prod over cells of (n + c)(d + c), where the cell in row i and column j (from 0)
    has content c = 2j - i. The coefficient of Z_l in p_k is 2k prod_{cells but the corner} c / h_l,
    h_l = prod (2 arm + leg + 1)(2 arm + leg + 2). It vanishes as soon as the diagram contains
    the cell (2, 1), of content 0: only the diagrams (a, b, 1, ..., 1) remain.
    (Macdonald, Symmetric Functions and Hall Polynomials, VI.10 and VII.2.)
    """
    _require_sizes(n, d)
    if k < 0:
        raise ValueError(f"k must be 0 or more, got {k}")
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

    def __call__(self, values: Float[Tensor, "*batch nodes"]) -> Float[Tensor, "*batch"]:
        """The integral of a function given by its values at the nodes."""
        return (values * self.weights).sum(-1)


@cache
def recurrence(n: int, d: int, count: int, *, weighted: bool = False) -> Recurrence:
    """The first `count` recurrence coefficients of the mean spectrum mu of W/n.

    With `weighted`, of the measure x dmu(x) instead. Chebyshev's algorithm turns moments into
    coefficients with a loss of digits that grows exponentially; here it runs in fractions and
    loses none.
    """
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


@cache
def mean_spectrum(n: int, d: int, degree: int) -> Quadrature:
    """Nodes and weights with sum_i w_i f(x_i) = E tr f(W/n) for deg f <= degree."""
    if degree < 0:
        raise ValueError(f"degree must be 0 or more, got {degree}")
    return recurrence(n, d, degree // 2 + 1).gauss()


def _require_sizes(n: int, d: int) -> None:
    if n < 1 or d < 1:
        raise ValueError(f"n and d must be at least 1, got n = {n}, d = {d}")
