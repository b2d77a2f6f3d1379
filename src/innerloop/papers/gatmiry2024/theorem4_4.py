"""Small loss means close to the optimum: Theorem 4.4 and Lemma A.9 of Gatmiry et al. (2024).

*For every n* (ours). For A >= 0 with eigenvalues lambda_i of A^1/2 Sigma* A^1/2, |M|_F^2 >= tr M^2
and Jensen's inequality in every eigenvector give

    L(A, 0) >= E tr (I - A^1/2 S A^1/2)^{2L} >= sum_i (1 - lambda_i)^{2L}.

So all |1 - lambda_i| are at most s = L(A, 0)^{1/(2L)}, and so is 1 - a* of the best symmetric A,
a*/Sigma*, whose loss is lower still: A is within 2 s/(1 - s) of it.
"""

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers import Check, Correction, Kind, Scale, Verdict, claim
from innerloop.papers.common import identity, normal, relative, rotated
from innerloop.papers.gatmiry2024 import settings
from innerloop.papers.gatmiry2024.settings import (
    accuracy,
    between,
    looped_loss,
    power,
    sheared,
    word_loss,
)
from innerloop.papers.quantity import INEQUALITY, ROUNDING, at_most, checks
from innerloop.tasks import LinearRegression

LOOPS, D, LONG = 2, 2, 10**20
"""At n = 1e20 the printed radii are below 1, and say something."""


def white_loss(t: float, n: int) -> float:
    """L(I - t E_12, 0)."""
    return word_loss(settings.white(D, n), LOOPS)(sheared(t)).item()


def order_distance(a: Tensor, task: LinearRegression, loops: int) -> float:
    """From the best symmetric A."""
    step = 1 - float(theory.linear.optimal_gap(loops, task.n, D))
    return settings.order_distance(a, step, task.covariance)


def random_points(scale: Scale) -> list[tuple[float, float, float, int]]:
    """sum_i (1 - lambda_i)^2L, the loss, the order distance and L of random A >= 0."""
    points = []
    for n, loops in ((5, 1), (10, 2), (10_000, 2)):
        task = LinearRegression.with_inverse_prior(rotated([1.0, 0.3], seed=0), n)
        outer, loss = power(task.covariance, -0.5), word_loss(task, loops)
        for seed in range(scale.pick(smoke=10, quick=100, paper=1000)):
            root = identity(D) + (0.2, 0.6, 1.5)[seed % 3] * normal(seed, D, D)
            a = outer @ root @ root.mT @ outer
            values = torch.linalg.eigvalsh(between(task.covariance, a))
            total = ((1 - values) ** (2 * loops)).sum().item()
            points.append((total, loss(a).item(), order_distance(a, task, loops), loops))
    return points


def corrected_checks(scale: Scale) -> list[Check]:
    points = random_points(scale)
    jensen = max(total / loss for total, loss, *_ in points)

    def use(loss: float, distance: float, loops: int) -> float:
        s = loss ** (1 / (2 * loops))
        return distance * (1 - s) / (2 * s)  # negative where s > 1 and the radius says nothing

    def limit(t: float) -> float:
        near, far = (n * white_loss(t, n) for n in (10**4, 10**5))
        return (10 * far - near) / 9

    wrong = order_distance(sheared(1.0), settings.white(D, 10_000), LOOPS)
    task = settings.white(D, 300)
    return [
        *checks(
            f"largest ratio, {len(points)} random A >= 0, n = 5 to 1e4, of",
            INEQUALITY,
            {
                "sum_i (1 - lambda_i)^2L to L(A, 0)": jensen,
                "order distance from A_opt to 2s/(1 - s), s < 1": max(use(*p[1:]) for p in points),
            },
            unlike={
                "1.05 times the sum": 1.05 * jensen,
                "that of I - E_12, n = 1e4": use(white_loss(1.0, 10_000), wrong, LOOPS),
            },
        ),
        *checks(
            "n L(I - t E_12, 0), extrapolated from n = 1e4 and 1e5: relative difference from "
            "t^2 (c + t^2), largest of t = 1, 2, 3",
            at_most(1e-5, "what is left after extrapolation is of order 1/n^2 times a constant"),
            {"c = 6": 6.0},
            unlike={"c = 5.9": 5.9},
            measure=lambda c: max(abs(limit(t) / (t**2 * (c + t**2)) - 1) for t in (1.0, 2.0, 3.0)),
        ),
        *checks(
            "relative difference of the loss of I - 2 E_12 in words, n = 300, from that of",
            ROUNDING,
            {"I - 2 E_12, forward pass": 2.0},
            unlike={"I - 2.01 E_12, forward pass": 2.01},
            measure=lambda t: relative(white_loss(2.0, 300), looped_loss(sheared(t), task, LOOPS)),
        ),
    ]


