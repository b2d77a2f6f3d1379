"""The looped model: one step w <- w - A (S w - m), taken L times with the same A (Gatmiry 2024).

With the prior w ~ N(0, Sigma^-1) its global minimum over all symmetric A is a* Sigma^-1, exactly
and for every n, d and L. Gatmiry 2024 (Theorem 3.2) proves it near Sigma^-1 for very large n.

Proof. Whiten, so that Sigma = I, and write W/n for the sample covariance. The loss is
L(A) = E |(I - A W/n)^L|_F^2. The matrix A W/n is similar to H = (W/n)^1/2 A (W/n)^1/2, so

    L(A) >= E tr (I - A W/n)^{2L} = E tr (I - H)^{2L} =: Lt(A),

because |M|_F^2 >= tr M^2 for every real M, with equality where A = a I (then M is symmetric). Now
A -> H is linear, t -> (1 - t)^{2L} is convex, and the trace of a convex function of a symmetric
matrix is convex in the matrix (Klein): Lt is convex. The law of W is invariant under rotations, so
Lt(R A R^T) = Lt(A), and averaging A over all rotations R, by Jensen, does not raise Lt:

    L(A) >= Lt(A) >= Lt((tr A / d) I) = L((tr A / d) I).

So a minimum is on the ray A = a I, where the loss is E tr (I - a W/n)^{2L}: a polynomial, strictly
convex in a, with one minimum a*. (`lower_bound` is Lt; the paper prints it as the loss.)

Over matrices that are not symmetric this is not the minimum once n is large: a small rotation in A
lowers the loss (claim gatmiry2024/asymmetric).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import torch
from jaxtyping import Float
from scipy.optimize import brentq
from torch import Tensor

from innerloop.theory.checks import (
    TooLargeError,
    cholesky,
    require_count,
    require_number,
    require_room,
    require_square,
    require_tensor,
)
from innerloop.theory.linear.layers import layered_risk
from innerloop.theory.linear.ray import RayOptimum, ray_risk, ray_spectrum
from innerloop.theory.wishart.largest_eigenvalue import largest_eigenvalue_exceeds
from innerloop.theory.wishart.moments import mean_spectrum, sample_wishart, trace_moment
from innerloop.theory.wishart.words import MatrixPolynomial, TracePolynomial, expected_trace

EXACT_LOOPS = 60
"""More loops are exact in principle, but their moments are fractions of thousands of digits."""
EXPANDED_LOOPS = 30
"""Of `gap_constant`, where it takes a minute."""


def looped_optimum(loops: int, n: int, d: int) -> RayOptimum:
    """The global minimum: the best single step a*, taken `loops` times, and its risk.

    sum_i w_i (1 - a x_i)^{2L} is convex in a, and its derivative changes sign between 0 and 1 / min
    x_i, where no factor is positive any more. L = 20, d = 50, n = 1000 takes under a second.
    """
    loops = _require_exact(loops)
    spectrum = ray_spectrum(loops, n, d)
    nodes, weights = spectrum.nodes.numpy(), spectrum.weights.numpy()

    def slope(a: float) -> float:
        return -float((weights * nodes * (1 - a * nodes) ** (2 * loops - 1)).sum())

    positive = nodes[nodes > 1e-9 * nodes[-1]]  # with n < d the spectrum has an atom at 0
    step = brentq(slope, 0.0, 1 / positive[0], xtol=1e-15, rtol=1e-14)
    steps = torch.full((loops,), step, dtype=torch.float64)
    return RayOptimum(steps, ray_risk(steps, n, d).item())


@dataclass(frozen=True)
class SampledOptimum:
    """The best step and its risk on sampled Wishart matrices, with standard errors.

    At many loops the mean is carried by rare matrices with large eigenvalues. `effective_samples`
    says how many matrices carry it, (sum h)^2 / sum h^2 of their curvatures h: when it is below
    about a hundred, the standard errors are too small and the optimum should not be trusted.
    """

    step: float
    step_error: float
    risk: float
    risk_error: float
    effective_samples: float


def sampled_looped_optimum(
    loops: int, n: int, d: int, *, samples: int, generator: torch.Generator
) -> SampledOptimum:
    """As `looped_optimum`, from sampled matrices: for any number of loops, but with an error.

    The error of the step is that of a minimum of a sample mean: std(slope) / (mean curvature
    sqrt(samples)).
    """
    loops = require_count("loops", loops)
    samples = require_count("samples", samples, least=2)  # fewer have no standard error
    eigenvalues = sample_eigenvalues(samples, n, d, generator=generator)

    def slopes(a: float) -> Tensor:
        """Of every matrix's loss, divided by 2 L."""
        return -(eigenvalues * (1 - a * eigenvalues) ** (2 * loops - 1)).sum(1)

    top = float(eigenvalues.max())
    end = 1 / top
    while slopes(end).mean() < 0:
        end *= 2
    step = brentq(lambda a: float(slopes(a).mean()), 0.0, end, xtol=1e-15, rtol=1e-14)
    left = 1 - step * eigenvalues
    curvature = (2 * loops - 1) * (eigenvalues**2 * left ** (2 * loops - 2)).sum(1)
    risks = (left ** (2 * loops)).sum(1)
    root = math.sqrt(samples)
    return SampledOptimum(
        step,
        float(slopes(step).std() / curvature.mean()) / root,
        float(risks.mean()),
        float(risks.std()) / root,
        float(curvature.sum() ** 2 / curvature.square().sum()),
    )


