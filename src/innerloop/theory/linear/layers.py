"""The exact risk of linear attention on Gaussian linear regression.

Throughout, x ~ N(0, Sigma), w ~ N(0, Omega), labels carry noise of variance noise_std^2 on the
examples only, S = (1/n) sum_i x_i x_i^T and m = (1/n) sum_i y_i x_i.

A layer of linear attention whose only weights are a preconditioner A is one step
w <- w - A (S w - m) of preconditioned gradient descent (Ahn 2023, Lemma 2).
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.theory.checks import (
    TooLargeError,
    cholesky,
    require_count,
    require_covariance,
    require_length,
    require_noise,
    require_prior,
    require_square,
    require_tensor,
)
from innerloop.theory.wishart.words import MatrixPolynomial, TracePolynomial, expected_trace

LARGEST_DEGREE = 10
"""In the sample covariance, of what can be expanded in words."""


def sandwich_moment(
    matrix: Float[Tensor, "d d"], covariance: Float[Tensor, "d d"], n: int | float
) -> Float[Tensor, "d d"]:
    """E[S B S] = Sigma B Sigma + (1/n) (Sigma B^T Sigma + tr(B Sigma) Sigma); n may be math.inf."""
    require_length(n, "n")
    d = require_square("covariance", covariance)
    require_tensor("matrix", matrix, (d, d), like=covariance)
    return _sandwich(matrix, covariance, n)


def _sandwich(matrix: Tensor, covariance: Tensor, n: int | float) -> Tensor:
    sigma, b = covariance, matrix
    return sigma @ b @ sigma + (sigma @ b.mT @ sigma + (b @ sigma).trace() * sigma) / n


def one_step_preconditioner(
    covariance: Float[Tensor, "d d"],
    n: int,
    prior: Float[Tensor, "d d"] | None = None,
    noise_std: float = 0.0,
) -> Float[Tensor, "d d"]:
    """The preconditioner with which one step from w = 0 has the least risk.

        A* = Omega Sigma (E[S Omega S] + (noise_std^2 / n) Sigma)^-1

    For Omega = I without noise it is ((1 + 1/n) Sigma + (tr Sigma / n) I)^-1: Ahn 2023, Theorem 1,
    Eq. 8, and Zhang 2023, Theorem 4.1, where it is called Gamma^-1. For Omega = Sigma^-1 it is
    n / (n + d + 1) Sigma^-1. The general prior and the noise are ours: the gradient of
    `single_layer_risk` in A vanishes there. Sigma is positive definite, Omega semi-definite.
    """
    n = require_count("n", n)
    require_covariance("covariance", covariance)
    require_prior(prior, covariance)
    require_noise(noise_std)
    omega = torch.eye(len(covariance)).to(covariance) if prior is None else prior
    second = _sandwich(omega, covariance, n) + noise_std**2 / n * covariance
    return torch.linalg.solve(second, covariance @ omega).mT


def single_layer_risk(
    b: Float[Tensor, " token"],
    a: Float[Tensor, "token d"],
    covariance: Float[Tensor, "d d"],
    n: int,
    prior: Float[Tensor, "d d"] | None = None,
    noise_std: float = 0.0,
    *,
    masked: bool = True,
) -> Float[Tensor, ""]:
    """E (prediction - y_q)^2 of one layer with arbitrary weights; differentiable in b and a.

    The prediction is b^T G a x_q, with b = (p, v), a = (U; r^T), and G the Gram matrix of the
    context (Ahn 2023, Eq. 7 and 15, up to the sign of a). Without mask the query's own token
    (x_q, 0) is in the Gram matrix as well, as in Zhang 2023.

    Split by parity in (w, noise), the two parts are uncorrelated:
        odd:   m^T V x_q - w^T x_q,   V = v U + p r^T
        even:  T1 + T2 + T3 = p^T S U x_q + c (p^T x_q)(x_q^T U x_q) + v |y|^2/n (r^T x_q),
    c = 1/n without mask and 0 with. Hence no choice of weights beats the best V.

    Shapes and numbers are checked, values of tensors are not: it may be mapped and differentiated.
    """
    n = require_count("n", n)
    size = require_square("covariance", covariance)
    require_tensor("b", b, (size + 1,), like=covariance)
    require_tensor("a", a, (size + 1, size), like=covariance)
    require_prior(prior, covariance, values=False)
    require_noise(noise_std)
    sigma = covariance
    omega = torch.eye(len(sigma)).to(sigma) if prior is None else prior
    p, v, u, r = b[:-1], b[-1], a[:-1], a[-1]
    big_v = v * u + torch.outer(p, r)
    odd = (
        (omega @ _sandwich(big_v @ sigma @ big_v.mT, sigma, n)).trace()
        - 2 * (omega @ sigma @ big_v @ sigma).trace()
        + (omega @ sigma).trace()
        + noise_std**2 / n * (sigma @ big_v @ sigma @ big_v.mT).trace()
    )
    us = (u + u.mT) / 2
    t = (us @ sigma).trace()
    k = sigma @ us @ sigma
    label_power = (sigma @ omega).trace() + noise_std**2  # E y_i^2
    tau2 = (sigma @ omega @ sigma @ omega).trace()
    q = u.mT @ sigma @ p
    c = 0.0 if masked else 1 / n
    t11 = p @ _sandwich(u @ sigma @ u.mT, sigma, n) @ p
    t33 = v**2 * (1 + 2 / n) * (label_power**2 + 2 * tau2) * (r @ sigma @ r)
    t22 = c**2 * (
        (p @ sigma @ p) * (t**2 + 2 * (us @ sigma @ us @ sigma).trace())
        + 4 * t * (p @ k @ p)
        + 8 * (p @ k @ us @ sigma @ p)
    )
    t12 = c * ((q @ sigma @ p) * t + 2 * (q @ k @ p))
    t13 = v * (
        label_power * (p @ sigma @ u @ sigma @ r)
        + (2 / n) * (p @ sigma @ omega @ sigma @ u @ sigma @ r)
    )
    t23 = c * v * label_power * ((p @ sigma @ r) * t + 2 * (p @ k @ r))
    return odd + t11 + t22 + t33 + 2 * (t12 + t13 + t23)


def layered_risk(
    preconditioners: Float[Tensor, "*batch layers d d"],
    covariance: Float[Tensor, "d d"],
    n: int,
    prior: Float[Tensor, "d d"] | None = None,
    noise_std: float = 0.0,
    *,
    transforms: Float[Tensor, "*batch layers d d"] | None = None,
    loops: int = 1,
    symmetric: bool = False,
) -> Float[Tensor, "*batch"]:
    """E (prediction - y_q)^2 of layers with preconditioners A_l, and transforms B_l if given.

    No sampling: a polynomial in the weights, found once for every shape and then evaluated in
    about a millisecond; differentiable, also in batches. `loops` applies all layers that often.
    Practical up to degree 8 in S: four layers without transforms, two with. `symmetric` promises
    symmetric preconditioners and is several times quicker; only the symmetric part of the
    gradient in them is then right. Of tensors only the shapes are checked.
    """
    n, loops = require_count("n", n), require_count("loops", loops)
    require_noise(noise_std)
    d = require_square("covariance", covariance)
    require_tensor("preconditioners", preconditioners, (None, d, d), like=covariance, batched=True)
    if transforms is not None:
        require_tensor("transforms", transforms, tuple(preconditioners.shape), like=covariance)
    require_prior(prior, covariance, values=False)
    layers = preconditioners.shape[-3]
    root = cholesky("covariance", covariance)
    omega = root.mT @ root if prior is None else root.mT @ prior @ root
    flat = bool(torch.allclose(omega, torch.eye(d).to(omega), rtol=0, atol=1e-12))
    polynomial = layered_risk_polynomial(
        layers,
        n,
        Fraction(noise_std) ** 2,
        transformed=transforms is not None,
        prior=not flat,
        loops=loops,
        symmetric=symmetric,
    )
    # In the coordinates R^T w, R^-1 x with Sigma = R R^T, the covariates are white.
    letters = [root.mT @ preconditioners @ root]
    if transforms is not None:
        letters.append(torch.linalg.solve_triangular(root, transforms @ root, upper=False))
    if not flat:
        letters.append(omega.expand(*preconditioners.shape[:-3], 1, d, d))
    return polynomial(torch.cat(letters, dim=-3))


def layered_risk_polynomial(
    layers: int,
    n: int,
    noise_variance: Fraction = Fraction(0),
    *,
    transformed: bool = False,
    prior: bool = False,
    loops: int = 1,
    symmetric: bool = False,
) -> TracePolynomial:
    """The risk as a polynomial in the whitened weights A_0.., then B_0.., then the prior.

    The error w* - w after a layer is (I - D S) times the error before it, where D = F^T A F acts on
    the covariates as they were and F <- F - B F S D^T is what the transforms made of them. Label
    noise enters through w = K m, K <- K + D - D S K. The noise's variance is a fraction.
    """
    layers, loops = require_count("layers", layers), require_count("loops", loops)
    if isinstance(noise_variance, float) or noise_variance < 0:
        raise ValueError(
            f"noise_variance must be a Fraction and not negative, got {noise_variance!r}"
        )
    depth, words = layers * loops, " with transforms" * transformed
    # Powers of 3 only where they are small: a depth of 10^9 must not be expanded to be refused.
    degree = 3 ** min(depth, 20) - 1 if transformed else 2 * depth
    if degree > LARGEST_DEGREE:
        has = f"degree {degree}" if depth <= 20 or not transformed else "a degree above 10^9"
        raise TooLargeError(
            f"the exact risk of {depth} layers{words} has {has} in the sample covariance, too "
            f"large to expand ({LARGEST_DEGREE} is the most). Sample instead (the `wishart` "
            "objective), or use the ray of theory.ray, where any depth is exact."
        )
    return _layered_risk_polynomial(
        layers,
        require_count("n", n),
        Fraction(noise_variance),
        transformed,
        prior,
        loops,
        symmetric,
    )


@cache
def _layered_risk_polynomial(
    layers: int,
    n: int,
    noise_variance: Fraction,
    transformed: bool,
    prior: bool,
    loops: int,
    symmetric: bool,
) -> TracePolynomial:
    identity, s = MatrixPolynomial.identity(), MatrixPolynomial.wishart().scaled(Fraction(1, n))
    error, moved, learned = identity, identity, MatrixPolynomial({})
    for step in range(layers * loops):
        a = MatrixPolynomial.letter(step % layers)
        d = moved.mT @ a @ moved
        error = error - d @ s @ error
        learned = learned + d - d @ s @ learned
        if transformed and step < layers * loops - 1:
            b = MatrixPolynomial.letter(layers + step % layers)
            moved = moved - b @ moved @ s @ d.mT
    omega_number = layers * (1 + transformed)
    omega = MatrixPolynomial.letter(omega_number) if prior else identity
    risk = error @ omega @ error.mT
    if noise_variance:
        risk = risk + (learned @ s @ learned.mT).scaled(noise_variance / n)
    return expected_trace(risk, n, symmetric=[*range(layers * symmetric), omega_number])
