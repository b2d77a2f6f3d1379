"""Where the loss is convex in A and where it is not: section 3.7 of Gatmiry et al. (2024).

*Not convex.* On A = b e e^T, e a unit vector and Sigma* = I, S e is s e and an orthogonal part of
mean square (d - 1) s / n, s ~ chi^2_n / n, and (I - A S)^L moves e^T alone, so that

    L(b) = d - 1 + E(1 - b s)^{2L} + ((d - 1)/n) E[(1 - (1 - b s)^L)^2 / s].

For L = 2 and (d - 1)/n = k fixed, s -> 1 as n grows and L''(1) -> -4 k.

*Convex.* The formula of Lemma 4.1 is Lt(A) = E tr (I - H)^{2L} with H = S^1/2 A S^1/2 linear in A,
and its 2L-th root is a norm of the random symmetric matrix I - H (the Schatten norm of order 2L, in
the mean of order 2L): a norm of an affine function of A is convex. On the ray Lt is the loss.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import DTYPE, identity, normal, relative, symmetric
from innerloop.papers.gatmiry2024.settings import looped_loss, white, word_loss
from innerloop.papers.quantity import ROUNDING, Quantity, at_least, at_most
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict

Loss = Callable[[Tensor], Tensor]


def rank_one(b: Tensor | float, d: int) -> Tensor:
    """b e e^T, in generic axes."""
    e = normal(7, d)
    return b * torch.outer(e, e) / (e @ e)


def rank_one_loss(b: Tensor, n: int, loops: int, per_example: float, d: float) -> Tensor:
    """L(b) of the module's docstring; `per_example` is (d - 1)/n."""
    chi_squared = theory.wishart.mean_spectrum(n, 1, 2 * loops)
    s = chi_squared.nodes
    left = 1 - b * s
    return d - 1 + chi_squared(left ** (2 * loops) + per_example * (1 - left**loops) ** 2 / s)


def rise(loss: Loss, a: Tensor, b: Tensor) -> float:
    """loss((A + B)/2) over the mean of the ends, minus 1: positive nowhere if it is convex."""
    return (2 * loss((a + b) / 2) / (loss(a) + loss(b)) - 1).item()


@claim(
    "gatmiry2024/convexity",
    "The landscape of the loss with respect to A is highly non-convex",
    source="section 3.7, after Theorem 3.3; also the abstract",
    formula=r"L\left(\tfrac{A + B}{2}, 0\right) > \tfrac{1}{2} L(A, 0) + \tfrac{1}{2} L(B, 0)"
    r"\quad\text{for some } A, B",
)
def loss_is_not_convex(scale: Scale) -> Verdict:
    def along(d: int, loops: int) -> float:
        loss = word_loss(white(d, 20), loops)
        return rise(loss, rank_one(0.65, d), rank_one(0.95, d))

    def transposed(loops: int) -> float:
        a = identity(2) - 2 * torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=DTYPE)
        return rise(word_loss(white(2, 20), loops), a, a.mT)

    higher = Quantity[Callable[[], float]](
        "relative rise of the loss at a midpoint",
        lambda case: case(),
        at_least(1e-9, "a single rise beyond rounding shows that the loss is not convex"),
    ).of(
        {
            "A = b e e^T, b = 0.65 and 0.95, d = 10, n = 20, L = 2": lambda: along(10, 2),
            "the same, d = 7": lambda: along(7, 2),
            "the same, L = 1": lambda: along(10, 1),
            "A = I - 2 E_12 and its transpose, d = 2, n = 20, L = 2": lambda: transposed(2),
            "I - 2 E_12, L = 1": lambda: transposed(1),
        }
    )

    b = torch.tensor(0.8, dtype=DTYPE)
    exact = [(3, 6, looped_loss(rank_one(b, 3), white(3, 6), 2))]
    exact += [(d, 20, word_loss(white(d, 20), 2)(rank_one(b, d)).item()) for d in (2, 10)]

    def gap(per_example: Callable[[int, int], float]) -> float:
        return max(
            relative(rank_one_loss(b, n, 2, per_example(d, n), d), value) for d, n, value in exact
        )

    formula = Quantity[Callable[[int, int], float]](
        "ours: largest relative difference of L(b) from the forward pass and the expansion in "
        "words, the factor of the last term being",
        gap,
        ROUNDING,
    ).of({"(d - 1)/n": lambda d, n: (d - 1) / n, "d/n": lambda d, n: d / n})

    def curvature(k: float, n: int) -> float:
        b = torch.ones((), dtype=DTYPE, requires_grad=True)
        (slope,) = torch.autograd.grad(rank_one_loss(b, n, 2, k, k * n + 1), b, create_graph=True)
        return float(torch.autograd.grad(slope, b)[0])

    limit = Quantity[float](
        "ours: largest |L''(1) / k - c|, L = 2, n = 1e7, k = 0.1 to 2",
        lambda c: max(abs(curvature(k, 10**7) / k - c) for k in (0.1, 0.5, 2.0)),
        at_most(1e-4, "the next term is of order 1/(k n)"),
    ).of({"c = -4": -4.0, "c = -3.99": -3.99})
    short = "A = b e e^T, b = 0.65 and 0.95, d = 10, n = 20, L = 2"
    turned = "A = I - 2 E_12 and its transpose, d = 2, n = 20, L = 2"
    values = [rank_one_loss(c * b, 20, 2, 9 / 20, 10).item() for c in (1, 0.65 / 0.8, 0.95 / 0.8)]
    return Verdict(
        [
            higher.check(short, unlike="the same, d = 7"),
            higher.check(short, unlike="the same, L = 1"),
            higher.check(turned, unlike="I - 2 E_12, L = 1"),
            formula.check("(d - 1)/n", unlike="d/n"),
            limit.check("c = -4", unlike="c = -3.99"),
        ],
        settings={"Sigma*": "I", "e": "a unit vector in generic axes"},
        remarks=[
            "Also among symmetric positive semi-definite A, where the flow of Theorem 3.3 stays: "
            f"on A = b e e^T, d = 10, n = 20, L = 2 the loss is {values[0]:.6f} at b = 0.8, and "
            f"the mean of b = 0.65 and 0.95 is {(values[1] + values[2]) / 2:.6f}. For L = 3 five "
            "dimensions suffice (n = 100). As n grows with (d - 1)/n = k the second derivative of "
            "the loss at b = 1 tends to -4k.",
            "Where it is convex says gatmiry2024/convex-ray.",
        ],
    )


