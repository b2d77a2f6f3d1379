"""Where the loss is convex in A and where it is not: section 3.7 of Gatmiry et al. (2024).

*Not convex.* On A = b e e^T, e a unit vector and Sigma* = I, S e is s e and an orthogonal part of
mean square (d - 1) s / n, s ~ chi^2_n / n, and (I - A S)^L moves e^T alone, so that

    L(b) = d - 1 + E(1 - b s)^{2L} + ((d - 1)/n) E[(1 - (1 - b s)^L)^2 / s].

For L = 2 and (d - 1)/n = k fixed, s -> 1 as n grows and L''(1) -> -4 k.

*Convex.* The formula of Lemma 4.1 is Lt(A) = E tr (I - H)^{2L} with H = S^1/2 A S^1/2 linear in A,
and its 2L-th root is a norm of the random symmetric matrix I - H (the Schatten norm of order 2L, in
the mean of order 2L): a norm of an affine function of A is convex. On the ray Lt is the loss.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.autograd.functional import hessian

from innerloop.papers import Scale, Verdict, claim
from innerloop.papers.common import DTYPE, identity, normal, relative, symmetric
from innerloop.papers.gatmiry2024.settings import looped_loss, white, word_loss
from innerloop.papers.quantity import ROUNDING, at_least, at_most, checks
from innerloop.theory.linear import lower_bound, ray_risk
from innerloop.theory.wishart import mean_spectrum

SHEAR = torch.tensor([[1.0, -2.0], [0.0, 1.0]], dtype=DTYPE)


def rank_one(b: float, d: int) -> Tensor:
    """b e e^T, in generic axes."""
    e = normal(7, d)
    return b * torch.outer(e, e) / (e @ e)


def rank_one_loss(b: Tensor, n: int, loops: int, per_example: float, d: float) -> Tensor:
    """L(b) of the module's docstring; `per_example` is (d - 1)/n."""
    chi_squared = mean_spectrum(n, 1, 2 * loops)
    left = 1 - b * chi_squared.nodes
    last = per_example * (1 - left**loops) ** 2 / chi_squared.nodes
    return d - 1 + chi_squared(left ** (2 * loops) + last)


def curvature(k: float) -> float:
    """L''(1) / k of two loops, n = 1e7 and (d - 1)/n = k."""
    n, one = 10**7, torch.ones((), dtype=DTYPE)
    return hessian(lambda b: rank_one_loss(b, n, 2, k, k * n + 1), one).item() / k


def rise(loss: Callable[[Tensor], Tensor], a: Tensor, b: Tensor, *, root: int = 1) -> float:
    """Of a root of the loss, from the mean of its ends to (A + B)/2, relative; convex: nowhere."""
    middle, *ends = (loss(point) ** (1 / root) for point in ((a + b) / 2, a, b))
    return (2 * middle / sum(ends) - 1).item()


def rank_one_rise(d: int, loops: int, *, root: int = 1) -> float:
    return rise(word_loss(white(d, 20), loops), rank_one(0.65, d), rank_one(0.95, d), root=root)


