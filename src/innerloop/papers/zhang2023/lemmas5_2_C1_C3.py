"""The loss of two blocks of weights, and its flow: Lemmas 5.2 and A.1; C.1, C.2 and C.3."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from innerloop.papers.common import relative
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Scale, Verdict
from innerloop.papers.zhang2023 import settings
from innerloop.papers.zhang2023.prompts import population_loss, whole
from innerloop.papers.zhang2023.settings import GammaOf, Mixture, as_stated, gamma, gamma_checks

Weights = tuple[Tensor, Tensor]
Coefficients = tuple[Tensor, Tensor]
"""xi [d], and zeta [d, d] with gamma in its diagonal."""
Setting = tuple[Mixture, int]
"""The law of covariances and the training length."""
FIXED = [(settings.fixed(d), n) for d, n in ((1, 3), (2, 1), (2, 2), (3, 10))]
"""The last by the closed form of the loss, the others by the layer itself."""
SETTINGS = {"(d, N)": "(1, 3), (2, 1), (2, 2), (3, 10)", "random (U, v)": 10}
DIAGONAL = {
    "exponential entries of means 1 and 0.5": (settings.exponential((1.0, 0.5)), 2),
    "entries that depend on each other": (settings.DEPENDENT, 1),
}
VELOCITY = "relative difference from minus the gradient of the exact loss in all weights"
VALUE = "relative difference of the loss plus tr(E Lambda)/2 from the exact loss"
SLOPE = "relative difference of minus the gradient from the stated flow"


def curved(g: GammaOf, law: Mixture, n: float, u: Tensor) -> Tensor:
    """E Gamma Lambda U Lambda."""
    return law.mean(lambda c: g(c, n) @ c @ u @ c)


def velocity(g: GammaOf, law: Mixture, n: float, u: Tensor, v: Tensor) -> Weights:
    """(dU_11/dt, du_{-1}/dt) of Eq. C.1; with one covariance Eq. 5.4."""
    bent, square = curved(g, law, n, u), law.square()
    return -(v**2) * bent + v * square, -((v * bent - square) @ u.mT).trace()


def printed_loss(g: GammaOf, law: Mixture, n: float, u: Tensor, v: Tensor) -> Tensor:
    """l~ of Eq. 5.5 and A.11; with several covariances the first line of Eq. C.5."""
    return (v**2 / 2 * curved(g, law, n, u) @ u.mT - v * law.square() @ u.mT).trace()


def coefficients(law: Mixture, n: float) -> Coefficients:
    """xi_i, zeta_ij and gamma_i = zeta_ii of Eq. C.3, for diagonal covariances."""

    def zeta(c: Tensor) -> Tensor:
        own = (n + 1) / n * c.diagonal() + c.trace() / n
        return torch.outer(own * c.diagonal(), c.diagonal())

    return law.square().diagonal(), law.mean(zeta)


def entry_velocity(coefficients: Coefficients, u: Tensor, v: Tensor) -> Weights:
    """Eq. C.4, entry by entry."""
    xi, zeta = coefficients
    return torch.diag(xi) * v - zeta * v**2 * u, xi @ u.diagonal() - (zeta * v * u**2).sum()


def entry_loss(coefficients: Coefficients, u: Tensor, v: Tensor) -> Tensor:
    """l_rdm by entries, the second line of Eq. C.5."""
    xi, zeta = coefficients
    return (zeta * v**2 * u**2).sum() / 2 - (xi * u.diagonal() * v).sum()


def points(setting: Setting) -> list[Weights]:
    return [settings.random_weights(setting[0].d, seed) for seed in range(10)]


def gradient(setting: Setting, u: Tensor, v: Tensor, outer: float = 0.0) -> Tensor:
    """Of the exact loss in all weights (p, v, U, r)."""
    theta = whole(u, v, outer).requires_grad_()
    return torch.autograd.grad(population_loss(*setting)(theta), theta)[0]


def velocity_error(setting: Setting, stated: Callable[..., Weights]) -> float:
    """From minus the gradient, which must be 0 in u_12 and u_21, so that the two stay 0."""
    return max(relative(whole(*stated(*p)), -gradient(setting, *p)) for p in points(setting))


def velocity_errors(every: list[Setting], g: GammaOf) -> float:
    return max(velocity_error(s, partial(velocity, g, *s)) for s in every)


def loss_error(setting: Setting, stated: Callable[..., Tensor]) -> float:
    """Of a loss plus tr(E Lambda)/2 from the exact one."""
    loss, constant = population_loss(*setting), setting[0].mean(torch.trace) / 2
    values = torch.stack([stated(*p) + constant for p in points(setting)])
    return relative(values, torch.stack([loss(whole(*p)) for p in points(setting)]))


def slope_error(of: Setting, stated: Callable[..., Tensor], flow: Callable[..., Weights]) -> float:
    """Of minus the gradient of a loss from a velocity."""
    errors = []
    for u, v in points(of):
        du, dv = torch.autograd.grad(stated(u.requires_grad_(), v.requires_grad_()), (u, v))
        errors.append(relative(-whole(du, dv), whole(*flow(u.detach(), v.detach()))))
    return max(errors)


@claim(
    "zhang2023/lemma5.2",
    "The gradient flow of the weights, written out: two blocks move, two stay zero",
    source="Lemma 5.2, Eq. 5.4",
    formula=r"\begin{aligned} & \dot U_{11} = -u_{-1}^2 \Gamma \Lambda U_{11} \Lambda + u_{-1}"
    r" \Lambda^2 \\ & \dot u_{-1} = -\mathrm{tr}\left[u_{-1} \Gamma \Lambda U_{11} \Lambda"
    r" U_{11}^\top - \Lambda^2 U_{11}^\top\right] \\ & u_{12} = u_{21} = 0 \end{aligned}",
)
def fixed_velocity(scale: Scale) -> Verdict:
    small = settings.fixed(2), 2

    def transposed(u: Tensor, v: Tensor) -> Weights:
        turned, v_velocity = velocity(gamma, *small, u.mT, v)
        return turned.mT, v_velocity

    def outer_speed(outer: float) -> Tensor:
        found = gradient(small, *settings.random_weights(2, 0), outer)
        return torch.cat([found[:2], found[-2:]]).abs().max()

    other = {"Lambda U Lambda Gamma": velocity_error(small, transposed)}
    inner = gamma_checks(VELOCITY, partial(velocity_errors, FIXED), others=other)
    name = "largest velocity of u_12 and u_21 where they are 0"
    outer = as_stated(name, 0.0, {"where they are 0.01": 0.01}, outer_speed)
    return Verdict([*inner, *outer], settings=SETTINGS)


@claim(
    "zhang2023/lemmaA.1",
    "The flow is that of a loss of two blocks alone, which is the expected loss up to a constant",
    source="Lemma A.1, Eq. A.11 and 5.5",
    formula=r"\tilde\ell(U_{11}, u_{-1}) = \mathrm{tr}\left[\frac{1}{2} u_{-1}^2 \Gamma \Lambda"
    r" U_{11} \Lambda U_{11}^\top - u_{-1} \Lambda^2 U_{11}^\top\right]",
)
def fixed_loss(scale: Scale) -> Verdict:
    def value(g: GammaOf) -> float:
        return max(loss_error(s, partial(printed_loss, g, *s)) for s in FIXED)

    def slope(g: GammaOf) -> float:
        flows = [partial(velocity, gamma, *s) for s in FIXED]
        losses = [partial(printed_loss, g, *s) for s in FIXED]
        return max(map(slope_error, FIXED, losses, flows))

    found = [*gamma_checks(VALUE, value), *gamma_checks(SLOPE, slope)]
    remark = "The constant, which the paper leaves out, is tr(Lambda)/2."
    return Verdict(found, settings=SETTINGS, remarks=[remark])


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
    every = [(settings.crossing(2), 2), (settings.crossing(3), 8)]
    mean = (velocity_error(s, partial(velocity, gamma, s[0].averaged(), s[1])) for s in every)
    other = {"the mean covariance": max(mean)}
    about = {"law": "three covariances that do not commute", "(d, N)": "(2, 2), (3, 8)"}
    found = gamma_checks(VELOCITY, partial(velocity_errors, every), others=other)
    return Verdict(found, settings=about)


def coefficient_checks(name: str, error: Callable[[Setting, Coefficients], float]) -> list[Check]:
    """The largest error over the diagonal laws."""
    stated = {s: coefficients(*s) for s in DIAGONAL.values()}
    mean = {(law, n): coefficients(law.averaged(), n)[1] for law, n in stated}
    own = torch.eye(2, dtype=torch.bool)
    wrong = {
        "zeta_ji for zeta_ij": {s: (xi, zeta.mT) for s, (xi, zeta) in stated.items()},
        "zeta_ij of the mean": {
            s: (xi, torch.where(own, zeta, mean[s])) for s, (xi, zeta) in stated.items()
        },
        "N + 1 for N": {(law, n): coefficients(law, n + 1) for law, n in stated},
    }

    return as_stated(name, stated, wrong, lambda of: max(error(*each) for each in of.items()))


@claim(
    "zhang2023/corollaryC.2",
    "With a random diagonal covariance the flow of every entry has its own coefficients",
    source="Corollary C.2, Eq. C.3 and C.4",
    formula=r"\begin{aligned} & \dot u_{ii} = -\gamma_i u_{-1}^2 u_{ii} + \xi_i u_{-1},\qquad"
    r" \dot u_{ij} = -\zeta_{ij} u_{-1}^2 u_{ij} \\ & \dot u_{-1} = -\sum_i \gamma_i u_{-1}"
    r" u_{ii}^2 - \sum_{i \ne j} \zeta_{ij} u_{-1} u_{ij}^2 + \sum_i \xi_i u_{ii} \end{aligned}",
)
def entries_of_the_flow(scale: Scale) -> Verdict:
    def error(setting: Setting, of: Coefficients) -> float:
        return velocity_error(setting, partial(entry_velocity, of))

    return Verdict(coefficient_checks(VELOCITY, error), settings={"laws": "; ".join(DIAGONAL)})


@claim(
    "zhang2023/lemmaC.3",
    "With a random diagonal covariance, too, the flow is that of a loss of two blocks alone",
    source="Lemma C.3, Eq. C.5",
    formula=r"\ell_{\mathrm{rdm}} = \frac{1}{2}\sum_i \gamma_i u_{-1}^2 u_{ii}^2 + \frac{1}{2}"
    r"\sum_{i \ne j} \zeta_{ij} u_{-1}^2 u_{ij}^2 - \sum_i \xi_i u_{ii} u_{-1}",
)
def random_loss(scale: Scale) -> Verdict:
    def slope(setting: Setting, of: Coefficients) -> float:
        flow = partial(entry_velocity, coefficients(*setting))
        return slope_error(setting, partial(entry_loss, of), flow)

    value = coefficient_checks(VALUE, lambda s, of: loss_error(s, partial(entry_loss, of)))
    found = [*value, *coefficient_checks(SLOPE, slope)]
    return Verdict(found, settings={"laws": "; ".join(DIAGONAL)})
