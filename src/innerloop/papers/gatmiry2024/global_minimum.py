"""Where the minimum of the loss is, and the landscape around it: what Gatmiry et al. (2024) leave.

Over symmetric A the global minimum is a*/Sigma* for every n, d and L; the proof is in
`theory.looped`. Here it is looked for by descent on the exact loss. What the paper's own theorems
say about it is in `long_prompts`, and what happens over all A in `asymmetric`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import DTYPE, rotated
from innerloop.papers.gatmiry2024.settings import normal, symmetric
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Correction, Scale, Verdict
from innerloop.tasks import LinearRegression


def exact_loss(
    task: LinearRegression, loops: int, *, symmetric: bool
) -> Callable[[Tensor], Tensor]:
    """The loss L(A, 0) of a preconditioner, without sampling."""

    def loss(a: Tensor) -> Tensor:
        return theory.linear.tied_risk(
            a, task.covariance, task.n, task.prior, loops=loops, symmetric=symmetric
        )

    return loss


def reached(task: LinearRegression, loops: int, seed: int) -> Tensor:
    """The symmetric preconditioner where descent on the exact loss ends."""
    d = task.d
    loss = exact_loss(task, loops, symmetric=True)
    start = 0.5 * normal(seed, d * d)
    _, end = theory.flow.descend(lambda v: loss(symmetric(v.view(d, d))), start)
    return symmetric(end.view(d, d))


def unpreconditioned(task: LinearRegression, loops: int) -> Tensor:
    """The best multiple of the identity, found by descent."""
    loss, identity = exact_loss(task, loops, symmetric=True), torch.eye(task.d, dtype=DTYPE)
    _, step = theory.flow.descend(lambda v: loss(v * identity), torch.full((1,), 0.5, dtype=DTYPE))
    return step * identity


@claim(
    "gatmiry2024/global-min",
    "For every n, d and L the global minimum over symmetric A is a multiple of the inverse "
    "covariance, and only the multiple depends on n",
    source="not in the paper; sharper than Theorem 3.2",
    formula=r"\argmin_{A = A^\top} L(A, 0) = a^* \Sigma^{*-1},\qquad a^* = \argmin_a "
    r"\mathbb{E}\,\mathrm{tr}\left(I - "
    r"a \tfrac{1}{n} W\right)^{2L},\quad W \sim \mathrm{Wishart}_d(I, n)",
)
def minimum_is_on_the_ray(scale: Scale) -> Verdict:
    cases = scale.pick(
        smoke=[([1.0, 0.3], 4, 2)],
        quick=[([1.0, 0.3], 4, 2), ([1.0, 0.3], 100, 3), ([1.2, 0.5, 0.3], 7, 2)],
        paper=[([1.0, 0.3], 4, 2), ([1.0, 0.3], 100, 3), ([1.2, 0.5, 0.3], 7, 2), ([2, 0.1], 1, 4)],
    )
    starts = scale.pick(smoke=2, quick=5, paper=10)
    gap, distance, plain_gap, plain_distance = 0.0, 0.0, float("inf"), float("inf")
    for spectrum, n, loops in cases:
        task = LinearRegression.with_inverse_prior(rotated(spectrum, seed=0), n)
        best = theory.linear.looped_optimum(loops, n, task.d)
        target = best.steps[0] * task.covariance.inverse()
        loss = exact_loss(task, loops, symmetric=False)
        for seed in range(starts):
            end = reached(task, loops, seed)
            gap = max(gap, abs(loss(end).item() / best.risk - 1))
            distance = max(distance, ((end - target).norm() / target.norm()).item())
        plain = unpreconditioned(task, loops)
        plain_gap = min(plain_gap, loss(plain).item() / best.risk - 1)
        plain_distance = min(plain_distance, ((plain - target).norm() / target.norm()).item())
    control = "the best multiple of the identity: gradient descent without preconditioner"
    return Verdict(
        [
            Check(
                "largest relative gap between a loss where descent ends and the best on the ray",
                gap,
                1e-8,
                plain_gap,
                "descent stops at a gradient of 1e-11, where the loss is quadratic",
                control,
            ),
            Check(
                "largest relative distance of these preconditioners from a*/Sigma*",
                distance,
                1e-4,
                plain_distance,
                "minima are found to the square root of the loss's precision, about 1e-8",
                control,
            ),
        ],
        settings={
            "eigenvalues of Sigma*; n; L": "; ".join(f"{s}, {n}, {loops}" for s, n, loops in cases),
            "random starts": starts,
            "proof": "with Sigma* = I, L(A) >= E tr (I - A S)^2L, which is convex "
            "and invariant under rotations, so that averaging A over rotations does not raise it; "
            "on multiples of I both agree",
            "over all A": "not so, once n is large: see gatmiry2024/asymmetric",
        },
    )


def midpoint_rise(loss: Callable[[Tensor], Tensor], a: Tensor, b: Tensor) -> float:
    """loss((A + B)/2) over the mean of the ends, minus 1: positive nowhere if it is convex."""
    ends = (loss(a) + loss(b)) / 2
    return (loss((a + b) / 2) / ends - 1).item()


def least_curvature(loss: Callable[[Tensor], Tensor], a: Tensor, directions: Tensor) -> float:
    """The smallest eigenvalue of the Hessian along these directions [k, d, d], over the largest."""

    def along(c: Tensor) -> Tensor:
        return loss(a + torch.einsum("k,kij->ij", c, directions))

    zero = torch.zeros(len(directions), dtype=DTYPE)
    hessian = torch.autograd.functional.hessian(along, zero)
    values = torch.linalg.eigvalsh(hessian)
    return (values[0] / values.abs().max()).item()


@claim(
    "gatmiry2024/convexity",
    "The landscape of the loss with respect to A is highly non-convex",
    source="section 3.7, after Theorem 3.3; also the abstract",
    formula=r"L\left(\tfrac{A + B}{2}, 0\right) > \tfrac{1}{2} L(A, 0) + \tfrac{1}{2} L(B, 0)"
    r"\quad\text{for some } A, B",
)
def loss_is_convex(scale: Scale) -> Verdict:
    d = 2
    tasks = {n: LinearRegression.with_inverse_prior(torch.eye(d, dtype=DTYPE), n) for n in (3, 20)}
    depths = scale.pick(smoke=(2,), quick=(2, 3, 4), paper=(2, 3, 4))
    draws = scale.pick(smoke=40, quick=200, paper=1000)
    sizes = (0.1, 0.5, 1.0, 3.0)
    pairs = [
        (torch.eye(d, dtype=DTYPE) + sizes[seed % 4] * symmetric(normal(seed, 2, d, d))).unbind()
        for seed in range(draws)
    ]
    unit = torch.eye(d * d, dtype=DTYPE).view(-1, d, d)
    plane = torch.stack([unit[0], unit[3], (unit[1] + unit[2]) / 2**0.5])

    def bound(n: int, loops: int) -> Callable[[Tensor], Tensor]:
        return lambda a: theory.linear.lower_bound(a, tasks[n].covariance, n, loops=loops)

    kinds = [(n, loops) for n in tasks for loops in depths]
    losses = {kind: exact_loss(tasks[kind[0]], kind[1], symmetric=False) for kind in kinds}
    trace_rise = max(midpoint_rise(bound(*kind), a, b) for kind in kinds for a, b in pairs)
    rise = max(midpoint_rise(losses[kind], a, b) for kind in kinds for a, b in pairs)
    curvature = min(
        least_curvature(losses[kind], a, plane) for kind in kinds for a, _ in pairs[: draws // 4]
    )
    one_loop = exact_loss(tasks[20], 1, symmetric=False)
    quadratic = max(midpoint_rise(one_loop, a, b) for a, b in pairs)
    nilpotent = unit[1]
    identity = torch.eye(d, dtype=DTYPE)
    ends = identity - 2 * nilpotent, identity - 2 * nilpotent.mT
    skew = midpoint_rise(losses[20, 2], *ends)
    skew_curvature = least_curvature(losses[20, 2], symmetric(ends[0]), unit)
    two = [losses[20, 2](a).item() for a in (ends[0], symmetric(ends[0]))]
    rounding = "a convex function rises nowhere; 1e-12 is rounding"
    control = "a pair of matrices that are not symmetric"
    return Verdict(
        printed=[
            Check(
                "relative rise of the loss at the midpoint of two matrices, one the other's "
                "transpose",
                skew,
                1e-9,
                midpoint_rise(one_loop, *ends),
                "a single rise beyond rounding shows that the loss is not convex",
                "one loop, whose loss is quadratic and convex",
                at_least=True,
            ),
            Check(
                "largest relative rise at the midpoint of two symmetric matrices, where the flow "
                "of Theorem 3.3 stays",
                rise,
                1e-9,
                quadratic,
                "a single rise beyond rounding would show that the loss is not convex",
                "one loop, whose loss is quadratic and convex",
                at_least=True,
            ),
        ],
        corrected=[
            Check(
                "the same rise of the trace formula of Lemma 4.1",
                trace_rise,
                1e-12,
                skew,
                rounding,
                control,
            ),
            Check(
                "the same rise of the loss itself",
                rise,
                1e-12,
                skew,
                rounding,
                control,
            ),
            Check(
                "smallest eigenvalue of the loss's Hessian over symmetric A, over the largest",
                curvature,
                -1e-10,
                skew_curvature,
                "none is negative; 1e-10 is rounding of an exact polynomial",
                "the Hessian over all A, where non-convexity is found",
                at_least=True,
            ),
        ],
        correction=Correction(
            r"L(A, 0) \text{ is highly non-convex in } A",
            r"\begin{aligned} & \mathbb{E}\,\mathrm{tr}(I - A^{1/2} \Sigma A^{1/2})^{2L} \\ & "
            r"\text{is convex on symmetric } A \end{aligned}",
            "Over all matrices the sentence is true: A = I - 2N and its transpose, N nilpotent, "
            f"both have loss {two[0]:.2f}, and their midpoint has {two[1]:.2f} (n = 20, L = 2). "
            "But the paper concludes that Theorem 3.3 does not follow from convex analysis, and "
            "the flow of that theorem stays among symmetric matrices, as does the formula of "
            "Lemma 4.1. There the formula is convex: it is E tr (I - H)^(2L) with H = Sigma^1/2 A "
            "Sigma^1/2 linear in A, and the trace of a convex function of a symmetric matrix is "
            "convex in the matrix. For the loss itself, which the formula bounds from below, we "
            "have no proof on symmetric A, but no violation either. Gradient dominance is needed "
            "for the rate, not for convergence.",
        ),
        settings={
            "Sigma*": "I",
            "d": d,
            "n": "3 and 20",
            "L": ", ".join(map(str, depths)),
            "midpoints": f"{draws} pairs of sizes 0.1 to 3 around I",
            "Hessians": draws // 4,
        },
    )
