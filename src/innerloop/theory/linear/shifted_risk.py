"""The exact risk of one preconditioned step on prompts it was not trained for.

The learner predicts x_q^T A m with m = (1/M) sum_i y_i x_i. At test time covariates have covariance
T, the query has covariance Q, weights w ~ N(0, Omega), and prompts M examples, whatever A was made
for. (Any joint distribution of (x, y) for one function: `theory.linear.prediction_error`.)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import roots_genlaguerre, roots_hermitenorm
from torch import Tensor

from innerloop.theory.checks import (
    require_count,
    require_covariance,
    require_finite,
    require_length,
    require_noise,
    require_number,
    require_positive,
    require_prior,
    require_tensor,
)
from innerloop.theory.linear.covariance_law import CovarianceLaw
from innerloop.theory.linear.layers import sandwich_moment

NODES = 60
"""Of the quadratures in `response_risk`: exact for polynomial responses up to degree 29."""
LARGEST_DIMENSION = 342
"""In `response_risk`: the weight of a Gauss-Laguerre rule is a gamma function, which overflows."""


def one_step_risk(
    preconditioner: Float[Tensor, "d d"],
    covariance: Float[Tensor, "d d"],
    length: int | float,
    prior: Float[Tensor, "d d"] | None = None,
    noise_std: float = 0.0,
    *,
    query_covariance: Float[Tensor, "d d"] | None = None,
) -> Float[Tensor, ""]:
    """E (prediction - y_q)^2 where the query is independent of the examples.

        tr(Omega E[S A^T Q A S]) - 2 tr(Omega T A^T Q) + tr(Omega Q) + (noise_std^2/M) tr(A^T Q A T)

    S is the sample covariance of M examples of covariance T. Extends Zhang 2023, section 4.2, where
    M and the training length are taken to infinity; here too M may be math.inf.
    """
    require_length(length)
    require_noise(noise_std)
    _require_step(preconditioner, covariance, prior)
    if query_covariance is not None:
        require_tensor(
            "query_covariance", query_covariance, tuple(covariance.shape), like=covariance
        )
        require_covariance("query_covariance", query_covariance, definite=False)
    a, t = preconditioner, covariance
    omega = _identity_unless(prior, t)
    q = t if query_covariance is None else query_covariance
    seen = a.mT @ q @ a
    return (
        (omega @ sandwich_moment(seen, t, length)).trace()
        - 2 * (omega @ t @ a.mT @ q).trace()
        + (omega @ q).trace()
        + noise_std**2 / length * (seen @ t).trace()
    )


def in_context_query_risk(
    preconditioner: Float[Tensor, "d d"],
    covariance: Float[Tensor, "d d"],
    length: int,
    prior: Float[Tensor, "d d"] | None = None,
    noise_std: float = 0.0,
) -> Float[Tensor, ""]:
    """E (prediction - <w, x_q>)^2 where the query x_q = x_1 is one of the examples.

    Write S = x x^T / M + S', with x = x_1 and S' of the other M - 1 examples. Then the part of the
    prediction without noise is (q/M) <w, x> + x^T A S' w, q = x^T A x, and the risk is

        E (1 - q/M)^2 x^T Omega x - 2 E (1 - q/M) x^T A E[S'] Omega x + E x^T A E[S' Omega S'] A^T x
        + (noise_std^2 / M^2) (E q^2 + (M - 1) tr(A T A^T T)),

    Gaussian moments of products of quadratic forms.
    """
    length = require_count("length", length)
    require_noise(noise_std)
    _require_step(preconditioner, covariance, prior)
    a, t, m = preconditioner, covariance, length
    omega = _identity_unless(prior, t)
    left = (m - 1) / m
    power, q, q_squared = quadratic_moment([omega], t), [a], [a, a]
    own = power - 2 / m * quadratic_moment([*q, omega], t)
    own = own + quadratic_moment([*q_squared, omega], t) / m**2
    other = left * a @ t @ omega
    mixed = quadratic_moment([other], t) - quadratic_moment([*q, other], t) / m
    rest = left**2 * sandwich_moment(omega, t, m - 1) if m > 1 else torch.zeros_like(t)
    noise = quadratic_moment(q_squared, t) + (m - 1) * (a @ t @ a.mT @ t).trace()
    return own - 2 * mixed + quadratic_moment([a @ rest @ a.mT], t) + noise_std**2 / m**2 * noise


def quadratic_moment(
    forms: list[Float[Tensor, "d d"]], covariance: Float[Tensor, "d d"]
) -> Float[Tensor, ""]:
    """E prod_k x^T B_k x for x ~ N(0, T), of one, two or three forms, symmetric or not.

    With C_k the symmetric part of B_k times T, sums over cycles: tr C_1; tr C_1 tr C_2 +
    2 tr C_1 C_2; and tr C_1 tr C_2 tr C_3 + 2 (tr C_1 tr C_2 C_3 + ...) + 8 tr C_1 C_2 C_3.
    """
    c = [(b + b.mT) / 2 @ covariance for b in forms]
    traces = [matrix.trace() for matrix in c]
    if len(c) == 1:
        return traces[0]
    if len(c) == 2:
        return traces[0] * traces[1] + 2 * (c[0] @ c[1]).trace()
    if len(c) == 3:
        cyclic = ((0, 1, 2), (1, 2, 0), (2, 0, 1))
        pairs = sum(traces[i] * (c[j] @ c[k]).trace() for i, j, k in cyclic)
        return traces[0] * traces[1] * traces[2] + 2 * pairs + 8 * (c[0] @ c[1] @ c[2]).trace()
    raise ValueError(f"forms must be one, two or three matrices, got {len(c)}")


def random_covariance_risk(
    preconditioner: Float[Tensor, "d d"], law: CovarianceLaw, length: int | float
) -> Float[Tensor, ""]:
    """E (prediction - y_q)^2 where every prompt has a covariance Lambda of its own, w ~ N(0, I).

        tr E[Lambda] - 2 tr(A^T E[Lambda^2]) + E tr(A^T Lambda A S^2),
        E[S^2 | Lambda] = (1 + 1/M) Lambda^2 + (tr Lambda / M) Lambda

    The length M may be math.inf. Trained on prompts of N examples from the law, the layer has the
    preconditioner `SingleLayerFlow(law, N).product.mT` (Zhang 2023, Theorem 4.5), where this is
    least.
    """
    require_length(length)
    require_tensor("preconditioner", preconditioner, (law.d, law.d), like=law.mean)
    a = preconditioner
    cubic = (1 + 1 / length) * law.square_and_self + law.pair_and_trace / length
    seen = torch.einsum("ijkl,kj,li->", cubic, a, a)
    return law.mean.trace() - 2 * (a * law.square).sum() + seen


def response_risk(
    step: float,
    response: Callable[[Tensor], Tensor],
    *,
    variance: float,
    prior_variance: float,
    d: int,
    length: int | float,
    noise_std: float = 0.0,
) -> float:
    """E (prediction - response(<w, x_q>))^2 for x ~ N(0, variance I), w ~ N(0, prior_variance I).

    The learner is x_q^T (step I) m. Given w, the projection s = <w, x> is normal and the rest of x
    is independent of it. With t_k = E s^k response(s) and p_k = E s^k response(s)^2,

        E (y_i x_i) = w t_1 / |w|^2,      E y_i^2 |x_i|^2 = p_2 / |w|^2 + (d - 1) variance p_0.

    What is left is an integral over s by Gauss-Hermite and one over |w|^2 by Gauss-Laguerre.
    The length M may be math.inf, and d is at most 342.
    """
    require_number("step", step)
    require_positive("variance", variance)
    require_positive("prior_variance", prior_variance)
    d = require_count("d", d, most=LARGEST_DIMENSION, why="the quadrature's weights overflow")
    require_length(length)
    require_noise(noise_std)
    s, s_mass = roots_hermitenorm(NODES)
    half, r_mass = roots_genlaguerre(NODES, d / 2 - 1)
    s_mass, r_mass = s_mass / s_mass.sum(), r_mass / r_mass.sum()
    squared_norm = 2 * prior_variance * half[:, None]  # of w: prior_variance chi^2_d
    projections = np.sqrt(variance * squared_norm) * s  # [norms, nodes]
    answered = response(torch.as_tensor(projections))
    require_tensor("the value of response", answered, projections.shape)
    require_finite("the value of response", answered)
    labels = answered.numpy()

    def mean(values: np.ndarray) -> np.ndarray:
        return np.asarray((values * s_mass).sum(1))

    power = mean(labels**2)
    cross_squared = mean(labels * projections) ** 2 / squared_norm[:, 0]  # |E y x|^2
    spread = mean(labels**2 * projections**2) / squared_norm[:, 0] + (d - 1) * variance * power
    spread = spread + noise_std**2 * d * variance
    second = cross_squared + (spread - cross_squared) / length  # E |m|^2
    risk = step**2 * variance * second - 2 * step * cross_squared + power
    return float((risk * r_mass).sum())


def _require_step(preconditioner: Tensor, covariance: Tensor, prior: Tensor | None) -> None:
    d = require_covariance("covariance", covariance, definite=False)
    require_tensor("preconditioner", preconditioner, (d, d), like=covariance)
    require_prior(prior, covariance)


def _identity_unless(matrix: Tensor | None, like: Tensor) -> Tensor:
    return torch.eye(len(like)).to(like) if matrix is None else matrix
