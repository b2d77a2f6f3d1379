"""A covariance drawn anew for every prompt: the loss and its flow, Lemmas C.1, C.3, C.4, C.5.

The expected loss is cubic in the covariance, so mixtures of a few covariances stand for any law of
the same moments: `exponential_mixture` is exact for the exponential entries of section 4.3. Against
the average of `theory.linear.single_layer_risk` over a mixture, the paper's formulas are typed in
here.
"""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import ALGEBRA, DTYPE
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Scale, Verdict
from innerloop.papers.zhang2023.convergence import balance_check
from innerloop.papers.zhang2023.settings import (
    LIMIT,
    RANDOM_LENGTH,
    WHY_LIMIT,
    correlated_mixture,
    exponential_mixture,
    gamma,
    random_runs,
    random_weights,
    rotated_mixture,
    whole,
)

N, D = RANDOM_LENGTH, 3
DRAWS = 20
Mixture = tuple[Tensor, Tensor]
"""Covariances and their probabilities."""


def exponential() -> Mixture:
    return exponential_mixture(torch.ones(D, dtype=DTYPE))


def averaged(mixture: Mixture) -> Mixture:
    """The control: every prompt has the mean covariance."""
    covariances, probabilities = mixture
    mean = torch.einsum("k,kij->ij", probabilities, covariances)
    return mean.unsqueeze(0), torch.ones(1, dtype=DTYPE)