@claim(
    "gatmiry2024/convexity",
    "The landscape of the loss with respect to A is highly non-convex",
    source="section 3.7, after Theorem 3.3; also the abstract",
    formula=r"L\left(\tfrac{A + B}{2}, 0\right) > \tfrac{1}{2} L(A, 0) + \tfrac{1}{2} L(B, 0)"
    r"\quad\text{for some } A, B",
)
def loss_is_not_convex(scale: Scale) -> Verdict:
    sheared = {L: rise(word_loss(white(2, 20), L), SHEAR, SHEAR.mT) for L in (1, 2)}
    exact = {(3, 6): looped_loss(rank_one(0.8, 3), white(3, 6), 2)}
    exact |= {(d, 20): word_loss(white(d, 20), 2)(rank_one(0.8, d)).item() for d in (2, 10)}
    b, curvatures = torch.tensor(0.8, dtype=DTYPE), [curvature(k) for k in (0.1, 0.5, 2.0)]
    return Verdict(
        checks(
            "relative rise of the loss at a midpoint",
            at_least(1e-9, "a single rise beyond rounding shows that the loss is not convex"),
            {
                "A = I - 2 E_12 and its transpose, d = 2, n = 20, L = 2": sheared[2],
                "A = b e e^T, b = 0.65 and 0.95, d = 10, n = 20, L = 2": rank_one_rise(10, 2),
            },
            unlike={
                "I - 2 E_12, L = 1": sheared[1],
                "the same, d = 7": rank_one_rise(7, 2),
                "the same, L = 1": rank_one_rise(10, 1),
            },
        )
        + checks(
            "ours: relative difference of L(0.8) from two other ways, the last term's factor being",
            ROUNDING,
            {"(d - 1)/n": 1},
            unlike={"d/n": 0},
            measure=lambda less: max(
                relative(rank_one_loss(b, n, 2, (d - less) / n, d), v)
                for (d, n), v in exact.items()
            ),
        )
        + checks(
            "ours: largest |L''(1) / k - c|, L = 2, n = 1e7, k = 0.1 to 2",
            at_most(1e-4, "the next term is of order 1/(k n)"),
            {"c = -4": -4.0},
            unlike={"c = -3.99": -3.99},
            measure=lambda c: max(abs(value - c) for value in curvatures),
        ),
        settings={"Sigma*": "I", "L(b)": "the loss at b e e^T, |e| = 1", "k": "(d - 1)/n"},
        remarks=[
            "b e e^T is positive semi-definite, as is the flow of Theorem 3.3. For L = 3 five "
            "dimensions suffice (n = 100). Where the loss is convex says gatmiry2024/convex-ray.",
        ],
    )


def ray_loss(step: Tensor, n: int, loops: int) -> Tensor:
    return ray_risk(step.expand(loops), n, 3)


def trace_formula(a: Tensor, n: int, loops: int) -> Tensor:
    return lower_bound(a, identity(3), n, loops=loops).abs()


def root_rise(loss: Callable[..., Tensor], pairs: Tensor) -> float:
    """Of the 2L-th root of loss(., n, L): the largest of all pairs, n and L."""
    return max(
        rise(partial(loss, n=n, loops=L), *pair, root=2 * L)
        for pair in pairs
        for n in (2, 20)
        for L in (1, 2, 3)
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
    count, sizes = scale.pick(smoke=20, quick=200, paper=1000), (0.1, 0.5, 1.0, 3.0)
    noise = [sizes[seed % 4] * normal(seed, 2, 3, 3) for seed in range(count)]
    one, step = identity(3), torch.tensor(0.6, dtype=DTYPE)
    pairs = one + torch.stack(noise)
    return Verdict(
        checks(
            "largest relative rise at a midpoint of the 2L-th root",
            at_most(1e-10, "a convex function rises nowhere; 1e-10 is rounding"),
            {
                "the loss on the ray": root_rise(ray_loss, 3 * normal(1, count, 2, 1)),
                "the formula of Lemma 4.1, symmetric A": root_rise(trace_formula, symmetric(pairs)),
            },
            unlike={
                "the loss, A = b e e^T, d = 12, n = 20, L = 2": rank_one_rise(12, 2, root=4),
                "the formula, all A": root_rise(trace_formula, pairs),
            },
        )
        + checks(
            "relative difference from the loss of the forward pass at A = 0.6 I, n = 20, L = 2",
            ROUNDING,
            {"Lemma 4.1": trace_formula(step * one, 20, 2), "ray_risk": ray_loss(step, 20, 2)},
            unlike={"ray_risk, n + 1 for n": ray_loss(step, 21, 2)},
            measure=partial(relative, exact=looped_loss(step * one, white(3, 20), 2)),
        ),
        settings={"Sigma*": "I", "d": 3, "n": "2, 20", "L": "1, 2, 3", "pairs": count},
        remarks=[
            "With the 2L-th root its power is convex: the flow from A = 0, which stays on the ray, "
            "converges; gradient dominance gives the rate."
        ],
    )
