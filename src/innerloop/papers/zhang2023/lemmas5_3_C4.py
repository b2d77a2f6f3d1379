"""The minima of the loss: Lemma 5.3 and Corollary A.2, Lemma C.4."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import normal, relative, square_root
from innerloop.papers.quantity import ROUNDING, at_most
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.zhang2023.lemmas5_2_C1_C3 import Coefficients, coefficients, split
from innerloop.papers.zhang2023.prompts import population_loss, whole
from innerloop.papers.zhang2023.settings import (
    LIMIT,
    GammaOf,
    Mixture,
    checked,
    checked_gammas,
    dependent,
    fixed,
    gamma,
    random_weights,
)

LAW, RANDOM, N = fixed(2), dependent(), 2
D, DRAWS = 2, 20
LEAST = at_most(1e-10, "the flow ends within 1e-6 of a minimum, where the loss is quadratic")
Rest = tuple[float, Tensor]
"""The loss and v U."""


def two_block_loss(law: Mixture, u: Tensor, v: Tensor) -> Tensor:
    """l~ or l_rdm, from the layer itself: the population loss without its constant (Lemma A.1)."""
    return population_loss(law, N)(whole(u, v)) - law.mean(torch.trace) / 2


@cache
def minima(law: Mixture, starts: int) -> list[Rest]:
    """Where the flow of this loss comes to rest, from normal starts."""
    found = []
    for seed in range(starts):
        flow = theory.flow.gradient_flow(
            lambda t: two_block_loss(law, t[1:].view(D, D), t[0]),
            normal(seed, D * D + 1),
            rtol=1e-6,  # every end has the same product v U, whatever the way there
        )
        assert flow.converged, flow.ended_because
        found.append((flow.loss(flow.end).item(), flow.end[0] * flow.end[1:].view(D, D)))
    return found


def starts_at(scale: Scale) -> int:
    return scale.pick(smoke=2, quick=10, paper=20)


@claim(
    "zhang2023/lemma5.3",
    "At every global minimum the product of the two blocks is the inverse of Gamma",
    source="Lemma 5.3, Eq. 5.6",
    formula=r"u_{-1} U_{11} = \Gamma^{-1}",
)
def product_at_minima(scale: Scale) -> Verdict:
    lam, found = LAW.covariances[0], minima(LAW, starts_at(scale))
    checks = checked_gammas(
        "largest relative distance of v U, where flows on l~ end, from the inverse of Gamma",
        LIMIT,
        lambda g: max(relative(product, torch.linalg.inv(g(lam, N))) for _, product in found),
    )
    return Verdict(checks, settings={"d": D, "N": N, "flows": len(found)})


@claim(
    "zhang2023/corollaryA.2",
    "The least value of the loss, and what any weights exceed it by",
    source="Corollary A.2",
    formula=r"\min \tilde\ell = -\frac{1}{2}\mathrm{tr}\left[\Lambda^2 \Gamma^{-1}\right],\qquad"
    r" \tilde\ell - \min\tilde\ell = \frac{1}{2} \left\| \Gamma^{1/2} \left(u_{-1} \Lambda^{1/2}"
    r" U_{11} \Lambda^{1/2} - \Lambda \Gamma^{-1}\right)\right\|_F^2",
)
def minimum_and_excess(scale: Scale) -> Verdict:
    lam, values = LAW.covariances[0], [value for value, _ in minima(LAW, starts_at(scale))]
    points = [random_weights(D, seed) for seed in range(DRAWS)]

    def least(g: GammaOf) -> float:
        return -0.5 * (lam @ lam @ torch.linalg.inv(g(lam, N))).trace().item()

    def excess_error(g: GammaOf) -> float:
        gaps = torch.stack([two_block_loss(LAW, *p) - least(gamma) for p in points])
        stated = torch.stack([printed_excess(g(lam, N), lam, *p) for p in points])
        return (gaps / stated - 1).abs().max().item()

    return Verdict(
        [
            *checked_gammas(
                "largest relative difference of l~ where flows end from the stated minimum",
                LEAST,
                lambda g: max(abs(value / least(g) - 1) for value in values),
            ),
            *checked_gammas("largest relative error of the excess", ROUNDING, excess_error),
        ],
        settings={"d": D, "N": N, "flows": len(values), "random (U, v)": DRAWS},
        remarks=[
            "In the fourth line of the proof the second trace should add its two terms, and in the "
            "fifth tr[Lambda^2 U Lambda^1/2] should be tr[Lambda^2 U]; the result is right."
        ],
    )


def printed_excess(g: Tensor, covariance: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """l~ - min l~ of Corollary A.2; U and v may be batches."""
    root = square_root(covariance)
    off = v[..., None, None] * root @ u @ root - covariance @ torch.linalg.inv(g)
    return 0.5 * (square_root(g) @ off).square().sum((-2, -1))


def entry_excess(coefficients: Coefficients, u: Tensor, v: Tensor) -> Tensor:
    """l_rdm - min l_rdm of Eq. C.7; U and v may be batches."""
    (g, xi, zeta), (diagonal, off) = coefficients, split(u)
    first = (g * (diagonal * v[..., None] - xi / g) ** 2).sum(-1)
    return (first + (zeta * (v[..., None, None] * off) ** 2).sum((-2, -1))) / 2


@claim(
    "zhang2023/lemmaC.4",
    "The least value of the loss with a random diagonal covariance, what weights exceed it by, and "
    "where it is attained",
    source="Lemma C.4, Eq. C.6 to C.8",
    formula=r"\begin{aligned} & \min\ell_{\mathrm{rdm}} = -\frac{1}{2}\sum_i \frac{\xi_i^2}"
    r"{\gamma_i},\qquad u_{-1} u_{ij} = \mathbf{1}_{i=j} \frac{\xi_i}{\gamma_i} \\ &"
    r" \ell_{\mathrm{rdm}} - \min\ell_{\mathrm{rdm}} = \frac{1}{2}\sum_i \gamma_i \left(u_{ii}"
    r" u_{-1} - \frac{\xi_i}{\gamma_i}\right)^2 + \frac{1}{2}\sum_{i \ne j} \zeta_{ij} u_{-1}^2"
    r" u_{ij}^2 \end{aligned}",
)
def random_minimum(scale: Scale) -> Verdict:
    found = minima(RANDOM, starts_at(scale))
    points = [random_weights(D, seed) for seed in range(DRAWS)]

    def least(stated: Coefficients) -> float:
        return -(stated[1] ** 2 / stated[0]).sum().item() / 2

    def least_error(stated: Coefficients) -> float:
        return max(abs(value / least(stated) - 1) for value, _ in found)

    def place_error(stated: Coefficients) -> float:
        product = torch.diag(stated[1] / stated[0])
        return max(relative(end, product) for _, end in found)

    def excess_error(stated: Coefficients) -> float:
        gaps = torch.stack([two_block_loss(RANDOM, *p) - least(stated) for p in points])
        return relative(torch.stack([entry_excess(stated, *p) for p in points]), gaps)

    candidates = {
        "as printed": coefficients(RANDOM, N),
        "the mean covariance": coefficients(RANDOM.averaged(), N),
        "N + 1 for N": coefficients(RANDOM, N + 1),
    }
    return Verdict(
        [
            *checked("relative difference of the minimum", LEAST, candidates, least_error),
            *checked("relative difference of v U at minima", LIMIT, candidates, place_error),
            *checked("relative error of the excess", ROUNDING, candidates, excess_error),
        ],
        settings={
            "law": "three diagonal covariances, entries that depend on each other",
            **{"d": D, "N": N, "flows": len(found)},
        },
    )