@claim(
    "gatmiry2024/convex-ray",
    "On the ray the loss and its 2L-th root are convex; the formula of Lemma 4.1, which bounds the "
    "loss from below, and its 2L-th root are so for all symmetric A",
    source="not in the paper; the proof is in the module's docstring",
    formula=r"a \mapsto L(a \Sigma^{*-1}, 0)^{1/(2L)} \text{ and } A \mapsto \left(\mathbb{E}\,"
    r"\mathrm{tr}(I - A \Sigma)^{2L}\right)^{1/(2L)},\; A = A^\top,\quad \text{are convex}",
    ours="proved",
)
def loss_is_convex_on_the_ray(scale: Scale) -> Verdict:
    d, pairs = 3, scale.pick(smoke=20, quick=200, paper=1000)
    kinds = [(n, loops) for n in (2, 20) for loops in (1, 2, 3)]

    def root(loops: int, loss: Loss) -> Loss:
        return lambda a: loss(a) ** (1 / (2 * loops))

    def on_ray() -> float:
        steps = 3 * normal(1, pairs, 2, 1)
        return max(
            rise(root(L, lambda a: theory.linear.ray_risk(a.expand(L), n, d)), *pair)  # noqa: B023
            for n, L in kinds
            for pair in steps
        )

    def trace_formula(*, symmetrised: bool) -> float:
        size = (0.1, 0.5, 1.0, 3.0)
        worst = -1.0
        for n, loops in kinds:
            for seed in range(pairs):
                ends = identity(d) + size[seed % 4] * normal(seed, 2, d, d)
                a, b = symmetric(ends) if symmetrised else ends
                loss = root(
                    loops,
                    lambda a: theory.linear.lower_bound(a, identity(d), n, loops=loops).abs(),  # noqa: B023
                )
                worst = max(worst, rise(loss, a, b))
        return worst

    def rank_one_root() -> float:
        return rise(root(2, word_loss(white(12, 20), 2)), rank_one(0.65, 12), rank_one(0.95, 12))

    higher = Quantity[Callable[[], float]](
        "largest relative rise at a midpoint of the 2L-th root",
        lambda case: case(),
        at_most(1e-10, "a convex function rises nowhere; 1e-10 is rounding"),
    ).of(
        {
            "the loss on the ray": on_ray,
            "the formula of Lemma 4.1, symmetric A": lambda: trace_formula(symmetrised=True),
            "the formula, all A": lambda: trace_formula(symmetrised=False),
            "the loss, A = b e e^T, d = 12, n = 20, L = 2": rank_one_root,
        }
    )
    step = torch.tensor(0.6, dtype=DTYPE)
    values = {
        "E tr (I - A S)^2L": theory.linear.lower_bound(
            step * identity(d), identity(d), 20, loops=2
        ).item(),
        "ray_risk": theory.linear.ray_risk(step.expand(2), 20, d).item(),
        "ray_risk, n + 1 for n": theory.linear.ray_risk(step.expand(2), 21, d).item(),
    }
    same = Quantity[float](
        "relative difference from the loss of the forward pass at A = 0.6 I, n = 20, L = 2",
        lambda value: relative(value, looped_loss(0.6 * identity(d), white(d, 20), 2)),
        ROUNDING,
    ).of(values)
    wrong = "the loss, A = b e e^T, d = 12, n = 20, L = 2"
    return Verdict(
        [
            higher.check("the loss on the ray", unlike=wrong),
            higher.check("the formula of Lemma 4.1, symmetric A", unlike="the formula, all A"),
            same.check("E tr (I - A S)^2L", unlike="ray_risk, n + 1 for n"),
            same.check("ray_risk", unlike="ray_risk, n + 1 for n"),
        ],
        settings={"Sigma*": "I", "d": d, "n": "2, 20", "L": "1, 2, 3", "pairs": pairs},
        remarks=[
            "The 2L-th root being convex, so is the function itself, a power of it. The gradient "
            "flow from A = 0 stays on the ray, so that its convergence does follow from convex "
            "analysis; gradient dominance gives the rate."
        ],
    )
