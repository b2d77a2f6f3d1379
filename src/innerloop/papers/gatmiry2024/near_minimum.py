"""Small loss means close to the optimum: Theorem 4.4 and Lemma A.9 of Gatmiry et al. (2024)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from scipy.optimize import brentq
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import DTYPE, rotated, square_root
from innerloop.papers.gatmiry2024.global_minimum import exact_loss
from innerloop.papers.gatmiry2024.settings import BOUND, accuracy, normal, symmetric
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Scale, Verdict
from innerloop.tasks import LinearRegression

D = 2
SIGMA = rotated([1.0, 0.3], seed=0)


def directions(count: int) -> list[Tensor]:
    """Symmetric, in the coordinates in which Sigma* = I: +-I, one eigenvalue only, and random."""
    identity = torch.eye(D, dtype=DTYPE)
    single = torch.diag(torch.tensor([1.0, 0.0], dtype=DTYPE))
    chosen = [identity, -identity, single, -single]
    return chosen + [symmetric(normal(seed, D, D)) for seed in range(count)]


def at_level(task: LinearRegression, loops: int, direction: Tensor, level: float) -> Tensor:
    """The point Sigma*^-1/2 (I + t D) Sigma*^-1/2, t > 0, at which the loss is `level`."""
    loss, outer = exact_loss(task, loops, symmetric=True), square_root(SIGMA).inverse()

    def point(t: float) -> Tensor:
        return outer @ (torch.eye(D, dtype=DTYPE) + t * direction) @ outer

    end = 1.0
    while loss(point(end)) < level:
        end *= 2
    return point(brentq(lambda t: loss(point(t)).item() - level, 0.0, end, xtol=1e-14))


def spread(a: Tensor, step: float) -> float:
    """The smallest r with (1 - r) A_opt <= A <= (1 + r) A_opt, where A_opt = step / Sigma*."""
    root = square_root(SIGMA)
    return (torch.linalg.eigvalsh(root @ a @ root) / step - 1).abs().max().item()


def closeness(
    scale: Scale,
    level: Callable[[float, float, int], float],
    radius: Callable[[float, float, int], float],
) -> Verdict:
    """At the largest loss that is admitted, in many directions: the distance over its bound.

    `level` and `radius` are functions of epsilon, delta and L. epsilon is chosen so that the
    bound is not empty, radius < 1, and n so that delta = epsilon / 5.
    """
    count = scale.pick(smoke=2, quick=20, paper=100)
    depths = (1, 2)  # the exact loss is a sum of alternating terms: no digits are left at 3
    worst, far, lengths, short_worst, short_control = 0.0, math.inf, [], 0.0, 0.0
    for loops in depths:
        epsilon = 0.5 / (4 + 16 * D ** (1 / (2 * loops)))
        n = math.ceil((8 * loops * D / (epsilon / 5) ** (2 * loops)) ** 2)
        lengths.append(n)
        delta = accuracy(loops, n, D)
        step = 1 - float(theory.linear.optimal_gap(loops, n, D))
        allowed = radius(epsilon, delta, loops)
        task = LinearRegression.with_inverse_prior(SIGMA, n)
        short = LinearRegression.with_inverse_prior(SIGMA, 10)
        for direction in directions(count):
            a = at_level(task, loops, direction, level(epsilon, delta, loops))
            worst = max(worst, spread(a, step) / allowed)
            # Ours, for any n: |1 - lambda_i|^2L <= L(A, 0), by Jensen's inequality.
            b = at_level(short, loops, direction, 2.0 * D)
            if torch.linalg.eigvalsh(b)[0] < 0:
                continue  # the inequality needs A^1/2
            share = spread(b, 1.0) ** (2 * loops) / (2.0 * D)
            short_worst, short_control = max(short_worst, share), max(short_control, share * D)
        far = min(far, spread(0 * SIGMA, step) / allowed)
    return Verdict(
        [
            Check(
                "largest distance from A_opt over its bound, at the largest loss admitted",
                worst,
                1.0,
                far,
                BOUND,
                "A = 0",
            ),
            Check(
                "beyond the statement, for any n and A >= 0: largest |1 - lambda_i|^2L / L(A, 0), "
                "n = 10",
                short_worst,
                1.0,
                short_control,
                "Jensen's inequality: (1 - lambda_i)^2L <= E u_i^T (I - A^1/2 S A^1/2)^2L u_i",
                "the loss divided by d in place of the loss",
            ),
        ],
        settings={
            "A_opt": "the best symmetric A",
            "Sigma*": "eigenvalues 1, 0.3, rotated",
            "L": ", ".join(map(str, depths)),
            "n": ", ".join(f"{float(n):.1e}" for n in lengths)
            + ": shorter prompts leave the bound above 1",
            "directions": count + 4,
            "bound / measured": round(1 / worst, 1),
        },
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
        lambda epsilon, delta, loops: epsilon ** (2 * loops) / 2,
        lambda epsilon, delta, loops: (4 + 16 * D ** (1 / (2 * loops))) * epsilon,
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
        lambda epsilon, delta, loops: (
            epsilon ** (2 * loops) - (delta * (epsilon + 2)) ** (2 * loops)
        ),
        lambda epsilon, delta, loops: 4 * epsilon + 16 * delta * D ** (1 / (2 * loops)),
    )
