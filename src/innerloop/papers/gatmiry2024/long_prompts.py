"""The minimum for very long prompts: Theorems 3.2 and A.8 of Gatmiry et al. (2024).

The bounds say something for n of about 1e7 and more, where `theory.long_prompts` is exact in
fractions. Table 1 of the paper lists these and the other theorems and states nothing of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from innerloop import theory
from innerloop.papers.gatmiry2024.settings import BOUND, accuracy
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Correction, Scale, Verdict


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
        return theory.linear.optimal_gap(self.loops, self.n, self.d)

    @property
    def loss(self) -> float:
        return float(theory.linear.long_prompt_risk(self.gap, self.loops, self.n, self.d))

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
            theory.linear.residual_moment(gap, power, self.n, self.d)
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
            "A": "the best symmetric one, which is a*/Sigma*; over all A see "
            "gatmiry2024/asymmetric",
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
    formula=r"\begin{aligned} & L(A^{opt}, u^{opt}) \le \frac{8 L d^2 2^{2L}}{\sqrt n},\quad (1-c) "
    r"\Sigma^{*-1} \preceq A^{opt} \preceq (1+c) \Sigma^{*-1}, \\ & u^{opt} = 0,\quad c = 8 \delta "
    r"d^{1/(2L)},\quad \text{if } \frac{8 L d^2}{\sqrt n} \le 2^{-2L} \end{aligned}",
)
def characterisation(scale: Scale) -> Verdict:
    return optimal_solution(scale, 1.0, "|a* - 1|")


@claim(
    "gatmiry2024/theoremA.8",
    "Theorem 3.2 again, in terms of delta",
    source="Theorem A.8, Eq. 22 and 23",
    formula=r"\begin{aligned} & L(A^{opt}, d^{opt}) \le d (2\delta)^{2L},\quad "
    r"\|(A^{opt})^{1/2} \Sigma^* (A^{opt})^{1/2} - I\| \le 4 \delta d^{1/(2L)}, \\ & d^{opt} = 0 "
    r"\quad \text{if } \delta d^{1/(2L)} < \tfrac{1}{2} \end{aligned}",
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
        (loops, n): float(theory.linear.optimal_gap(loops, n, d))
        for loops in depths
        for n in (short, long)
    }
    constants = {loops: float(theory.linear.gap_constant(loops, d)) for loops in depths}

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
            r"\|A^{opt} \Sigma^* - I\| \text{ of order } n^{-1/(4L)}",
            r"\begin{aligned} & A = A^\top:\; A^{opt} = a^* \Sigma^{*-1}, \\ & 1 - a^* = "
            r"\frac{\kappa_L}{n} + O(n^{-2}), \\ & \kappa_1 = d + 1, \\"
            r" & \kappa_L = \lim_n \frac{n\, \mathbb{E}\,\mathrm{tr}(Y^{2L-1} + Y^{2L})}{(2L-1)\,"
            r"\mathbb{E}\,\mathrm{tr}\,Y^{2L-2}} \end{aligned}",
            "Among symmetric A the optimum is a*/Sigma* with 1 - a* = kappa_L/n: of order 1/n for "
            "every L, and not n to the power -1/(4L). (Over all A it is at a distance of order "
            "1/sqrt(n) for L >= 2, see gatmiry2024/asymmetric: not that power either.) To "
            "leading order the derivative E tr x (1 - a x)^(2L-1) "
            "vanishes at x = I + Y = W/n, a = 1 - kappa/n, when kappa is as given. For one loop "
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
