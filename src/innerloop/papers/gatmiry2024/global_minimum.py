"""The minimum of the loss: Theorems 3.2 and A.8 of Gatmiry et al. (2024), and more than they say.

The global minimum is a*/Sigma* for every n, d and L; the proof is in `theory.looped`. Here it is
looked for by descent on the exact loss, and what the theorems say about it for very long prompts is
measured in exact fractions (`theory.long_prompts`). Table 1 of the paper lists these and the other
theorems and states nothing of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import DTYPE, rotated
from innerloop.papers.gatmiry2024.settings import accuracy, normal, symmetric
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Correction, Scale, Verdict
from innerloop.tasks import LinearRegression

BOUND = "the claim itself: no more than the bound allows"


def exact_loss(
    task: LinearRegression, loops: int, *, symmetric: bool
) -> Callable[[Tensor], Tensor]:
    """The loss L(A, 0) of a preconditioner, without sampling."""

    def loss(a: Tensor) -> Tensor:
        return theory.tied_risk(
            a, task.covariance, task.n, task.prior, loops=loops, symmetric=symmetric
        )

    return loss


def reached(task: LinearRegression, loops: int, seed: int, *, all_matrices: bool) -> Tensor:
    """The preconditioner where descent on the exact loss ends."""
    d = task.d
    loss = exact_loss(task, loops, symmetric=not all_matrices)

    def matrix(vector: Tensor) -> Tensor:
        a = vector.view(d, d)
        return a if all_matrices else symmetric(a)

    _, end = theory.descend(lambda v: loss(matrix(v)), 0.5 * normal(seed, d * d))
    return matrix(end)


def unpreconditioned(task: LinearRegression, loops: int) -> Tensor:
    """The best multiple of the identity, found by descent."""
    loss, identity = exact_loss(task, loops, symmetric=True), torch.eye(task.d, dtype=DTYPE)
    _, step = theory.descend(lambda v: loss(v * identity), torch.full((1,), 0.5, dtype=DTYPE))
    return step * identity


@claim(
    "gatmiry2024/global-min",
    "For every n, d and L the global minimum is a multiple of the inverse covariance, and only the "
    "multiple depends on n",
    source="not in the paper; sharper than Theorem 3.2",
    formula=r"A^{opt} = a^* \Sigma^{*-1},\qquad a^* = \arg\min_a \mathbb{E}\,\mathrm{tr}\left(I - "
    r"a \tfrac{1}{n} W\right)^{2L},\quad W \sim \mathrm{Wishart}_d(I, n)",
)
def minimum_is_on_the_ray(scale: Scale) -> Verdict:
    cases = scale.pick(
        smoke=[([1.0, 0.3], 4, 2)],
        quick=[([1.0, 0.3], 4, 2), ([1.0, 0.3], 2, 3), ([1.2, 0.5, 0.3], 7, 2)],
        paper=[([1.0, 0.3], 4, 2), ([1.0, 0.3], 2, 3), ([1.2, 0.5, 0.3], 7, 2), ([2, 0.1], 1, 4)],
    )
    starts = scale.pick(smoke=2, quick=5, paper=10)
    gap, distance, plain_gap, plain_distance = 0.0, 0.0, float("inf"), float("inf")
    for spectrum, n, loops in cases:
        task = LinearRegression.with_inverse_prior(rotated(spectrum, seed=0), n)
        best = theory.looped_optimum(loops, n, task.d)
        target = best.steps[0] * task.covariance.inverse()
        loss = exact_loss(task, loops, symmetric=False)
        for all_matrices in (False, True):
            for seed in range(starts):
                end = reached(task, loops, seed, all_matrices=all_matrices)
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
            "random starts": f"{starts} over symmetric A and {starts} over all A",
            "proof": "for symmetric A: with Sigma* = I, L(A) >= E tr (I - A S)^2L, which is convex "
            "and invariant under rotations, so that averaging A over rotations does not raise it; "
            "on multiples of I both agree",
            "over all A": "measured only",
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
    r"\quad\text{for some symmetric } A, B",
)
def loss_is_convex(scale: Scale) -> Verdict:
    d = 2
    tasks = {n: LinearRegression.with_inverse_prior(torch.eye(d, dtype=DTYPE), n) for n in (3, 20)}
    depths = scale.pick(smoke=(2,), quick=(2, 3, 4), paper=(2, 3, 4))
    draws = scale.pick(smoke=40, quick=400, paper=2000)
    sizes = (0.1, 0.5, 1.0, 3.0)
    pairs = [
        (torch.eye(d, dtype=DTYPE) + sizes[seed % 4] * symmetric(normal(seed, 2, d, d))).unbind()
        for seed in range(draws)
    ]
    unit = torch.eye(d * d, dtype=DTYPE).view(-1, d, d)
    plane = torch.stack([unit[0], unit[3], (unit[1] + unit[2]) / 2**0.5])

    def bound(n: int, loops: int) -> Callable[[Tensor], Tensor]:
        return lambda a: theory.lower_bound(a, tasks[n].covariance, n, loops=loops)

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
                "largest relative rise of the loss at the midpoint of two symmetric matrices",
                rise,
                1e-9,
                quadratic,
                "a single rise beyond rounding would show that the loss is not convex",
                "one loop, whose loss is quadratic and convex",
                at_least=True,
            )
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
            r"A \mapsto \mathbb{E}\,\mathrm{tr}(I - A^{1/2} \Sigma A^{1/2})^{2L}"
            r" \text{ is convex on symmetric } A",
            "The paper works with positive A and with the formula of Lemma 4.1. That formula is "
            "convex: it is E tr (I - H)^(2L) with H = Sigma^1/2 A Sigma^1/2 linear in A, and the "
            "trace of a convex function of a symmetric matrix is convex in the matrix. So "
            "convergence of the flow to the minimum needs no gradient dominance; that gives the "
            "rate. For the loss itself, which the formula bounds from below, we have no proof on "
            f"symmetric A, but no violation either. Over all matrices it is not convex: "
            f"A = I - 2N and its transpose, N nilpotent, both have loss {two[0]:.2f}, and their "
            f"midpoint has {two[1]:.2f} (n = 20, L = 2).",
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


@dataclass(frozen=True)
class LongPrompt:
    """The minimum at a prompt length that the theorems admit; gap = 1 - a*."""

    loops: int
    n: int
    d: int

    @classmethod
    def with_radius(cls, radius: float, loops: int, d: int) -> LongPrompt:
        """The shortest prompt whose c = 8 delta d^{1/(2L)} is at most this; the condition is 4."""
        return cls(loops, math.ceil((8 * loops * d**2 * (8 / radius) ** (2 * loops)) ** 2), d)

    @property
    def gap(self) -> Fraction:
        return theory.optimal_gap(self.loops, self.n, self.d)

    @property
    def loss(self) -> float:
        return float(theory.long_prompt_risk(self.gap, self.loops, self.n, self.d))

    @property
    def loss_bound(self) -> float:
        """8 L d^2 2^{2L} / sqrt n, which is d (2 delta)^{2L}."""
        return 8 * self.loops * self.d**2 * 4**self.loops / math.sqrt(self.n)

    @property
    def radius(self) -> float:
        """c = 8 delta d^{1/(2L)}."""
        return 8 * accuracy(self.loops, self.n, self.d) * self.d ** (1 / (2 * self.loops))

    def shift_weight(self, gap: Fraction) -> float:
        """E |u^T (I - (I - Sigma A)^L)|^2 per |u|^2 on the ray: what a shift costs."""
        half, whole = (
            theory.residual_moment(gap, power, self.n, self.d)
            for power in (self.loops, 2 * self.loops)
        )
        return float((self.d - 2 * half + whole) / self.d)

    def __str__(self) -> str:
        return f"d = {self.d}, L = {self.loops}, n = {float(self.n):.3g}"


def long_prompts(scale: Scale, radius: float) -> list[LongPrompt]:
    sizes = scale.pick(
        smoke=[(1, 2), (2, 5)],
        quick=[(1, 2), (2, 2), (2, 5), (3, 5)],
        paper=[(1, 2), (2, 2), (2, 5), (3, 5), (5, 10)],
    )
    return [LongPrompt.with_radius(radius, loops, d) for loops, d in sizes]


def optimal_solution(scale: Scale, fraction_of_radius: float, distance: str) -> Verdict:
    """The three statements of Theorems 3.2 and A.8 about the minimum."""
    shortest, longer = long_prompts(scale, 4.0), long_prompts(scale, 0.5)
    losses = [s.loss / s.loss_bound for s in shortest]
    distances = [float(s.gap) / (fraction_of_radius * s.radius) for s in longer]
    weights = [s.shift_weight(s.gap) for s in shortest]
    slack = [fraction_of_radius * s.radius / float(s.gap) for s in shortest]
    return Verdict(
        [
            Check(
                "largest optimal loss over its bound, at the shortest prompts that are admitted",
                max(losses),
                1.0,
                min(s.d / s.loss_bound for s in shortest),
                BOUND,
                "A = 0, which predicts nothing",
            ),
            Check(
                f"largest {distance} over its bound, at prompts with c = 1/2",
                max(distances),
                1.0,
                min(1 / (fraction_of_radius * s.radius) for s in longer),
                BOUND,
                "A = 0",
            ),
            Check(
                "smallest weight of |u|^2 in the loss at the minimum: u = 0 is best if it is "
                "positive",
                min(weights),
                1e-6,
                max(s.shift_weight(Fraction(1)) for s in shortest),
                "positive, and by far: it tends to 1 for long prompts",
                "A = 0, where every u has the same loss",
                at_least=True,
            ),
        ],
        settings={
            "shortest prompts": "; ".join(map(str, shortest)),
            "loss bound / loss": ", ".join(f"{1 / v:.2g}" for v in losses),
            "distance bound / distance there": ", ".join(f"{v:.2g}" for v in slack),
            "c there": "4: the lower bound 1 - c on A is negative and says nothing; c < 1 needs "
            "n > (8 L d^2 8^(2L))^2",
            "prompts with c = 1/2": "; ".join(map(str, longer)),
        },
    )


@claim(
    "gatmiry2024/theorem3.2",
    "For long prompts the optimal loss is small, the optimal A is close to the inverse "
    "covariance, and u = 0",
    source="Theorem 3.2",
    formula=r"\begin{aligned} & L(A^{opt}, u^{opt}) \le \frac{8 L d^2 2^{2L}}{\sqrt n},\qquad "
    r"(1-c) \Sigma^{*-1} \preceq A^{opt} \preceq (1+c) \Sigma^{*-1},\qquad u^{opt} = 0, \\ & c = 8 "
    r"\delta d^{1/(2L)},\qquad \text{if } \frac{8 L d^2}{\sqrt n} \le 2^{-2L} \end{aligned}",
)
def characterisation(scale: Scale) -> Verdict:
    return optimal_solution(scale, 1.0, "|a* - 1|")


@claim(
    "gatmiry2024/theoremA.8",
    "Theorem 3.2 again, in terms of delta",
    source="Theorem A.8, Eq. 22 and 23",
    formula=r"L(A^{opt}, d^{opt}) \le d (2\delta)^{2L},\qquad \|A^{opt\,1/2} \Sigma^* "
    r"A^{opt\,1/2} - I\| \le 4 \delta d^{1/(2L)},\qquad d^{opt} = 0\qquad\text{if } "
    r"\delta d^{1/(2L)} < \tfrac{1}{2}",
)
def characterisation_restated(scale: Scale) -> Verdict:
    """d (2 delta)^2L is the bound of Theorem 3.2, and 4 delta d^{1/2L} is c/2."""
    return optimal_solution(scale, 0.5, "|A^1/2 Sigma* A^1/2 - I|")


@claim(
    "gatmiry2024/theorem3.2-rate",
    "The distance of the optimum from the inverse covariance in Theorem 3.2 is essentially the "
    "best that one can hope for",
    source="Remark after Theorem 3.2",
    formula=r"\|A^{opt} \Sigma^* - I\| \asymp \delta = \left(\frac{8Ld}{\sqrt n}\right)^{1/(2L)}",
)
def rate_of_the_gap(scale: Scale) -> Verdict:
    d = 5
    depths = scale.pick(smoke=(1, 2, 3), quick=(1, 2, 3, 5, 10), paper=(1, 2, 3, 5, 10))
    short, long = 10**6, 10**8
    gaps = {
        (loops, n): float(theory.optimal_gap(loops, n, d))
        for loops in depths
        for n in (short, long)
    }
    constants = {loops: float(theory.gap_constant(loops, d)) for loops in depths}

    def exponent(values: Callable[[int, int], float], loops: int) -> float:
        """Of n, between the two lengths."""
        return math.log(values(loops, long) / values(loops, short)) / math.log(long / short)

    exponents = [exponent(lambda loops, n: gaps[loops, n], loops) for loops in depths]
    deltas = [exponent(lambda loops, n: accuracy(loops, n, d), loops) for loops in depths]
    errors = [abs(gaps[loops, long] * long / constants[loops] - 1) for loops in depths]
    shallow = min(abs((d + 1) / constants[loops] - 1) for loops in depths if loops > 1)
    allowed = 10 * max(constants.values()) / short
    why = f"the next term of the expansion is of order kappa/n; ten times that at n = {short:.0e}"
    return Verdict(
        printed=[
            Check(
                "largest difference of the exponents of n in 1 - a* and in delta",
                max(abs(e - x) for e, x in zip(exponents, deltas, strict=True)),
                allowed,
                min(abs(2 * e - x) for e, x in zip(exponents, deltas, strict=True)),
                why,
                "the exponent of (1 - a*)^2",
            )
        ],
        corrected=[
            Check(
                "largest difference of the exponent of n in 1 - a* from -1",
                max(abs(e + 1) for e in exponents),
                allowed,
                min(abs(x + 1) for x in deltas),
                why,
                "the exponent of n in delta",
            ),
            Check(
                "largest relative difference of n (1 - a*) from kappa_L, n = 1e8",
                max(errors),
                allowed,
                shallow,
                why,
                "kappa_1 = d + 1 for every L",
            ),
        ],
        correction=Correction(
            r"1 - a^* \text{ of order } n^{-1/(4L)}",
            r"1 - a^* = \frac{\kappa_L}{n} + O(n^{-2}),\qquad \kappa_1 = d + 1,\qquad \kappa_L = "
            r"\lim_n n\,\frac{\mathbb{E}\,\mathrm{tr}\left(Y^{2L-1} + Y^{2L}\right)}{(2L-1)\,"
            r"\mathbb{E}\,\mathrm{tr}\,Y^{2L-2}},\quad Y = \tfrac{1}{n} W - I",
            "The optimum is a*/Sigma* with 1 - a* = kappa_L/n: of order 1/n for every L, and not n "
            "to the power -1/(4L). To leading order the derivative E tr x (1 - a x)^(2L-1) "
            "vanishes at x = 1 + Y, a = 1 - kappa/n, when kappa is as given. For one loop "
            "the paper's own comparison, Ahn et al., has a* = n/(n + d + 1), a distance of "
            "(d+1)/n. d = 5: kappa = "
            + ", ".join(f"{constants[loops]:.2f}" for loops in depths)
            + f" for L = {', '.join(map(str, depths))}. At n = 1e8 and L = {depths[-1]} the "
            f"distance is {gaps[depths[-1], long]:.2g}, while the theorem's c is "
            f"{8 * accuracy(depths[-1], long, d) * d ** (1 / (2 * depths[-1])):.2g}. (The remark "
            "itself calls delta 4kd/sqrt(n), which is a third definition.)",
        ),
        settings={
            "d": d,
            "n": f"{short:.0e} and {long:.0e}",
            "L": ", ".join(map(str, depths)),
            "exponents of 1 - a*": ", ".join(f"{e:.4f}" for e in exponents),
            "exponents of delta": ", ".join(f"{e:.4f}" for e in deltas),
        },
    )
