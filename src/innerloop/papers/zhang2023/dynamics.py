"""The loss of one layer and its gradient flow, written out: section 5.2, Lemma A.1, Corollary A.2.

Statements are checked against `theory.flow.whole_layer_loss`, the exact expected loss of a layer
with all of its weights; the formulas of the paper are typed in here as they are printed.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import ALGEBRA, generator, square_root
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Scale, Verdict
from innerloop.papers.zhang2023.settings import (
    LENGTHS,
    LIMIT,
    WHY_LIMIT,
    fixed,
    fixed_model,
    gamma,
    random_weights,
    whole,
    whole_loss,
)

DIMENSION = 3
LAMBDA, N = fixed(DIMENSION), LENGTHS[DIMENSION]
GAMMA = gamma(LAMBDA, N)
SETTINGS = {"Lambda": "eigenvalues 1.5, 0.8, 0.4 and random eigenvectors", "N": N}
NO_GAMMA = "Gamma without its terms in 1/N"
DRAWS = 20


def printed_velocity(u: Tensor, v: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """(dU_11/dt, du_{-1}/dt) of Eq. 5.4 with g for Gamma."""
    curved = g @ LAMBDA @ u @ LAMBDA
    square = LAMBDA @ LAMBDA
    return (
        -(v**2) * curved + v * square,
        -(v * curved @ u.mT - square @ u.mT).trace(),
    )


@claim(
    "zhang2023/lemma5.2",
    "The gradient flow of the weights, written out: two blocks move, two stay zero",
    source="Lemma 5.2, Eq. 5.4",
    formula=r"\begin{aligned} & \dot U_{11} = -u_{-1}^2 \Gamma \Lambda U_{11} \Lambda + u_{-1}"
    r" \Lambda^2 \\ & \dot u_{-1} = -\mathrm{tr}\left[u_{-1} \Gamma \Lambda U_{11} \Lambda"
    r" U_{11}^\top - \Lambda^2 U_{11}^\top\right] \\ & u_{12} = u_{21} = 0 \end{aligned}",
)
def velocity(scale: Scale) -> Verdict:
    loss, d = whole_loss(DIMENSION), DIMENSION

    def error(g: Tensor) -> float:
        """The largest relative error over all weights, p and r included."""
        errors = []
        for seed in range(DRAWS):
            u, v = random_weights(d, seed)
            theta = whole(u, v).requires_grad_()
            (gradient,) = torch.autograd.grad(loss(theta), theta)
            stated = whole(*printed_velocity(u, v, g))
            errors.append(((gradient + stated).abs().max() / stated.abs().max()).item())
        return max(errors)

    def outer_weights(outer: float) -> float:
        """The largest |p| or |r| on the whole path."""
        model = fixed_model(d)
        direction = theory.flow.balanced_direction(d, generator(0))
        start = model.start(direction, 0.5 * model.largest_scale(direction))
        path = theory.flow.gradient_flow(loss, whole(*start, outer)).path
        return torch.cat([path[:, :d], path[:, -d:]], dim=1).abs().max().item()

    return Verdict(
        [
            Check(
                "largest relative difference of Eq. 5.4 from minus the gradient of the exact loss "
                "in all weights",
                error(GAMMA),
                1e-12,
                error(LAMBDA),
                ALGEBRA,
                NO_GAMMA,
            ),
            Check(
                "largest entry of u_12 and u_21 on the whole path",
                outer_weights(0.0),
                1e-12,
                outer_weights(0.01),
                "their velocity is zero where they are: nothing but rounding moves them",
                "a start with 0.01 in every entry of u_12 and u_21",
            ),
        ],
        settings=SETTINGS | {"random (U, v)": DRAWS},
    )


def printed_loss(u: Tensor, v: Tensor, g: Tensor = GAMMA) -> Tensor:
    """l~ of Eq. 5.5."""
    square = LAMBDA @ LAMBDA
    return (v**2 / 2 * g @ LAMBDA @ u @ LAMBDA @ u.mT - v * square @ u.mT).trace()


@claim(
    "zhang2023/lemmaA.1",
    "The flow is that of a loss of two blocks alone, which is the expected loss up to a constant",
    source="Lemma A.1, Eq. A.11 and 5.5",
    formula=r"\tilde\ell(U_{11}, u_{-1}) = \mathrm{tr}\left[\frac{1}{2} u_{-1}^2 \Gamma \Lambda"
    r" U_{11} \Lambda U_{11}^\top - u_{-1} \Lambda^2 U_{11}^\top\right]",
)
def equivalent_loss(scale: Scale) -> Verdict:
    loss, constant = whole_loss(DIMENSION), LAMBDA.trace() / 2

    def value_error(g: Tensor) -> float:
        points = [random_weights(DIMENSION, seed) for seed in range(DRAWS)]
        values = torch.stack([printed_loss(*point, g) + constant for point in points])
        exact = torch.stack([loss(whole(*point)) for point in points])
        return ((values - exact).abs() / exact).max().item()

    def gradient_error(g: Tensor) -> float:
        errors = []
        for seed in range(DRAWS):
            u, v = random_weights(DIMENSION, seed)
            u.requires_grad_(), v.requires_grad_()
            slopes = torch.autograd.grad(printed_loss(u, v, g), (u, v))
            stated = printed_velocity(u.detach(), v.detach(), GAMMA)
            differences = [(a + b).abs().max() for a, b in zip(slopes, stated, strict=True)]
            largest = max(part.abs().max() for part in stated)
            errors.append((max(differences) / largest).item())
        return max(errors)

    return Verdict(
        [
            Check(
                "largest relative difference of Eq. 5.4 from minus the gradient of l~",
                gradient_error(GAMMA),
                1e-12,
                gradient_error(LAMBDA),
                ALGEBRA,
                NO_GAMMA,
            ),
            Check(
                "largest relative difference of l~ + tr(Lambda)/2 from the exact expected loss",
                value_error(GAMMA),
                1e-12,
                value_error(LAMBDA),
                ALGEBRA,
                NO_GAMMA,
            ),
        ],
        settings=SETTINGS
        | {"random (U, v)": DRAWS, "the constant": "tr(Lambda)/2, which the paper leaves out"},
    )


@cache
def found_minima(scale: Scale) -> list[tuple[float, Tensor, Tensor]]:
    """(l~, U, v) where the flow of the printed loss ends, from normal starts."""
    d, minima = DIMENSION, []
    for seed in range(scale.pick(smoke=2, quick=10, paper=20)):
        u, v = random_weights(d, seed)
        flow = theory.flow.gradient_flow(
            lambda theta: printed_loss(theta[1:].view(d, d), theta[0]),
            torch.cat([v.view(1), u.flatten()]),
            rtol=1e-6,  # every end has the same product v U, whatever the way there
        )
        assert flow.converged, flow.ended_because
        end = flow.end[1:].view(d, d), flow.end[0]
        minima.append((printed_loss(*end).item(), *end))
    return minima


@claim(
    "zhang2023/lemma5.3",
    "At every global minimum the product of the two blocks is the inverse of Gamma",
    source="Lemma 5.3, Eq. 5.6",
    formula=r"u_{-1} U_{11} = \Gamma^{-1}",
)
def product_at_minima(scale: Scale) -> Verdict:
    minima = found_minima(scale)
    inverse, far = torch.linalg.inv(GAMMA), torch.linalg.inv(LAMBDA)

    def distance(target: Tensor) -> Tensor:
        return torch.stack([(v * u - target).norm() / target.norm() for _, u, v in minima])

    return Verdict(
        [
            Check(
                "largest relative distance of v U from Gamma^-1 where gradient flow on l~ ends",
                distance(inverse).max().item(),
                LIMIT,
                distance(far).min().item(),
                WHY_LIMIT,
                "the distance from Lambda^-1",
            )
        ],
        settings=SETTINGS
        | {
            "random starts": len(minima),
            "of these, ended with v < 0 (and the same product)": sum(
                1 for _, _, v in minima if v < 0
            ),
        },
    )


@claim(
    "zhang2023/corollaryA.2",
    "The least value of the loss, and what any weights exceed it by",
    source="Corollary A.2",
    formula=r"\min \tilde\ell = -\frac{1}{2}\mathrm{tr}\left[\Lambda^2 \Gamma^{-1}\right],\qquad"
    r" \tilde\ell - \min\tilde\ell = \frac{1}{2} \left\| \Gamma^{1/2} \left(u_{-1} \Lambda^{1/2}"
    r" U_{11} \Lambda^{1/2} - \Lambda \Gamma^{-1}\right)\right\|_F^2",
)
def minimum_and_excess(scale: Scale) -> Verdict:
    root = square_root(LAMBDA)

    def least(g: Tensor) -> float:
        return -0.5 * (LAMBDA @ LAMBDA @ torch.linalg.inv(g)).trace().item()

    def excess_error(g: Tensor) -> float:
        errors = []
        for seed in range(DRAWS):
            u, v = random_weights(DIMENSION, seed)
            off = v * root @ u @ root - LAMBDA @ torch.linalg.inv(g)
            stated = 0.5 * (square_root(g) @ off).square().sum()
            errors.append(abs(((printed_loss(u, v) - least(g)) / stated - 1).item()))
        return max(errors)

    values = [value for value, _, _ in found_minima(scale)]
    return Verdict(
        [
            Check(
                "largest relative difference of l~ where its flow ends from the stated minimum",
                max(abs(value / least(GAMMA) - 1) for value in values),
                1e-10,
                min(abs(value / least(LAMBDA) - 1) for value in values),
                "the flow ends within 1e-6 of a minimum, where the loss is quadratic",
                NO_GAMMA,
            ),
            Check(
                "largest relative error of the stated excess",
                excess_error(GAMMA),
                1e-11,
                excess_error(LAMBDA),
                "float64 algebra; the difference of two losses loses a digit or two",
                NO_GAMMA,
            ),
        ],
        settings=SETTINGS
        | {
            "stated minimum": round(least(GAMMA), 6),
            "misprints of the proof": "in its fourth line the second trace should add its two "
            "terms, and in its fifth tr[Lambda^2 U Lambda^1/2] should be tr[Lambda^2 U]; the "
            "result is right",
        },
    )