def closeness(scale: Scale, epsilon: str, level: float, radius: float) -> Verdict:
    """`level` is what the loss must not exceed, and `radius` what is stated, at this epsilon."""

    def share(t: float) -> float:
        assert white_loss(t, LONG) <= level
        return order_distance(sheared(t), settings.white(D, LONG), LOOPS) / radius

    return Verdict(
        checks(
            "order distance of I - t E_12 from A_opt over the radius, L = d = 2, n = 1e20",
            INEQUALITY,
            {"t = 3": 3.0},
            unlike={"t = 2": 2.0},
            measure=share,
        ),
        corrected_checks(scale),
        Correction(
            r"L(A, 0) \le \cdots \Rightarrow (1 - r) A^{opt} \preceq A \preceq (1 + r) A^{opt}",
            r"\begin{aligned} & A \succeq 0 \;\Rightarrow\; (1 - r) A^{opt} \preceq A \preceq "
            r"(1 + r) A^{opt}, \\ & r = \frac{2s}{1 - s},\quad s = L(A, 0)^{\frac{1}{2L}} < 1, "
            r"\\ & \text{for every } n,\quad A^{opt} = a^* \Sigma^{*-1} \end{aligned}",
            "The statement is about any A, its proof about the square root of A. Where I - A is "
            "nilpotent, the loss vanishes as n grows: L(I - t E_12, 0) is t^2 (6 + t^2)/n to "
            "leading order for L = d = 2. For A >= 0 Jensen's inequality bounds the distance by "
            "the loss, with a smaller radius and without epsilon > 4 delta.",
            Kind.STATEMENT,
            f"L = d = 2, n = 1e20, epsilon = {epsilon}, A = I - 3 E_12: the loss is "
            f"{3**2 * (6 + 3**2) / LONG:.0e}, {level:.0e} is admitted, and the symmetric part of A "
            f"has the eigenvalue -1/2, with a radius of {radius:.2f}.",
        ),
        settings={"Sigma*": "I for I - t E_12; eigenvalues 1, 0.3, rotated, for A >= 0"},
    )


@claim(
    "gatmiry2024/theorem4.4",
    "A preconditioner with a small loss is close to the optimal one",
    source="Theorem 4.4",
    formula=r"\begin{aligned} & L(A, 0) \le \tfrac{1}{2} \epsilon^{2L},\; \epsilon > 4\delta"
    r"\;\Rightarrow\; (1 - c\epsilon) A^{opt} \preceq A \preceq (1 + c\epsilon) A^{opt}, \\ & c = "
    r"4 + 16 d^{1/(2L)} \end{aligned}",
)
def small_loss_is_close(scale: Scale) -> Verdict:
    epsilon = 4.1 * accuracy(LOOPS, LONG, D)
    radius = (4 + 16 * D ** (1 / (2 * LOOPS))) * epsilon
    return closeness(scale, "4.1 delta", epsilon ** (2 * LOOPS) / 2, radius)


@claim(
    "gatmiry2024/lemmaA.9",
    "Theorem 4.4 again, with other constants",
    source="Lemma A.9",
    formula=r"\begin{aligned} & L(A, 0) \le \epsilon^{2L} - \delta^{2L} (\epsilon + 2)^{2L},\; "
    r"\epsilon > 2\delta\;\Rightarrow\; (1 - r) A^{opt} \preceq A \preceq (1 + r) A^{opt}, \\ & "
    r"r = 4\epsilon + 16 \delta d^{1/(2L)} \end{aligned}",
)
def small_loss_is_close_restated(scale: Scale) -> Verdict:
    delta = accuracy(LOOPS, LONG, D)
    epsilon = 2.1 * delta
    level = epsilon ** (2 * LOOPS) - (delta * (epsilon + 2)) ** (2 * LOOPS)
    radius = 4 * epsilon + 16 * delta * D ** (1 / (2 * LOOPS))
    return closeness(scale, "2.1 delta", level, radius)