def velocity(mixture: Mixture, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """(dU_11/dt, du_{-1}/dt) of Eq. C.1."""
    covariances, probabilities = mixture
    curved = sum(
        weight * gamma(c, N) @ c @ u @ c
        for weight, c in zip(probabilities, covariances, strict=True)
    )
    square = torch.einsum("k,kij->ij", probabilities, covariances @ covariances)
    return (
        -(v**2) * curved + v * square,
        -v * (curved @ u.mT).trace() + (square @ u.mT).trace(),
    )


Coefficients = tuple[Tensor, Tensor, Tensor]
"""gamma [d], xi [d] and zeta [d, d]."""


def entries(mixture: Mixture) -> Coefficients:
    """gamma_i, xi_i and zeta_ij of Eq. C.3, for diagonal covariances."""
    covariances, probabilities = mixture
    values = covariances.diagonal(dim1=-2, dim2=-1)  # [k, d]
    total = values.sum(-1, keepdim=True)

    def expected(of: Tensor) -> Tensor:
        return torch.tensordot(probabilities, of, dims=1)

    left, right = values.unsqueeze(-1), values.unsqueeze(-2)  # lambda_i and lambda_j
    return (
        expected((N + 1) / N * values**3 + values**2 * total / N),
        expected(values**2),
        expected((N + 1) / N * left**2 * right + left * right * total.unsqueeze(-1) / N),
    )


def entry_velocity(coefficients: Coefficients, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. C.4, entry by entry."""
    g, xi, zeta = coefficients
    diagonal, off = u.diagonal(), u - torch.diag(u.diagonal())
    return (
        torch.diag(-g * v**2 * diagonal + xi * v) - zeta * v**2 * off,
        -(g * v * diagonal**2).sum() - (zeta * v * off**2).sum() + (xi * diagonal).sum(),
    )


def velocity_error(mixture: Mixture, stated: list[tuple[Tensor, Tensor]]) -> float:
    """The largest relative error of velocities at the random weights, p and r included."""
    loss, errors = theory.flow.whole_layer_loss(*mixture, N), []
    for seed, (u_velocity, v_velocity) in enumerate(stated):
        theta = whole(*random_weights(D, seed)).requires_grad_()
        (gradient,) = torch.autograd.grad(loss(theta), theta)
        difference = gradient + whole(u_velocity, v_velocity)
        errors.append((difference.abs().max() / gradient.abs().max()).item())
    return max(errors)


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
def averaged_flow(scale: Scale) -> Verdict:
    mixture = rotated_mixture()
    points = [random_weights(D, seed) for seed in range(DRAWS)]
    stated = [velocity(mixture, *point) for point in points]
    mean = [velocity(averaged(mixture), *point) for point in points]
    return Verdict(
        [
            Check(
                "largest relative difference of Eq. C.1 from minus the gradient of the exact loss "
                "in all weights",
                velocity_error(mixture, stated),
                1e-12,
                velocity_error(mixture, mean),
                ALGEBRA,
                "Eq. C.1 of the mean covariance",
            )
        ],
        settings={"law": "three covariances that do not commute", "N": N, "random (U, v)": DRAWS},
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
    points = [random_weights(D, seed) for seed in range(DRAWS)]
    checks = []
    for name, mixture in (
        ("exponential entries", exponential()),
        ("entries that depend on each other", correlated_mixture()),
    ):
        stated = [entry_velocity(entries(mixture), *point) for point in points]
        mean = [entry_velocity(entries(averaged(mixture)), *point) for point in points]
        checks.append(
            Check(
                f"{name}: largest relative difference of Eq. C.4 from minus the gradient of the "
                "exact loss",
                velocity_error(mixture, stated),
                1e-12,
                velocity_error(mixture, mean),
                ALGEBRA,
                "Eq. C.4 of the mean covariance",
            )
        )
    zeta = entries(correlated_mixture())[2]
    return Verdict(
        checks,
        settings={
            "N": N,
            "random (U, v)": DRAWS,
            "zeta_12 and zeta_21": f"{zeta[0, 1]:.4f} and {zeta[1, 0]:.4f}: not symmetric",
        },
    )


def printed_loss(coefficients: Coefficients, u: Tensor, v: Tensor) -> Tensor:
    """l_rdm by entries, the second line of Eq. C.5."""
    g, xi, zeta = coefficients
    diagonal, off = u.diagonal(), u - torch.diag(u.diagonal())
    quadratic = (g * diagonal**2).sum() + (zeta * off**2).sum()
    return v**2 * quadratic / 2 - v * (xi * diagonal).sum()


@claim(
    "zhang2023/lemmaC.3",
    "With a random diagonal covariance, too, the flow is that of a loss of two blocks alone",
    source="Lemma C.3, Eq. C.5",
    formula=r"\ell_{\mathrm{rdm}} = \frac{1}{2}\sum_i \gamma_i u_{-1}^2 u_{ii}^2 + \frac{1}{2}"
    r"\sum_{i \ne j} \zeta_{ij} u_{-1}^2 u_{ij}^2 - \sum_i \xi_i u_{ii} u_{-1}",
)
def random_loss(scale: Scale) -> Verdict:
    mixture = exponential()
    loss = theory.flow.whole_layer_loss(*mixture, N)
    constant = torch.einsum("k,kii->", mixture[1], mixture[0]) / 2
    points = [random_weights(D, seed) for seed in range(DRAWS)]
    exact, mean = entries(mixture), entries(averaged(mixture))

    def value_error(candidate: Coefficients) -> float:
        losses = torch.stack([loss(whole(*point)) for point in points])
        values = torch.stack([printed_loss(candidate, *point) + constant for point in points])
        return ((values - losses).abs() / losses).max().item()

    def gradient_error(candidate: Coefficients) -> float:
        errors = []
        for u, v in points:
            weights = u.clone().requires_grad_(), v.clone().requires_grad_()
            slope_u, slope_v = torch.autograd.grad(printed_loss(candidate, *weights), weights)
            stated = entry_velocity(exact, u, v)
            difference = whole(slope_u, slope_v) + whole(*stated)
            errors.append((difference.abs().max() / whole(*stated).abs().max()).item())
        return max(errors)

    return Verdict(
        [
            Check(
                "largest relative difference of Eq. C.4 from minus the gradient of l_rdm",
                gradient_error(exact),
                1e-12,
                gradient_error(mean),
                ALGEBRA,
                "l_rdm of the mean covariance",
            ),
            Check(
                "largest relative difference of l_rdm + tr(E Lambda)/2 from the exact expected "
                "loss",
                value_error(exact),
                1e-12,
                value_error(mean),
                ALGEBRA,
                "l_rdm of the mean covariance",
            ),
        ],
        settings={"law": "independent exponential entries", "N": N, "random (U, v)": DRAWS},
    )


@claim(
    "zhang2023/lemmaC.4",
    "The least value of the loss with a random diagonal covariance, what weights exceed it by, and "
    "where it is attained",
    source="Lemma C.4, Eq. C.6 to C.8",
    formula=r"\min\ell_{\mathrm{rdm}} = -\frac{1}{2}\sum_i \frac{\xi_i^2}{\gamma_i},\qquad"
    r" \ell_{\mathrm{rdm}} - \min\ell_{\mathrm{rdm}} = \frac{1}{2}\sum_i \gamma_i \left(u_{ii}"
    r" u_{-1} - \frac{\xi_i}{\gamma_i}\right)^2 + \frac{1}{2}\sum_{i \ne j} \zeta_{ij} u_{-1}^2"
    r" u_{ij}^2",
)
def random_minimum(scale: Scale) -> Verdict:
    mixture = correlated_mixture()
    exact, mean = entries(mixture), entries(averaged(mixture))

    def least(candidate: Coefficients) -> float:
        g, xi, _ = candidate
        return -(xi**2 / g).sum().item() / 2

    def excess_error(candidate: Coefficients) -> float:
        g, xi, zeta = candidate
        errors = []
        for seed in range(DRAWS):
            u, v = random_weights(D, seed)
            off = u - torch.diag(u.diagonal())
            stated = (g * (u.diagonal() * v - xi / g) ** 2).sum() + (zeta * (v * off) ** 2).sum()
            excess = printed_loss(exact, u, v) - least(candidate)
            errors.append(abs((excess / (stated / 2) - 1).item()))
        return max(errors)

    ends = []
    for seed in range(scale.pick(smoke=2, quick=10, paper=20)):
        u, v = random_weights(D, seed)
        flow = theory.flow.gradient_flow(
            lambda theta: printed_loss(exact, theta[1:].view(D, D), theta[0]),
            torch.cat([v.view(1), u.flatten()]),
            rtol=1e-6,  # every end has the same product v U, whatever the way there
        )
        assert flow.converged, flow.ended_because
        ends.append((flow.loss(flow.end).item(), flow.end[0] * flow.end[1:].view(D, D)))

    def distance(candidate: Coefficients) -> list[float]:
        g, xi, _ = candidate
        return [(product - torch.diag(xi / g)).abs().max().item() for _, product in ends]

    return Verdict(
        [
            Check(
                "largest relative difference of l_rdm where its flow ends from the stated minimum",
                max(abs(value / least(exact) - 1) for value, _ in ends),
                1e-10,
                min(abs(value / least(mean) - 1) for value, _ in ends),
                "the flow ends within 1e-6 of a minimum, where the loss is quadratic",
                "the minimum for the mean covariance",
            ),
            Check(
                "largest relative error of the stated excess",
                excess_error(exact),
                1e-11,
                excess_error(mean),
                "float64 algebra; the difference of two losses loses a digit or two",
                "the excess for the mean covariance",
            ),
            Check(
                "largest entry of v U - diag(xi_i / gamma_i) where the flow ends",
                max(distance(exact)),
                LIMIT,
                min(distance(mean)),
                WHY_LIMIT,
                "xi_i / gamma_i of the mean covariance",
            ),
        ],
        settings={
            "law": "three diagonal covariances, entries that depend on each other",
            "N": N,
            "random starts": len(ends),
        },
    )


@claim(
    "zhang2023/lemmaC.5",
    "The two blocks stay balanced along the flow, with a random covariance too",
    source="Lemma C.5, Eq. C.9",
    formula=r"u_{-1}^2 = \mathrm{tr}\left[U_{11} U_{11}^\top\right] \text{ for all } t \ge 0",
)
def random_balance(scale: Scale) -> Verdict:
    runs = random_runs(scale)
    return Verdict(
        [balance_check(runs)],
        settings={
            "law": "independent exponential entries",
            "runs": "; ".join(r.name for r in runs),
        },
    )
