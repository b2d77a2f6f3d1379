"""Small loss means close to the optimum: Theorem 4.4 and Lemma A.9 of Gatmiry et al. (2024).

*For every n* (ours). Let A >= 0, and let lambda_i, u_i be the eigenvalues and eigenvectors of
A^1/2 Sigma* A^1/2. By |M|_F^2 >= tr M^2 and Jensen's inequality in every u_i

    L(A, 0) >= E tr (I - A^1/2 S A^1/2)^{2L} >= sum_i (1 - lambda_i)^{2L}.

With s = L(A, 0)^{1/(2L)} all |1 - lambda_i| are at most s, and so is 1 - a* of the best symmetric
A, a*/Sigma*, whose loss is lower still. So A is within 2 s/(1 - s) of it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import identity, normal, relative, rotated, symmetric
from innerloop.papers.gatmiry2024.settings import accuracy, looped_loss, power, white, word_loss
from innerloop.papers.quantity import INEQUALITY, ROUNDING, Quantity, at_most
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.tasks import LinearRegression

LOOPS, D, LONG = 2, 2, 10**20
"""At n = 1e20 the printed radii are below 1, and say something."""


def sheared(t: float) -> Tensor:
    """I - t E_12: I - A is nilpotent."""
    a = identity(D)
    a[0, 1] = -t
    return a


def order_distance(a: Tensor, step: float, sigma: Tensor) -> float:
    """The least r with (1 - r) A_opt <= A <= (1 + r) A_opt, A_opt = step / Sigma*."""
    root = power(sigma, 0.5)
    return (torch.linalg.eigvalsh(symmetric(root @ a @ root)) / step - 1).abs().max().item()


def random_points(scale: Scale) -> list[tuple[Tensor, float, LinearRegression, int]]:
    """A >= 0, its loss, its task and L: rotated Sigma*, long and short prompts."""
    points = []
    for n, loops in ((5, 1), (10, 2), (10_000, 2)):
        task = LinearRegression.with_inverse_prior(rotated([1.0, 0.3], seed=0), n)
        outer, loss = power(task.covariance, -0.5), word_loss(task, loops)
        for seed in range(scale.pick(smoke=10, quick=100, paper=1000)):
            root = identity(D) + (0.2, 0.6, 1.5)[seed % 3] * normal(seed, D, D)
            a = outer @ root @ root.mT @ outer
            points.append((a, loss(a).item(), task, loops))
    return points


def closeness(
    scale: Scale,
    radius: Callable[[float, float], float],
    level: Callable[[float, float], float],
    epsilon_over_delta: float,
    printed: str,
) -> Verdict:
    """`radius` and `level` are the printed ones, as functions of epsilon and delta."""
    delta = accuracy(LOOPS, LONG, D)
    epsilon = epsilon_over_delta * delta
    long_loss = word_loss(white(D, LONG), LOOPS)
    best = 1 - float(theory.linear.optimal_gap(LOOPS, LONG, D))

    def share(t: float) -> float:
        if long_loss(sheared(t)) > level(epsilon, delta):
            raise ValueError("the loss is above what the statement admits")
        return order_distance(sheared(t), best, identity(D)) / radius(epsilon, delta)

    outside = Quantity[float](
        "order distance of A = I - t E_12 from A_opt over the printed radius, L = d = 2, n = 1e20",
        share,
        INEQUALITY,
    ).of({"t = 3": 3.0, "t = 2": 2.0})
    points = random_points(scale)

    def jensen(factor: float) -> float:
        ratios = []
        for a, loss, task, loops in points:
            root = power(task.covariance, 0.5)
            values = torch.linalg.eigvalsh(root @ a @ root)
            ratios.append(factor * ((1 - values) ** (2 * loops)).sum().item() / loss)
        return max(ratios)

    below = Quantity[float](
        f"largest sum_i (1 - lambda_i)^2L / L(A, 0), {len(points)} random A >= 0, n = 5 to 1e4",
        jensen,
        INEQUALITY,
    ).of({"the sum": 1.0, "1.05 times the sum": 1.05})

    def used(cases: list[tuple[Tensor, float, LinearRegression, int]]) -> float:
        worst = 0.0
        for a, loss, task, loops in cases:
            step = 1 - float(theory.linear.optimal_gap(loops, task.n, D))
            s = loss ** (1 / (2 * loops))
            if s < 1:
                distance = order_distance(a, step, task.covariance)
                worst = max(worst, distance * (1 - s) / (2 * s))
        return worst

    task = white(D, 10_000)
    wrong = [(sheared(1.0), word_loss(task, LOOPS)(sheared(1.0)).item(), task, LOOPS)]
    within = Quantity[list[tuple[Tensor, float, LinearRegression, int]]](
        "largest order distance from A_opt over 2s/(1 - s), s = L(A, 0)^(1/(2L)) < 1",
        used,
        INEQUALITY,
    ).of({"random A >= 0": points, "I - E_12, n = 1e4": wrong})

    def limit(t: float) -> float:
        near, far = (n * word_loss(white(D, n), LOOPS)(sheared(t)).item() for n in (10**4, 10**5))
        return (10 * far - near) / 9

    vanishing = Quantity[float](
        "largest relative difference of n L(I - t E_12, 0), extrapolated from n = 1e4 and 1e5, "
        "from t^2 (c + t^2), t = 1, 2, 3",
        lambda c: max(abs(limit(t) / (t**2 * (c + t**2)) - 1) for t in (1.0, 2.0, 3.0)),
        at_most(1e-5, "what is left after extrapolation is of order 1/n^2 times a constant"),
    ).of({"c = 6": 6.0, "c = 5.9": 5.9})
    forward = Quantity[float](
        "relative difference of the loss of I - 2 E_12 in words, n = 300, from the forward pass of "
        "I - t E_12",
        lambda t: relative(
            word_loss(white(D, 300), LOOPS)(sheared(2.0)),
            looped_loss(sheared(t), white(D, 300), LOOPS),
        ),
        ROUNDING,
    ).of({"t = 2": 2.0, "t = 2.01": 2.01})
    return Verdict(
        [outside.check("t = 3", unlike="t = 2")],
        [
            below.check("the sum", unlike="1.05 times the sum"),
            within.check("random A >= 0", unlike="I - E_12, n = 1e4"),
            vanishing.check("c = 6", unlike="c = 5.9"),
            forward.check("t = 2", unlike="t = 2.01"),
        ],
        Correction(
            printed,
            r"\begin{aligned} & A \succeq 0 \;\Rightarrow\; (1 - r) A^{opt} \preceq A \preceq "
            r"(1 + r) A^{opt}, \\ & r = \frac{2s}{1 - s},\quad s = L(A, 0)^{\frac{1}{2L}} < 1, "
            r"\\ & \text{for every } n,\quad A^{opt} = a^* \Sigma^{*-1} \end{aligned}",
            "The statement is about any A, and its proof about the square root of A. Where I - A "
            "is nilpotent, (I - A)^L = 0 and the loss of an infinite prompt is 0, however far A "
            "is from the identity: L(I - t E_12, 0) is t^2 (6 + t^2)/n to leading order for L = d "
            "= 2. For symmetric A >= 0 the loss does bound the distance, for every n, by Jensen's "
            "inequality alone and with a smaller radius: no epsilon > 4 delta is needed.",
            Kind.STATEMENT,
            f"L = d = 2, n = 1e20, epsilon = {epsilon_over_delta:g} delta, A = I - 3 E_12: the "
            f"loss is {3**2 * (6 + 3**2) / LONG:.0e}, "
            f"{level(epsilon, delta):.0e} is admitted, and the symmetric part of A has the "
            f"eigenvalue -1/2, with a radius of {radius(epsilon, delta):.2f}.",
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
    return closeness(
        scale,
        lambda epsilon, delta: (4 + 16 * D ** (1 / (2 * LOOPS))) * epsilon,
        lambda epsilon, delta: epsilon ** (2 * LOOPS) / 2,
        4.1,
        r"L(A, 0) \le \tfrac{1}{2} \epsilon^{2L} \Rightarrow (1 - c\epsilon) A^{opt} \preceq A "
        r"\preceq (1 + c\epsilon) A^{opt}",
    )


@claim(
    "gatmiry2024/lemmaA.9",
    "Theorem 4.4 again, with other constants",
    source="Lemma A.9",
    formula=r"\begin{aligned} & L(A, 0) \le \epsilon^{2L} - \delta^{2L} (\epsilon + 2)^{2L},\; "
    r"\epsilon > 2\delta\;\Rightarrow\; (1 - r) A^{opt} \preceq A \preceq (1 + r) A^{opt}, \\ & "
    r"r = 4\epsilon + 16 \delta d^{1/(2L)} \end{aligned}",
)
def small_loss_is_close_restated(scale: Scale) -> Verdict:
    return closeness(
        scale,
        lambda epsilon, delta: 4 * epsilon + 16 * delta * D ** (1 / (2 * LOOPS)),
        lambda epsilon, delta: (
            epsilon ** (2 * LOOPS) - delta ** (2 * LOOPS) * (epsilon + 2) ** (2 * LOOPS)
        ),
        2.1,
        r"L(A, 0) \le \epsilon^{2L} - \delta^{2L} (\epsilon + 2)^{2L} \Rightarrow (1 - r) A^{opt} "
        r"\preceq A \preceq (1 + r) A^{opt}",
    )