def loop_risks(step: float, loops: int, n: int, d: int) -> Float[Tensor, " counts"]:
    """The exact expected loss after 0, 1, ..., `loops` loops of the step: E tr (I - a W/n)^{2L}.

    W has no largest value, so for every fixed a > 0 the mean falls, has a minimum, and then grows
    without bound, however small the probability of a matrix on which the loop expands.
    """
    require_number("step", step)
    loops = _require_exact(loops)
    spectrum = mean_spectrum(n, d, 2 * loops)
    powers = torch.arange(loops + 1, dtype=torch.float64)
    return spectrum((1 - step * spectrum.nodes) ** (2 * powers[:, None]))


def context_losses(
    step: float, loops: int, eigenvalues: Float[Tensor, "samples d"]
) -> Float[Tensor, "samples counts"]:
    """The loss given each context, the query and w averaged out, after 0, 1, ..., `loops` loops."""
    require_number("step", step)
    loops = require_count("loops", loops, least=0)
    require_tensor("eigenvalues", eigenvalues, (None, None))
    require_room(f"the losses of {loops} loops", (loops + 1) * eigenvalues.numel())
    powers = torch.arange(loops + 1).to(eigenvalues)
    return ((1 - step * eigenvalues).square()[:, None, :] ** powers[:, None]).sum(-1)


def expanding_probability(step: float, n: int, d: int) -> float:
    """The probability of a context on which the loop map I - a W/n expands: a lambda_max > 2."""
    require_number("step", step)
    n, d = require_count("n", n), require_count("d", d)
    return largest_eigenvalue_exceeds(2 * n / step, n, d) if step > 0 else float(step < 0)


def sample_eigenvalues(
    samples: int, n: int, d: int, *, generator: torch.Generator
) -> Float[Tensor, "samples d"]:
    """Eigenvalues of W/n, in increasing order."""
    samples = require_count("samples", samples)
    return torch.linalg.eigvalsh(sample_wishart(samples, n, d, generator=generator)) / n


def gap_constant(loops: int, d: int) -> Fraction:
    """kappa_L in 1 - a* = kappa_L / n + O(1/n^2).

    With y = x - 1 and a = 1 - kappa/n, the slope E tr x (1 - a x)^{2L-1} vanishes to leading order
    n^-L if kappa / n = E tr [y^{2L-1} + y^{2L}] / ((2L - 1) E tr y^{2L-2}).
    """
    loops = require_count(
        "loops", loops, most=EXPANDED_LOOPS, why="the exact polynomials of more take minutes"
    )
    d = require_count("d", d)
    above = _central_moment(2 * loops - 1, d, loops) + _central_moment(2 * loops, d, loops)
    return above / ((2 * loops - 1) * _central_moment(2 * loops - 2, d, loops - 1))


def _central_moment(k: int, d: int, order: int) -> Fraction:
    """The coefficient of n^-order in E tr (W/n - I)^k."""
    total = Fraction(0)
    for j in range(order, k + 1):
        # tr W^j / n^j contributes through the power n^{j - order} of the polynomial E tr W^j.
        total += math.comb(k, j) * (-1) ** (k - j) * _moment_polynomial(j, d)[j - order]
    return total


