"""Where gradient flow of all weights ends: Theorems 4.1 and, with a random covariance, 4.5."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import DTYPE, normal
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Scale, Verdict
from innerloop.papers.zhang2023.flows import Start, described, direction
from innerloop.papers.zhang2023.lemma5_1 import column_vector
from innerloop.papers.zhang2023.lemmas5_4_C8 import ends
from innerloop.papers.zhang2023.prompts import minimum_around, population_loss, whole
from innerloop.papers.zhang2023.settings import (
    LIMIT,
    LOWEST,
    GammaOf,
    Mixture,
    checked_gammas,
    crossing,
    exponential,
    fixed,
    gamma,
)

ONES, UNEQUAL = (1.0, 1.0), (1.0, 0.5)


def end_of_all_weights(start: Start) -> Tensor:
    """Where theta = (p, v, U, r) ends on the exact loss, from Assumption 3.3."""
    sigma = torch.tensor(start.sigma, dtype=DTYPE)
    flow = theory.flow.gradient_flow(
        population_loss(start.law, start.n), whole(sigma * start.direction, sigma)
    )
    assert flow.converged, flow.ended_because
    return flow.end


@cache
def lowest_loss(law: Mixture, n: int, starts: int) -> float:
    """The least loss that descents over all weights find, from normal starts.

    Some of them end at a local minimum of the whole loss, with v = 0.
    """
    loss, size = population_loss(law, n), (law.d + 1) ** 2
    return min(theory.flow.descend(loss, 0.5 * normal(s, size))[0] for s in range(starts))


def printed_end(g: GammaOf, start: Start) -> Tensor:
    """Eq. 4.12: (E Gamma Lambda^2)^-1 E Lambda^2; with one covariance it is Gamma^-1, Eq. 4.1."""
    if start.is_fixed:
        return minimum_around(torch.linalg.inv(g(start.law.covariances[0], start.n)))
    cubic = start.law.mean(lambda c: g(c, start.n) @ c @ c)
    return minimum_around(torch.linalg.inv(cubic) @ start.law.mean(lambda c: c @ c))


def ends_at_the_minimum(starts: list[Start], equation: str, descents: int) -> list[Check]:
    """All weights end at the point of this equation, and no descent finds a lower loss."""
    found = [end_of_all_weights(start) for start in starts]

    def end_error(g: GammaOf) -> float:
        pairs = zip(found, starts, strict=True)
        return max((end - printed_end(g, start)).abs().max().item() for end, start in pairs)

    def excess(g: GammaOf) -> float:
        shares = []
        for start in starts:
            loss = population_loss(start.law, start.n)(printed_end(g, start)).item()
            shares.append(abs(loss / lowest_loss(start.law, start.n, descents) - 1))
        return max(shares)

    return [
        *checked_gammas(
            f"largest entry of the difference between where all weights end and {equation}",
            LIMIT,
            end_error,
        ),
        *checked_gammas(
            f"largest relative difference of the loss at {equation} from the least loss found by "
            "descent over all weights",
            LOWEST,
            excess,
        ),
    ]


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
        chosen += [(d, n, k, 0.1) for d, n in ((2, 1), (2, 2)) for k in ("2", "3", "rank one")]
        chosen += [(1, 1, "0", 0.5), (1, 3, "0", 0.99)]
        chosen += [(5, 20, k, f) for k, f in (("5", 0.1), ("6", 0.99), ("rank one", 0.7))]
    starts = [Start(fixed(d), n, direction(d, kind), part) for d, n, kind, part in chosen]
    descents = scale.pick(smoke=8, quick=12, paper=24)
    return Verdict(
        ends_at_the_minimum(starts, "Eq. 4.1", descents),
        settings=described(starts) | {"descents": descents},
    )


@claim(
    "zhang2023/theorem4.1-any-scale",
    "The flow converges to the same minimum from balanced starts of any scale, without the "
    "condition on sigma",
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
    starts = [Start(fixed(d), n, direction(d, kind), part) for d, n, kind, part in chosen]
    above = sum(start.first_loss() > 0 for start in starts)
    return Verdict(
        ends(starts, "Eq. 5.9"),
        settings=described(starts),
        remarks=[
            f"{above} of {len(starts)} starts have a positive loss, where the paper's proof has "
            "nothing to say."
        ],
    )


@claim(
    "zhang2023/theorem4.5",
    "With a random diagonal covariance, too, gradient flow converges to a global minimum, namely "
    "this",
    source="Theorem 4.5, Eq. 4.11 and 4.12",
    formula=r"W_*^{KQ} = \|D\|_F^{-1/2} \begin{bmatrix} D & 0 \\ 0 & 0 \end{bmatrix},\quad"
    r" W_*^{PV} = \|D\|_F^{1/2} \begin{bmatrix} 0 & 0 \\ 0 & 1 \end{bmatrix},\quad"
    r" D = \left[\mathbb{E}\,\Gamma_\tau \Lambda_\tau^2\right]^{-1} \mathbb{E}\,\Lambda_\tau^2",
)
def random_minimum(scale: Scale) -> Verdict:
    chosen = [(UNEQUAL, 1, "rank one", 0.95), (ONES, 2, "7", 0.7), ((1.0, 0.5, 2.0), 8, "7", 0.7)]
    if scale is not Scale.SMOKE:
        chosen += [(UNEQUAL, 2, k, f) for k in ("1", "2", "rank one") for f in (0.2, 0.7)]
        chosen += [((1.0,), 3, "0", 0.95), ((1.0, 1.0, 1.0), 8, "rank one", 0.95)]
    starts = [Start(exponential(m), n, direction(len(m), k), part) for m, n, k, part in chosen]
    descents = scale.pick(smoke=8, quick=12, paper=24)
    v = printed_end(gamma, Start(exponential((1.0,) * 3), 8, torch.eye(3), 1.0))[3].item()
    return Verdict(
        ends_at_the_minimum(starts, "Eq. 4.12", descents),
        settings=described(starts)
        | {"descents": descents}
        | {
            "law": "independent diagonal entries of two values, with the moments of exponential "
            "ones up to the third",
            "means": "; ".join(", ".join(f"{m:g}" for m in means) for means, *_ in chosen),
        },
        remarks=[
            "The loss is that of exponential entries, as it is cubic in the covariance; the bound "
            f"on sigma is of the two values. For means 1, d = 3 and N = 8, v tends to {v:.6f}."
        ],
    )


@claim(
    "zhang2023/theorem4.5-nondiagonal",
    "With random covariances that do not commute the flow converges too, and the limit has a "
    "closed form",
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
    starts = [Start(crossing(d), n, direction(d, kind), part) for d, n, kind, part in chosen]
    found = [end_of_all_weights(start) for start in starts]

    def product(start: Start, g: GammaOf) -> Tensor:
        operator = start.law.mean(lambda c: torch.kron(c, g(c, start.n) @ c))
        square = start.law.mean(lambda c: c @ c)
        return torch.linalg.solve(operator, column_vector(square)).view_as(square).mT

    def error(stated: Callable[[Start], Tensor]) -> float:
        pairs = zip(found, starts, strict=True)
        return max((end - stated(start)).abs().max().item() for end, start in pairs)

    others = {
        "Eq. 4.12": error(lambda start: printed_end(gamma, start)),
        "D^T for D": error(lambda start: minimum_around(product(start, gamma).mT)),
    }
    d = product(starts[1], gamma)
    return Verdict(
        checked_gammas(
            "largest entry of the difference between where all weights end and this limit",
            LIMIT,
            lambda g: error(lambda start: minimum_around(product(start, g))),
            others,
        ),
        settings={
            "law": "three covariances with random eigenvectors, probabilities .5, .3, .2",
            **described(starts),
        },
        remarks=[
            "D is not symmetric: |D - D^T| / |D| = "
            f"{((d - d.mT).norm() / d.norm()).item():.4f} for d = 3, N = 8."
        ],
    )
