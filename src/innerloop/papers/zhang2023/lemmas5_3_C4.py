"""The minima of the loss: Lemma 5.3 and Corollary A.2, Lemma C.4."""

from functools import cache, partial

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import normal, relative, square_root
from innerloop.papers.quantity import at_most
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.zhang2023 import prompts, settings
from innerloop.papers.zhang2023.lemmas5_2_C1_C3 import Coefficients, coefficients
from innerloop.papers.zhang2023.settings import LIMIT, GammaOf, Mixture, gamma, gamma_checks

LAW, RANDOM, D, N = settings.fixed(2), settings.DEPENDENT, 2, 2
POINTS = [settings.random_weights(D, seed) for seed in range(20)]
LEAST = at_most(1e-10, "the flow ends within 1e-6 of a minimum, where the loss is quadratic")


def two_block_loss(law: Mixture, u: Tensor, v: Tensor) -> Tensor:
    """l~ or l_rdm, from the layer itself: the population loss without its constant (Lemma A.1)."""
    return prompts.population_loss(law, N)(prompts.whole(u, v)) - law.mean(torch.trace) / 2


@cache
def minima(law: Mixture, scale: Scale) -> tuple[list[float], list[Tensor]]:
    """The losses and the products v U where the flow comes to rest, from normal starts."""
    losses, products = [], []
    for seed in range(scale.pick(smoke=2, quick=10, paper=20)):
        flow = theory.flow.gradient_flow(
            lambda t: two_block_loss(law, t[1:].view(D, D), t[0]),
            normal(seed, D * D + 1),
            rtol=1e-6,  # every end has the same product v U, whatever the way there
        )
        assert flow.converged, flow.ended_because
        losses.append(flow.loss(flow.end).item())
        products.append(flow.end[0] * flow.end[1:].view(D, D))
    return losses, products


def printed_excess(g: Tensor, covariance: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """l~ - min l~ of Corollary A.2."""
    root = square_root(covariance)
    off = v * root @ u @ root - covariance @ torch.linalg.inv(g)
    return (square_root(g) @ off).square().sum() / 2


def entry_excess(coefficients: Coefficients, u: Tensor, v: Tensor) -> Tensor:
    """l_rdm - min l_rdm of Eq. C.7."""
    xi, zeta = coefficients
    return (zeta * (v * u - torch.diag(xi / zeta.diagonal())) ** 2).sum() / 2


@claim(
    "zhang2023/lemma5.3",
    "At every global minimum the product of the two blocks is the inverse of Gamma",
    source="Lemma 5.3, Eq. 5.6",
    formula=r"u_{-1} U_{11} = \Gamma^{-1}",
)
def product_at_minima(scale: Scale) -> Verdict:
    lam, (_, products) = LAW.covariances[0], minima(LAW, scale)
    found = gamma_checks(
        "relative distance of v U, where flows on l~ end, from the inverse of Gamma",
        lambda g: max(relative(p, torch.linalg.inv(g(lam, N))) for p in products),
        LIMIT,
    )
    return Verdict(found, settings={"d": D, "N": N, "flows": len(products)})


@claim(
    "zhang2023/corollaryA.2",
    "The least value of the loss, and what any weights exceed it by",
    source="Corollary A.2",
    formula=r"\min \tilde\ell = -\frac{1}{2}\mathrm{tr}\left[\Lambda^2 \Gamma^{-1}\right],\qquad"
    r" \tilde\ell - \min\tilde\ell = \frac{1}{2} \left\| \Gamma^{1/2} \left(u_{-1} \Lambda^{1/2}"
    r" U_{11} \Lambda^{1/2} - \Lambda \Gamma^{-1}\right)\right\|_F^2",
)
def minimum_and_excess(scale: Scale) -> Verdict:
    lam, (losses, _) = LAW.covariances[0], minima(LAW, scale)

    def least(g: GammaOf) -> float:
        return -0.5 * (lam @ lam @ torch.linalg.inv(g(lam, N))).trace().item()

    def excess_error(g: GammaOf) -> float:
        exact = (two_block_loss(LAW, *p) - least(gamma) for p in POINTS)
        stated = (printed_excess(g(lam, N), lam, *p) for p in POINTS)
        return max(abs(a / b - 1).item() for a, b in zip(exact, stated, strict=True))

    def least_error(g: GammaOf) -> float:
        return max(abs(loss / least(g) - 1) for loss in losses)

    minimum = gamma_checks("relative error of the minimum, where flows end", least_error, LEAST)
    return Verdict(
        [*minimum, *gamma_checks("relative error of the excess", excess_error)],
        settings={"d": D, "N": N, "flows": len(losses), "random (U, v)": len(POINTS)},
        remarks=[
            "In the fourth line of the proof the second trace should add its two terms, and in the "
            "fifth tr[Lambda^2 U Lambda^1/2] should be tr[Lambda^2 U]; the result is right."
        ],
    )


@claim(
    "zhang2023/lemmaC.4",
    "The least loss with a random diagonal covariance, where it is, and what weights exceed it by",
    source="Lemma C.4, Eq. C.6 to C.8",
    formula=r"\begin{aligned} & \min\ell_{\mathrm{rdm}} = -\frac{1}{2}\sum_i \frac{\xi_i^2}"
    r"{\gamma_i},\qquad u_{-1} u_{ij} = \mathbf{1}_{i=j} \frac{\xi_i}{\gamma_i} \\ &"
    r" \ell_{\mathrm{rdm}} - \min\ell_{\mathrm{rdm}} = \frac{1}{2}\sum_i \gamma_i \left(u_{ii}"
    r" u_{-1} - \frac{\xi_i}{\gamma_i}\right)^2 + \frac{1}{2}\sum_{i \ne j} \zeta_{ij} u_{-1}^2"
    r" u_{ij}^2 \end{aligned}",
)
def random_minimum(scale: Scale) -> Verdict:
    losses, products = minima(RANDOM, scale)

    def least(stated: Coefficients) -> float:
        return -(stated[0] ** 2 / stated[1].diagonal()).sum().item() / 2

    def least_error(stated: Coefficients) -> float:
        return max(abs(loss / least(stated) - 1) for loss in losses)

    def place_error(stated: Coefficients) -> float:
        return max(relative(p, torch.diag(stated[0] / stated[1].diagonal())) for p in products)

    def excess_error(stated: Coefficients) -> float:
        exact = torch.stack([two_block_loss(RANDOM, *p) - least(stated) for p in POINTS])
        return relative(torch.stack([entry_excess(stated, *p) for p in POINTS]), exact)

    wrong = {
        "the mean covariance": coefficients(RANDOM.averaged(), N),
        "N + 1 for N": coefficients(RANDOM, N + 1),
    }
    error = partial(settings.as_stated, right=coefficients(RANDOM, N), wrong=wrong)
    minimum = error("relative error of the minimum", measure=least_error, tolerance=LEAST)
    place = error("relative error of v U at minima", measure=place_error, tolerance=LIMIT)
    excess = error("relative error of the excess", measure=excess_error)
    about = {"law": "three diagonal ones, entries that depend on each other", "d": D, "N": N}
    return Verdict([*minimum, *place, *excess], settings=about | {"flows": len(losses)})