@cache
def _moment_polynomial(k: int, d: int) -> tuple[Fraction, ...]:
    """Coefficients of E tr W^k as a polynomial in n, of degree k, constant first."""
    if k == 0:
        return (Fraction(d),)
    points = range(1, k + 2)
    # Newton's divided differences, then expanded from the innermost factor outwards.
    differences = [Fraction(trace_moment(k, n, d)) for n in points]
    for level in range(1, k + 1):
        for i in range(k, level - 1, -1):
            differences[i] = (differences[i] - differences[i - 1]) / level
    coefficients = [differences[k]]
    for i in range(k - 1, -1, -1):
        shifted = [Fraction(0), *coefficients]
        coefficients = [
            shifted[j] - points[i] * (coefficients[j] if j < len(coefficients) else 0)
            for j in range(len(shifted))
        ]
        coefficients[0] += differences[i]
    return tuple(coefficients)


def tied_risk(
    preconditioner: Float[Tensor, "d d"],
    covariance: Float[Tensor, "d d"],
    n: int,
    prior: Float[Tensor, "d d"] | None = None,
    *,
    loops: int,
    shift: Float[Tensor, " d"] | None = None,
    symmetric: bool = False,
) -> Float[Tensor, ""]:
    """E (prediction - y_q)^2 of L loops with any preconditioner A and any shift u; differentiable.

        tr E[J Omega J^T Sigma] + E u^T (I - J)^T Sigma (I - J) u,   J = (I - A S)^L.

    The second term is Gatmiry 2024, Corollary A.4, with the population's covariance where the paper
    has the sample's: a looped layer with the row (u^T, 1) in P descends on labels y_i + <u, x_i>.
    Exact for up to five loops; see `theory.wishart.TooLargeError`.
    """
    loops = require_count("loops", loops)
    d = require_square("covariance", covariance)
    require_tensor("preconditioner", preconditioner, (d, d), like=covariance)
    if shift is not None:
        require_tensor("shift", shift, (d,), like=covariance)
    risk = layered_risk(
        preconditioner.unsqueeze(0), covariance, n, prior, loops=loops, symmetric=symmetric
    )
    if shift is None:
        return risk
    root = cholesky("covariance", covariance)
    white_shift = root.mT @ shift
    letters = torch.stack([root.mT @ preconditioner @ root, torch.outer(white_shift, white_shift)])
    return risk + _shift_polynomial(loops, require_count("n", n))(letters)


@cache
def _shift_polynomial(loops: int, n: int) -> TracePolynomial:
    identity, a = MatrixPolynomial.identity(), MatrixPolynomial.letter(0)
    s = MatrixPolynomial.wishart().scaled(Fraction(1, n))
    left = identity
    for _ in range(loops):
        left = left - a @ s @ left
    moved = identity - left
    return expected_trace(moved @ MatrixPolynomial.letter(1) @ moved.mT, n, symmetric=[1])


def lower_bound(
    preconditioner: Float[Tensor, "d d"], covariance: Float[Tensor, "d d"], n: int, *, loops: int
) -> Float[Tensor, ""]:
    """Lt(A) = E tr (I - A S)^{2L}, which Gatmiry 2024, Lemma 4.1 prints as the loss.

    It equals the loss on the ray A = a Sigma^-1 and is below it elsewhere; see the module's proof.
    """
    loops, n = require_count("loops", loops), require_count("n", n)
    d = require_square("covariance", covariance)
    require_tensor("preconditioner", preconditioner, (d, d), like=covariance)
    root = cholesky("covariance", covariance)
    return _power_polynomial(2 * loops, n)((root.mT @ preconditioner @ root).unsqueeze(0))


@cache
def _power_polynomial(power: int, n: int) -> TracePolynomial:
    if power > 10:
        raise TooLargeError(
            f"E tr (I - A S)^{power} is too large to expand in words (10 is the largest power). "
            "Sample instead, or use the ray, where any depth is exact."
        )
    factor = MatrixPolynomial.identity() - MatrixPolynomial.letter(
        0
    ) @ MatrixPolynomial.wishart().scaled(Fraction(1, n))
    product = MatrixPolynomial.identity()
    for _ in range(power):
        product = product @ factor
    return expected_trace(product, n, symmetric=[])


def _require_exact(loops: int) -> int:
    loops = require_count("loops", loops)
    if loops > EXACT_LOOPS:
        raise TooLargeError(
            f"the exact moments for {loops} loops are too large ({EXACT_LOOPS} loops is the most). "
            "theory.linear.sampled_looped_optimum gives the optimum with a standard error, and "
            "theory.linear.context_losses the loss on sampled contexts."
        )
    return loops
