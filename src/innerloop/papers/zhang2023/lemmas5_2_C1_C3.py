"""The loss of two blocks of weights and its flow, with a fixed and a random covariance.

Lemmas 5.2 and A.1; C.1, C.2 and C.3. The formulas are typed in as printed, and compared with the
exact loss of all weights (`population_loss`) and its gradient.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop.papers.quantity import ROUNDING, Cases, Quantity
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.zhang2023.prompts import population_loss, whole
from innerloop.papers.zhang2023.settings import (
    GammaOf,
    Mixture,
    against_the_rest,
    crossing,
    dependent,
    exponential,
    fixed,
    gamma,
    gammas,
    random_weights,
    relative,
)

DRAWS = 10
Weights = tuple[Tensor, Tensor]
Of = Callable[[Tensor, Tensor], Weights]
Setting = tuple[Mixture, int]
"""The law of covariances and the training length."""
FIXED: list[tuple[int, int]] = [(1, 3), (2, 1), (2, 2), (3, 10)]
"""(d, N); the last by the closed form of the loss, the others by the layer itself."""
SETTINGS = {"(d, N)": str(FIXED)[1:-1], "random (U, v)": DRAWS}
RANDOM = {
    "covariances that do not commute": (crossing(2), 2),
    "the same, d = 3": (crossing(3), 8),
}
DIAGONAL = {
    "exponential entries of means 1 and 0.5": (exponential((1.0, 0.5)), 2),
    "entries that depend on each other": (dependent(), 1),
}


def curved(g: GammaOf, law: Mixture, n: float, u: Tensor) -> Tensor:
    """E Gamma Lambda U Lambda; U may be a batch."""
    return law.mean(lambda c: g(c, n) @ c @ u @ c)


def velocity(g: GammaOf, law: Mixture, n: float, u: Tensor, v: Tensor) -> Weights:
    """(dU_11/dt, du_{-1}/dt) of Eq. C.1; with one covariance Eq. 5.4. U and v may be batches."""
    bent, square, v_ = curved(g, law, n, u), law.mean(lambda c: c @ c), v[..., None, None]
    return -(v_**2) * bent + v_ * square, -((v_ * bent - square) * u).sum((-2, -1))


def printed_loss(g: GammaOf, law: Mixture, n: float, u: Tensor, v: Tensor) -> Tensor:
    """l~ of Eq. 5.5 and A.11; with several covariances the first line of Eq. C.5."""
    square = law.mean(lambda c: c @ c)
    return (v**2 / 2 * curved(g, law, n, u) @ u.mT - v * square @ u.mT).trace()


Coefficients = tuple[Tensor, Tensor, Tensor]
"""gamma [d], xi [d] and zeta [d, d]."""


def coefficients(law: Mixture, n: float) -> Coefficients:
    """gamma_i, xi_i and zeta_ij of Eq. C.3, for diagonal covariances."""

    def zeta(c: Tensor) -> Tensor:
        l, total = c.diagonal(), c.trace()
        return (n + 1) / n * torch.outer(l**2, l) + torch.outer(l, l) * total / n

    cubes = law.mean(lambda c: (n + 1) / n * c.diagonal() ** 3 + c.diagonal() ** 2 * c.trace() / n)
    return cubes, law.mean(lambda c: c.diagonal() ** 2), law.mean(zeta)


def split(u: Tensor) -> Weights:
    """The diagonal, and the rest; U may be a batch."""
    diagonal = u.diagonal(dim1=-2, dim2=-1)
    return diagonal, u - torch.diag_embed(diagonal)


def entry_velocity(coefficients: Coefficients, u: Tensor, v: Tensor) -> Weights:
    """Eq. C.4, entry by entry."""
    (g, xi, zeta), (diagonal, off) = coefficients, split(u)
    return (
        torch.diag(-g * v**2 * diagonal + xi * v) - zeta * v**2 * off,
        -(g * v * diagonal**2).sum() - (zeta * v * off**2).sum() + (xi * diagonal).sum(),
    )


def entry_loss(coefficients: Coefficients, u: Tensor, v: Tensor) -> Tensor:
    """l_rdm by entries, the second line of Eq. C.5."""
    (g, xi, zeta), (diagonal, off) = coefficients, split(u)
    quadratic = (g * diagonal**2).sum() / 2 + (zeta * off**2).sum() / 2
    return v**2 * quadratic - v * (xi * diagonal).sum()


def velocity_error(setting: Setting, stated: Of) -> float:
    """Of a velocity from minus the gradient of the exact loss, in all weights: those of u_12 and
    u_21 must be 0, wherever the others are, so that the two stay 0."""
    loss, errors = population_loss(*setting), []
    for seed in range(DRAWS):
        u, v = random_weights(setting[0].d, seed)
        theta = whole(u, v).requires_grad_()
        (gradient,) = torch.autograd.grad(loss(theta), theta)
        errors.append(relative(whole(*stated(u, v)), -gradient))
    return max(errors)


def loss_error(setting: Setting, stated: Callable[[Tensor, Tensor], Tensor]) -> float:
    """Of a loss plus tr(E Lambda)/2 from the exact one."""
    loss, constant = population_loss(*setting), setting[0].mean(torch.trace) / 2
    points = [random_weights(setting[0].d, seed) for seed in range(DRAWS)]
    values = torch.stack([stated(*point) + constant for point in points])
    return relative(values, torch.stack([loss(whole(*point)) for point in points]))


def slope_error(
    d: int, stated: Callable[[Tensor, Tensor], Tensor], velocity_of: Of, draws: int = DRAWS
) -> float:
    """Of minus the gradient of a loss from a velocity."""
    errors = []
    for seed in range(draws):
        weights = [t.requires_grad_() for t in random_weights(d, seed)]
        slopes = torch.autograd.grad(stated(*weights), weights)
        moved = velocity_of(*(t.detach() for t in weights))
        errors.append(relative(-whole(*slopes), whole(*moved)))
    return max(errors)


VELOCITY = "largest relative difference from minus the gradient of the exact loss in all weights"
VALUE = "largest relative difference of the loss plus tr(E Lambda)/2 from the exact loss"
SLOPE = "largest relative difference of minus the gradient from the stated flow"


def of_gammas(name: str, error: Callable[[Setting, GammaOf], float]) -> Cases:
    """The largest error over the fixed covariances, for Gamma and its near misses."""
    settings = [(fixed(d), n) for d, n in FIXED]
    return Quantity[GammaOf](
        name, lambda g: max(error(setting, g) for setting in settings), ROUNDING
    ).of(gammas())


@claim(
    "zhang2023/lemma5.2",
    "The gradient flow of the weights, written out: two blocks move, two stay zero",
    source="Lemma 5.2, Eq. 5.4",
    formula=r"\begin{aligned} & \dot U_{11} = -u_{-1}^2 \Gamma \Lambda U_{11} \Lambda + u_{-1}"
    r" \Lambda^2 \\ & \dot u_{-1} = -\mathrm{tr}\left[u_{-1} \Gamma \Lambda U_{11} \Lambda"
    r" U_{11}^\top - \Lambda^2 U_{11}^\top\right] \\ & u_{12} = u_{21} = 0 \end{aligned}",
)
def fixed_velocity(scale: Scale) -> Verdict:
    def error(setting: Setting, g: GammaOf) -> float:
        return velocity_error(setting, lambda u, v: velocity(g, *setting, u, v))

    def transposed(u: Tensor, v: Tensor) -> Weights:
        turned, v_velocity = velocity(gamma, fixed(2), 2, u.mT, v)
        return turned.mT, v_velocity

    loss = population_loss(fixed(2), 2)

    def outer_speed(outer: float) -> float:
        theta = whole(*random_weights(2, 0), outer).requires_grad_()
        (gradient,) = torch.autograd.grad(loss(theta), theta)
        return torch.cat([gradient[:2], gradient[-2:]]).abs().max().item()

    cases = of_gammas(VELOCITY, error)
    values = {**cases.values, "Lambda U Lambda Gamma": velocity_error((fixed(2), 2), transposed)}
    still = Quantity("largest velocity of u_12 and u_21", outer_speed, ROUNDING)
    return Verdict(
        [
            *against_the_rest(Cases(cases.quantity, cases.tolerance, values)),
            *against_the_rest(still.of({"where they are 0": 0.0, "where they are 0.01": 0.01})),
        ],
        settings=SETTINGS,
    )


@claim(
    "zhang2023/lemmaA.1",
    "The flow is that of a loss of two blocks alone, which is the expected loss up to a constant",
    source="Lemma A.1, Eq. A.11 and 5.5",
    formula=r"\tilde\ell(U_{11}, u_{-1}) = \mathrm{tr}\left[\frac{1}{2} u_{-1}^2 \Gamma \Lambda"
    r" U_{11} \Lambda U_{11}^\top - u_{-1} \Lambda^2 U_{11}^\top\right]",
)
def fixed_loss(scale: Scale) -> Verdict:
    def value(setting: Setting, g: GammaOf) -> float:
        return loss_error(setting, lambda u, v: printed_loss(g, *setting, u, v))

    def slope(setting: Setting, g: GammaOf) -> float:
        return slope_error(
            setting[0].d,
            lambda u, v: printed_loss(g, *setting, u, v),
            lambda u, v: velocity(gamma, *setting, u, v),
        )

    return Verdict(
        [*against_the_rest(of_gammas(VALUE, value)), *against_the_rest(of_gammas(SLOPE, slope))],
        settings=SETTINGS,
        remarks=["The constant, which the paper leaves out, is tr(Lambda)/2."],
    )


@claim(
    "zhang2023/lemmaC.1",
    "With a random covariance the flow is the average of the flows of each",
    source="Lemma C.1, Eq. C.1",
    formula=r"\begin{aligned} & \dot U_{11} = -u_{-1}^2\, \mathbb{E}\left[\Gamma_\tau \Lambda_\tau"
    r" U_{11} \Lambda_\tau\right] + u_{-1}\, \mathbb{E}\,\Lambda_\tau^2 \\ & \dot u_{-1} = -u_{-1}"
    r"\,\mathrm{tr}\,\mathbb{E}\left[\Gamma_\tau \Lambda_\tau U_{11} \Lambda_\tau"
    r" U_{11}^\top\right] + \mathrm{tr}\left(\mathbb{E}\,\Lambda_\tau^2\, U_{11}^\top\right)"
    r" \\ & u_{12} = u_{21} = 0 \end{aligned}",
)
def random_velocity(scale: Scale) -> Verdict:
    def error(g: GammaOf, *, averaged: bool = False) -> float:
        def stated(law: Mixture, n: int) -> Of:
            used = law.averaged() if averaged else law
            return lambda u, v: velocity(g, used, n, u, v)

        return max(velocity_error(setting, stated(*setting)) for setting in RANDOM.values())

    cases = Quantity[GammaOf](VELOCITY, error, ROUNDING).of(gammas())
    values = {**cases.values, "the mean covariance": error(gamma, averaged=True)}
    return Verdict(
        against_the_rest(Cases(cases.quantity, cases.tolerance, values)),
        settings={"law": "three covariances that do not commute", "(d, N)": "(2, 2), (3, 8)"},
    )


def of_coefficients(name: str, error: Callable[[Setting, Coefficients], float]) -> Cases:
    """The largest error over the diagonal laws, for the coefficients and near misses of them."""

    def largest(wrong: Callable[[Mixture, int], Coefficients]) -> float:
        return max(error(setting, wrong(*setting)) for setting in DIAGONAL.values())

    def transposed(law: Mixture, n: int) -> Coefficients:
        g, xi, zeta = coefficients(law, n)
        return g, xi, zeta.mT

    def independent(law: Mixture, n: int) -> Coefficients:
        """zeta_ij with E of a product as the product of E."""
        g, xi, _ = coefficients(law, n)
        return g, xi, coefficients(law.averaged(), n)[2]

    return Quantity[Callable[[Mixture, int], Coefficients]](name, largest, ROUNDING).of(
        {
            "Eq. C.3": coefficients,
            "zeta_ji for zeta_ij": transposed,
            "zeta_ij of the mean covariance": independent,
            "N + 1 for N": lambda law, n: coefficients(law, n + 1),
        }
    )


@claim(
    "zhang2023/corollaryC.2",
    "With a random diagonal covariance the flow of every entry has its own coefficients",
    source="Corollary C.2, Eq. C.3 and C.4",
    formula=r"\begin{aligned} & \dot u_{ii} = -\gamma_i u_{-1}^2 u_{ii} + \xi_i u_{-1},\qquad"
    r" \dot u_{ij} = -\zeta_{ij} u_{-1}^2 u_{ij} \\ & \dot u_{-1} = -\sum_i \gamma_i u_{-1}"
    r" u_{ii}^2 - \sum_{i \ne j} \zeta_{ij} u_{-1} u_{ij}^2 + \sum_i \xi_i u_{ii} \end{aligned}",
)
def entries_of_the_flow(scale: Scale) -> Verdict:
    def error(setting: Setting, stated: Coefficients) -> float:
        return velocity_error(setting, lambda u, v: entry_velocity(stated, u, v))

    return Verdict(
        against_the_rest(of_coefficients(VELOCITY, error)),
        settings={"laws": "; ".join(DIAGONAL), "random (U, v)": DRAWS},
    )


@claim(
    "zhang2023/lemmaC.3",
    "With a random diagonal covariance, too, the flow is that of a loss of two blocks alone",
    source="Lemma C.3, Eq. C.5",
    formula=r"\ell_{\mathrm{rdm}} = \frac{1}{2}\sum_i \gamma_i u_{-1}^2 u_{ii}^2 + \frac{1}{2}"
    r"\sum_{i \ne j} \zeta_{ij} u_{-1}^2 u_{ij}^2 - \sum_i \xi_i u_{ii} u_{-1}",
)
def random_loss(scale: Scale) -> Verdict:
    def value(setting: Setting, stated: Coefficients) -> float:
        return loss_error(setting, lambda u, v: entry_loss(stated, u, v))

    def slope(setting: Setting, stated: Coefficients) -> float:
        exact = coefficients(*setting)
        return slope_error(
            setting[0].d,
            lambda u, v: entry_loss(stated, u, v),
            lambda u, v: entry_velocity(exact, u, v),
        )

    return Verdict(
        [
            *against_the_rest(of_coefficients(VALUE, value)),
            *against_the_rest(of_coefficients(SLOPE, slope)),
        ],
        settings={"laws": "; ".join(DIAGONAL), "random (U, v)": DRAWS},
    )
