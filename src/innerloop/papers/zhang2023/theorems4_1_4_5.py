"""Where gradient flow of all weights ends: Theorems 4.1 and, with a random covariance, 4.5."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import identity, normal
from innerloop.papers.quantity import at_most
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.zhang2023 import lemmas5_4_C8, prompts, settings
from innerloop.papers.zhang2023.flows import Start, described, direction, fixed_start
from innerloop.papers.zhang2023.lemma5_1 import column_vector
from innerloop.papers.zhang2023.settings import LIMIT, GammaOf, gamma, gamma_checks

LOWEST = at_most(1e-8, "the loss is quadratic around a minimum, found to 1e-6 or better")


@cache
def lowest_loss(law: settings.Mixture, n: int, starts: int) -> float:
    """The least that descents from normal starts find; some end at a local one, with v = 0."""
    loss, size = prompts.population_loss(law, n), (law.d + 1) ** 2
    return min(theory.flow.descend(loss, 0.5 * normal(s, size))[0] for s in range(starts))


def from_the_end(starts: list[Start]) -> Callable[[Callable[[Start], Tensor]], float]:
    """The largest entry of the difference between where all weights end and what is stated."""
    found = [prompts.end_of_all_weights(s.law, s.n, s.direction, s.sigma) for s in starts]

    def farthest(stated: Callable[[Start], Tensor]) -> float:
        pairs = zip(found, starts, strict=True)
        return max((end - stated(start)).abs().max().item() for end, start in pairs)

    return farthest


def ends_at_the_minimum(starts: list[Start], equation: str, scale: Scale) -> Verdict:
    farthest, descents = from_the_end(starts), scale.pick(smoke=8, quick=12, paper=24)

    def excess(g: GammaOf, start: Start) -> float:
        loss = prompts.population_loss(start.law, start.n)(start.minimum(g)).item()
        return abs(loss / lowest_loss(start.law, start.n, descents) - 1)

    end = f"largest entry of the difference between where all weights end and {equation}"
    least = f"relative difference of the loss at {equation} from the least that descents find"
    point = gamma_checks(end, lambda g: farthest(lambda start: start.minimum(g)), LIMIT)
    value = gamma_checks(least, lambda g: max(excess(g, start) for start in starts), LOWEST)
    return Verdict([*point, *value], settings=described(starts) | {"descents": descents})


@claim(
    "zhang2023/theorem4.1",
    "Gradient flow from a balanced start converges to a global minimum of the loss, namely this",
    source="Theorem 4.1, Eq. 4.1",
    formula=r"W_*^{KQ} = \left[\mathrm{tr}\,\Gamma^{-2}\right]^{-1/4} \begin{bmatrix} \Gamma^{-1}"
    r" & 0 \\ 0 & 0 \end{bmatrix},\quad W_*^{PV} = \left[\mathrm{tr}\,\Gamma^{-2}\right]^{1/4}"
    r" \begin{bmatrix} 0 & 0 \\ 0 & 1 \end{bmatrix},\quad \sigma^2 \|\Gamma\|_{op} \sqrt{d} < 2",
)
def fixed_minimum(scale: Scale) -> Verdict:
    chosen = [(2, 1, "rank one", 0.99), (2, 2, "1", 0.7), (3, 10, "3", 0.7)]
    if scale is not Scale.SMOKE:
        chosen += [(2, n, k, 0.1) for n in (1, 2) for k in ("2", "3", "rank one")]
        chosen += [(1, 1, "0", 0.5), (1, 3, "0", 0.99)]
        chosen += [(5, 20, k, f) for k, f in (("5", 0.1), ("6", 0.99), ("rank one", 0.7))]
    return ends_at_the_minimum([fixed_start(*each) for each in chosen], "Eq. 4.1", scale)


@claim(
    "zhang2023/theorem4.1-any-scale",
    "The flow converges to the same minimum from balanced starts of any scale sigma",
    source="Theorem 4.1, strengthened",
    formula=r"\text{for all } \sigma > 0: \quad (U_{11}, u_{-1}) \to \left(\|\Gamma^{-1}\|_F^{-1/2}"
    r" \Gamma^{-1},\; \|\Gamma^{-1}\|_F^{1/2}\right)",
    ours="proved",
)
def any_scale(scale: Scale) -> Verdict:
    """Why it is true, in the eigenbasis of Lambda, with balanced weights v^2 = |U|_F^2.

    v > 0 always, since v = 0 means U = 0, a point of rest that no other path reaches. Then
    U_ii' = v (xi_i - v gamma_i U_ii) with xi_i = lambda_i^2, so U_ii > 0 for t > 0: Theta Theta^T
    has no negative diagonal. The path is bounded, as the loss falls and grows like v^4 on balanced
    weights. A bounded path of a polynomial gradient flow converges, to a point of rest: a minimum,
    or the origin. If it were the origin, s = sum_i xi_i U_ii > 0 would fall to 0; but
    s' = v (sum_i xi_i^2 - v sum_i gamma_i xi_i U_ii) > 0 near it.
    """
    chosen = [(2, 1, "rank one", 1.5), (3, 10, "103", 30.0)]
    if scale is not Scale.SMOKE:
        chosen += [(5, 20, k, f) for k in ("105", "rank one") for f in (3.0, 10.0)]
        chosen += [(3, 1, k, f) for k in ("1", "2", "rank one") for f in (3.0, 100.0)]
    starts = [fixed_start(*each) for each in chosen]
    found = lemmas5_4_C8.ends(starts, "Eq. 5.9")
    above = sum(start.first_loss() > 0 for start in starts)
    remark = f"{above} of {len(starts)} starts have a positive loss: there the proof says nothing."
    return Verdict(found, settings=described(starts), remarks=[remark])


@claim(
    "zhang2023/theorem4.5",
    "With a random diagonal covariance, too, gradient flow converges to a global minimum, this",
    source="Theorem 4.5, Eq. 4.11 and 4.12",
    formula=r"W_*^{KQ} = \|D\|_F^{-1/2} \begin{bmatrix} D & 0 \\ 0 & 0 \end{bmatrix},\quad"
    r" W_*^{PV} = \|D\|_F^{1/2} \begin{bmatrix} 0 & 0 \\ 0 & 1 \end{bmatrix},\quad"
    r" D = \left[\mathbb{E}\,\Gamma_\tau \Lambda_\tau^2\right]^{-1} \mathbb{E}\,\Lambda_\tau^2",
)
def random_minimum(scale: Scale) -> Verdict:
    ones, unequal, three = ((1.0, 1.0), (1.0, 0.5), (1.0, 0.5, 2.0))
    chosen = [(unequal, 1, "rank one", 0.95), (ones, 2, "7", 0.7), (three, 8, "7", 0.7)]
    if scale is not Scale.SMOKE:
        chosen += [(unequal, 2, k, f) for k in ("1", "2", "rank one") for f in (0.2, 0.7)]
        chosen += [((1.0,), 3, "0", 0.95), ((1.0, 1.0, 1.0), 8, "rank one", 0.95)]
    laws = {means: settings.exponential(means) for means, *_ in chosen}
    starts = [Start(laws[m], n, direction(len(m), kind), part) for m, n, kind, part in chosen]
    v = Start(settings.exponential((1.0,) * 3), 8, identity(3), 1.0).limit(gamma)[0]
    remark = (
        f"Means {'; '.join(map(str, laws))}. Independent entries of two values have three moments "
        "of exponential ones: the loss is the same, as it is cubic in the covariance, the bound on "
        f"sigma is not. For means 1, d = 3 and N = 8, v tends to {v:.6f}."
    )
    return replace(ends_at_the_minimum(starts, "Eq. 4.12", scale), remarks=[remark])


@claim(
    "zhang2023/theorem4.5-nondiagonal",
    "With covariances that do not commute the flow converges too, to a closed form",
    source="Theorem 4.5, extended",
    formula=r"\mathrm{Vec}(D) = \left(\mathbb{E}\,\Lambda_\tau \otimes \Gamma_\tau \Lambda_\tau"
    r"\right)^{-1} \mathrm{Vec}\left(\mathbb{E}\,\Lambda_\tau^2\right),\qquad U_{11} \to"
    r" \|D\|_F^{-1/2} D,\quad u_{-1} \to \|D\|_F^{1/2}",
    ours="measured",
)
def nondiagonal_minimum(scale: Scale) -> Verdict:
    """The closed form is the gradient in U of Eq. C.1 set to zero; the operator is definite."""
    chosen = [(2, 1, "rank one", 0.7), (3, 8, "0", 0.7)]
    if scale is not Scale.SMOKE:
        chosen += [(d, n, k, f) for d, n in ((2, 2), (3, 8)) for k, f in (("1", 0.2), ("2", 0.95))]
    starts = [Start(settings.crossing(d), n, direction(d, k), part) for d, n, k, part in chosen]
    farthest = from_the_end(starts)

    def product(start: Start, g: GammaOf) -> Tensor:
        operator = start.law.mean(lambda c: torch.kron(c, g(c, start.n) @ c))
        square = column_vector(start.law.square())
        return torch.linalg.solve(operator, square).view(start.law.d, -1).mT

    others = {
        "Eq. 4.12": farthest(lambda start: start.minimum(gamma)),
        "D^T for D": farthest(lambda start: prompts.minimum_around(product(start, gamma).mT)),
    }
    found = gamma_checks(
        "largest entry of the difference between where all weights end and this limit",
        lambda g: farthest(lambda start: prompts.minimum_around(product(start, g))),
        LIMIT,
        others,
    )
    d = product(starts[1], gamma)
    remark = (
        "The law: three covariances with random eigenvectors, probabilities .5, .3, .2. D is not "
        f"symmetric: |D - D^T| / |D| = {(d - d.mT).norm() / d.norm():.4f} for d = 3, N = 8."
    )
    return Verdict(found, settings=described(starts), remarks=[remark])
