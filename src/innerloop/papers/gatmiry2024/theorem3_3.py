"""How fast the gradient flow converges: Theorems 3.3 and A.12 of Gatmiry et al. (2024), Sigma* = I.

The paper leaves the start open. From A(0) = 0 the flow stays on the ray A = a I, with da/dt =
-(1/d) dL/da. The dominance of `theorem3_4`, for a <= a*, gives for every n, as long as L > xi,

    d/dt L^{-(L-1)/L} >= 4 L (L-1) d^{-(L-1)/L} (1 - rho)^2,    rho = (min L / xi)^{1/(2L)},

and L(a I) >= d |1 - a|^{2L} by Jensen's inequality.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers import Check, Correction, Kind, Scale, Verdict, claim
from innerloop.papers.common import DTYPE, identity
from innerloop.papers.gatmiry2024 import settings
from innerloop.papers.quantity import INEQUALITY, ROUNDING, checks

PRINTED_TIME = (
    r"t \ge \left(\frac{1}{\xi}\right)^{\frac{L-1}{L}} \left(\frac{16L}{L-1}\right)"
    r"^{\frac{L-1}{2L-1}}"
)
CORRECTION = Correction(
    PRINTED_TIME + r"\;\Rightarrow\; L(A(t)) \le \xi",
    r"\begin{aligned} & A(0) = 0,\; t \ge \frac{(1 - \rho)^{-2}}{4L(L-1)} "
    r"\left(\frac{d}{\xi}\right)^{\frac{L-1}{L}} \Rightarrow L(A(t)) \le \xi, \\ & "
    r"(1 - r) A^{opt} \preceq A(t) \preceq A^{opt},\; r = (\xi / d)^{1/(2L)}, \\ & "
    r"\rho = (\min L / \xi)^{1/(2L)},\quad \text{for every } n \end{aligned}",
    "The dominance of Theorem 3.4 holds with 4 L^2 d^(-(L-1)/L) in place of 1/16; and g' = "
    "-(1/16) g^((2L-1)/L), without its sign in (29), is solved by g(t) = (16L/(L-1))^(L/(L-1)) "
    "(t + c)^(-L/(L-1)). Part 2 fails where I - A is nilpotent: the loss vanishes as n grows, and "
    "the flow stands still. From A = 0 it holds, with a smaller radius.",
    Kind.STATEMENT,
    "L = 2, xi = 1e-6, from A = 0: at the printed time the loss is 1.55 xi for d = 1000 (the time "
    "suffices up to d = 645). And from A = I - 3 E_12, d = 2, n = 2.7e22, where the loss is below "
    "xi = 1e-7 from the start, the symmetric part of A keeps the eigenvalue -1/2.",
)
SETTINGS = {"n": "the shortest with xi >= 2 (4 delta)^(2L)"}


def printed_time(xi: float, loops: int) -> float:
    base = 16 * loops / (loops - 1)
    return xi ** (-(loops - 1) / loops) * base ** ((loops - 1) / (2 * loops - 1))


def corrected_time(xi: float, loops: int, n: int, d: int) -> float:
    rho = (settings.least_loss(loops, n, d) / xi) ** (1 / (2 * loops))
    return (d / xi) ** ((loops - 1) / loops) / (4 * loops * (loops - 1) * (1 - rho) ** 2)


def shortest_prompt(xi: float, loops: int, d: int) -> int:
    """The least n with xi >= 2 (4 delta)^{2L} = 16 L d 16^L / sqrt n."""
    return math.ceil((16 * loops * d * 16**loops / xi) ** 2)


def gap_after(time: float, loops: int, n: int, d: int) -> float:
    """1 - a(t) of the exact flow from A = 0."""

    def exact(formula: Callable[..., float]) -> Callable[[Tensor], Tensor]:
        return lambda g: torch.tensor(formula(float(g), loops, n, d) / d, dtype=DTYPE)

    slope = exact(theory.linear.long_prompt_slope)
    flow = theory.flow.gradient_flow(
        exact(theory.linear.long_prompt_risk),
        torch.ones(1, dtype=DTYPE),
        gradient=lambda g: slope(g)[None],
        until=time,
        rest=1e-30,  # the slope is a high power of the gap: no time before `until` is at rest
        atol=1e-15,
    )
    return float(flow.end)


def converged_in_time(scale: Scale) -> list[Check]:
    """Part 1, at the printed time for many dimensions and for few, and at the corrected one."""
    xi, many = 1e-6, (100, 1000, 10_000)
    cases = [(2, d) for d in scale.pick(smoke=(100,), quick=many, paper=many)]
    cases += [(L, 10) for L in scale.pick(smoke=(3,), quick=(3, 4), paper=(3, 4, 5))]
    long = [(xi, L, shortest_prompt(xi, L, d), d) for L, d in cases]
    short = [
        (factor * settings.least_loss(L, n, d), L, n, d)
        for L, n, d in ((2, 20, 5), (3, 50, 3))
        for factor in (1.5, 10)
    ]

    def share(time: float, xi: float, *setting: int) -> float:
        return theory.linear.long_prompt_risk(gap_after(time, *setting), *setting) / xi

    def at_corrected(chosen: list[tuple[float, int, int, int]], part: float = 1.0) -> float:
        return max(share(part * corrected_time(*setting), *setting) for setting in chosen)

    return checks(
        f"loss / xi at the printed time from A = 0, L = 2, xi = {xi:g}",
        INEQUALITY,
        {"d = 1000": 1000, "d = 640": 640},
        unlike={"d = 650": 650},
        measure=lambda d: share(printed_time(xi, 2), xi, 2, shortest_prompt(xi, 2, d), d),
    ) + checks(
        "largest loss / xi at the corrected time from A = 0",
        INEQUALITY,
        {
            "the shortest prompts that the theorem admits": at_corrected(long),
            "n = 20 and 50, xi = 1.5 and 10 times the least loss": at_corrected(short),
        },
        unlike={"the shortest prompts, at 0.99 of the time": at_corrected(long, 0.99)},
    )


def closeness() -> list[Check]:
    """Part 2: from a start that is not symmetric, and from A = 0."""
    loops, d, xi = 2, 2, 1e-7
    n = shortest_prompt(xi, loops, d)
    best = 1 - float(theory.linear.optimal_gap(loops, n, d))
    radius, small = 8 * (1 + 4 * d**0.25) * xi**0.25, (xi / d) ** 0.25
    loss = settings.word_loss(settings.white(d, n), loops)

    def sheared_start(t: float) -> float:
        start = settings.sheared(t)
        assert loss(start) <= xi
        flow = theory.flow.gradient_flow(
            lambda v: loss(v.view(d, d)), start.flatten(), until=printed_time(xi, loops), rest=1e-12
        )
        return settings.order_distance(flow.end.view(d, d), best, identity(d)) / radius

    def zero_start(share: float) -> float:
        a = 1 - gap_after(share * corrected_time(xi, loops, n, d), loops, n, d)
        return settings.order_distance(a * identity(d), best, identity(d)) / small

    return checks(
        f"order distance from A_opt, xi = {xi:g}, over",
        INEQUALITY,
        {
            f"the printed radius {radius:.2f}, from I - 3 E_12": sheared_start(3.0),
            "(xi/d)^(1/(2L)), from 0, at the corrected time": zero_start(1.0),
        },
        unlike={
            f"the printed radius {radius:.2f}, from I - 2 E_12": sheared_start(2.0),
            "(xi/d)^(1/(2L)), from 0, at 0.99 of the time": zero_start(0.99),
        },
    )


@claim(
    "gatmiry2024/theorem3.3",
    "The gradient flow reaches a loss of xi, and is then close to the optimum, in a time that does "
    "not depend on the dimension",
    source="Theorem 3.3",
    formula=r"\begin{aligned} & "
    + PRINTED_TIME
    + r",\; \xi \ge 2 (4\delta)^{2L} \;\Rightarrow \\ & L(A(t)) \le \xi,\quad (1 - r) A^{opt} "
    r"\preceq A(t) \preceq (1 + r) A^{opt},\quad r = 8 \left(1 + 4 d^{1/(2L)}\right) "
    r"\xi^{1/(2L)} \end{aligned}",
)
def convergence(scale: Scale) -> Verdict:
    late, *in_time = converged_in_time(scale)
    far, close = closeness()
    remark = (
        "For L = 1 the printed time divides by 0; the loss is then close to d exp(-4t). For xi "
        "above 1e-6 the printed radius is above 1 and A = 0 is within it."
    )
    return Verdict([late, far], [*in_time, close], CORRECTION, SETTINGS, [remark])


def equation_residual(loops: int, exponent: float, sign: int) -> float:
    """|g' - sign (1/16) g^{(2L-1)/L}| / |g'|, largest over t, g = K (t + c)^{-L/(L-1)}, g(0) = 3,
    K = (16 L/(L-1))^exponent."""
    power = loops / (loops - 1)
    k = (16 * power) ** exponent
    t = torch.linspace(0, 50, 11, dtype=DTYPE).requires_grad_()
    g = k * (t + (k / 3) ** (1 / power)) ** -power
    (slope,) = torch.autograd.grad(g.sum(), t)
    residual = slope - sign / 16 * g ** ((2 * loops - 1) / loops)
    return (residual / slope).abs().max().item()


@claim(
    "gatmiry2024/theoremA.12",
    "Part 1 of Theorem 3.3 again, with the differential equation that it is derived from",
    source="Theorem A.12, Eq. 29",
    formula=r"g' = \frac{1}{16} g^{(2L-1)/L},\quad g(t) = \left(\frac{16L}{L-1}\right)"
    r"^{\frac{L}{2L-1}} \frac{1}{(t + c)^{L/(L-1)}} \;\Rightarrow\;" + PRINTED_TIME,
)
def convergence_restated(scale: Scale) -> Verdict:
    late, *in_time = converged_in_time(scale)

    def residual(exponent: Callable[[int], float], sign: int) -> float:
        return max(equation_residual(L, exponent(L), sign) for L in (2, 3, 5))

    wrong, right = checks(
        "largest relative residual of the equation, L = 2, 3, 5, with the power of 16L/(L-1) in g",
        ROUNDING,
        {
            "L/(2L-1), the sign of (29)": residual(lambda L: L / (2 * L - 1), +1),
            "L/(L-1), a minus sign": residual(lambda L: L / (L - 1), -1),
        },
        unlike={"L/(2L-1), a minus sign": residual(lambda L: L / (2 * L - 1), -1)},
    )
    return Verdict([late, wrong], [*in_time, right], CORRECTION, SETTINGS)
