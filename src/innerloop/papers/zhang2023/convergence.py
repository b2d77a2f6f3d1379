"""Gradient flow with a fixed covariance ends at the stated minimum: Theorem 4.1 and its lemmas.

The paper states no sizes, so the settings are ours. Flows are integrated to an error of 1e-10 a
step. That the initial scale may be anything, in `theorem4.1-any-scale`, goes beyond the paper.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import DTYPE, generator
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Scale, Verdict
from innerloop.papers.zhang2023.settings import (
    INTO_THE_SADDLE,
    LENGTHS,
    LIMIT,
    WHY_LIMIT,
    Run,
    end_error,
    ends_at_the_minimum,
    fixed,
    fixed_model,
    fixed_runs,
    gamma,
    into_the_saddle,
    past_the_saddle,
    unbalanced,
    whole,
    whole_loss,
)


def described(runs: list[Run]) -> dict[str, str]:
    return {
        "settings": "; ".join(run.name for run in runs),
        "Lambda": "random eigenvectors; eigenvalues 1.5, .4 / 1.5, .8, .4 / 1.5, 1, .8, .4, .2",
        "sigma": "as a fraction of the largest that is allowed (max)",
    }


def spread(values: list[float]) -> str:
    return f"{min(values):.3g} to {max(values):.3g}"


def whole_flow(d: int, direction: Tensor, sigma: float) -> theory.flow.Flow:
    """The flow of all weights theta = (p, v, U, r), from Assumption 3.3."""
    start = whole(sigma * direction, torch.tensor(sigma, dtype=DTYPE))
    return theory.flow.gradient_flow(whole_loss(d), start)


@cache
def lowest_loss(d: int, starts: int) -> float:
    """The least loss that descent over all weights finds, from normal starts.

    Some starts end at a local minimum of the whole loss, with v = 0.
    """
    ends = []
    for seed in range(starts):
        start = 0.5 * torch.randn((d + 1) ** 2, generator=generator(seed), dtype=DTYPE)
        ends.append(theory.flow.descend(whole_loss(d), start)[0])
    return min(ends)


def printed_limit(g: Tensor) -> Tensor:
    """(p, v, U, r) of Eq. 4.1, with g for Gamma."""
    inverse = torch.linalg.inv(g)
    power = (inverse @ inverse).trace() ** 0.25
    return whole(inverse / power, power)


@claim(
    "zhang2023/theorem4.1",
    "Gradient flow from a balanced start converges to a global minimum of the loss, namely this",
    source="Theorem 4.1, Eq. 4.1",
    formula=r"W_*^{KQ} = \left[\mathrm{tr}\,\Gamma^{-2}\right]^{-1/4} \begin{bmatrix} \Gamma^{-1}"
    r" & 0 \\ 0 & 0 \end{bmatrix},\quad W_*^{PV} = \left[\mathrm{tr}\,\Gamma^{-2}\right]^{1/4}"
    r" \begin{bmatrix} 0 & 0 \\ 0 & 1 \end{bmatrix},\quad \sigma^2 \|\Gamma\|_{op} \sqrt{d} < 2",
)
def flow_ends_at_the_minimum(scale: Scale) -> Verdict:
    """All weights move freely; those that Lemma 5.2 says stay at zero are in the comparison."""
    cases = scale.pick(
        smoke=[(3, 0.7)],
        quick=[(d, f) for d in (2, 3, 5) for f in (0.1, 0.7, 0.99)],
        paper=[(d, f) for d in (2, 3, 5) for f in (0.1, 0.7, 0.99)],
    )
    errors, without, below, above = [], [], [], []
    for d, fraction in cases:
        covariance, n, model = fixed(d), LENGTHS[d], fixed_model(d)
        direction = theory.flow.balanced_direction(d, generator(d))
        flow = whole_flow(d, direction, fraction * model.largest_scale(direction))
        errors.append((flow.end - printed_limit(gamma(covariance, n))).abs().max().item())
        without.append((flow.end - printed_limit(covariance)).abs().max().item())
        lowest = lowest_loss(d, starts=scale.pick(smoke=4, quick=8, paper=20))
        below.append(flow.loss(flow.end).item() / lowest - 1)
        above.append(flow.loss(printed_limit(covariance)).item() / lowest - 1)
    return Verdict(
        ends_at_the_minimum(errors, without, below, above, "Eq. 4.1"),
        settings={
            "(d, sigma / max)": ", ".join(f"({d}, {f})" for d, f in cases),
            "N": ", ".join(f"{LENGTHS[d]} for d = {d}" for d in sorted({d for d, _ in cases})),
        },
    )


@claim(
    "zhang2023/theorem4.1-any-scale",
    "Ours, beyond the paper: the flow converges to the same minimum from balanced starts of any "
    "scale, without the condition on sigma",
    source="Theorem 4.1, strengthened",
    formula=r"\text{for all } \sigma > 0: \quad (U_{11}, u_{-1}) \to \left(\|\Gamma^{-1}\|_F^{-1/2}"
    r" \Gamma^{-1},\; \|\Gamma^{-1}\|_F^{1/2}\right)",
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
    factors = scale.pick(
        smoke=[1.5, 30.0], quick=[1.5, 3.0, 10.0, 30.0], paper=[1.5, 3, 10, 30, 100]
    )
    dimensions = scale.pick(smoke=[3], quick=[2, 3, 5], paper=[2, 3, 5])
    errors, positive, wrong = [], 0, []
    for d in dimensions:
        model = fixed_model(d)
        for factor in factors:
            direction = theory.flow.balanced_direction(d, generator(100 + d))
            sigma = factor * model.largest_scale(direction)
            start = model.start(direction, sigma)
            positive += bool(model.loss(*start) > 0)
            errors.append(end_error(model, model.flow(*start)))
        wrong.append(end_error(model, model.flow(2 * direction, torch.ones(1, dtype=DTYPE)[0])))
    return Verdict(
        [
            Check(
                "largest entry of the difference between where the flow ends and the limit",
                max(errors),
                LIMIT,
                min(wrong),
                WHY_LIMIT,
                "a start that is not balanced, U(0) = 2 Theta Theta^T and v(0) = 1",
            )
        ],
        settings={
            "d": ", ".join(map(str, dimensions)),
            "sigma / the largest that Theorem 4.1 allows": ", ".join(map(str, factors)),
            "starts with a positive loss, where the paper's proof has nothing to say": (
                f"{positive} of {len(errors)}"
            ),
        },
    )


@claim(
    "zhang2023/lemma5.4",
    "Along the flow the loss obeys a Polyak-Lojasiewicz inequality, so it falls exponentially",
    source="Lemma 5.4, Eq. 5.7 to 5.9",
    formula=r"\|\nabla\tilde\ell\|^2 \ge \mu \left(\tilde\ell - \min\tilde\ell\right),\qquad"
    r" \mu = \frac{\sigma^2 \|\Lambda\Theta\|_F^2 \left[2 - \sqrt{d}\,\sigma^2"
    r" \|\Gamma\|_{op}\right]}{\sqrt{d}\, \|\Lambda\|_{op}^2\, \mathrm{tr}(\Gamma^{-1}"
    r" \Lambda^{-1})\, \mathrm{tr}(\Lambda^{-1})}",
)
def polyak_lojasiewicz(scale: Scale) -> Verdict:
    runs = fixed_runs(scale)
    slack = [worst_ratio(run, run.flow) for run in runs]
    return Verdict(
        [
            Check(
                "smallest |grad l~|^2 / (l~ - min l~) on the paths, relative to mu",
                min(slack),
                1.0,
                max(worst_ratio(run, into_the_saddle(run)) for run in runs),
                "the claim itself",
                INTO_THE_SADDLE,
                at_least=True,
            ),
            Check(
                "largest entry of the difference between where the flow ends and Eq. 5.9",
                max(run.end_error for run in runs),
                LIMIT,
                min(end_error(run.model, unbalanced(run)) for run in runs),
                WHY_LIMIT,
                "a start that is not balanced, U(0) = 2 sigma Theta Theta^T",
            ),
        ],
        settings=described(runs)
        | {
            "smallest ratio / mu": f"{spread(slack)}: mu is far from sharp",
            "mu": spread([run.model.pl_constant(run.direction, run.scale) for run in runs]),
        },
    )


def worst_ratio(run: Run, flow: theory.flow.Flow) -> float:
    """The smallest |grad l|^2 / (l - min l) on the path, relative to the paper's constant."""
    constant = run.model.pl_constant(run.direction, run.scale)
    return flow.pl_ratios(0.0).min().item() / constant


def imbalance(flow: theory.flow.Flow) -> float:
    """The largest |v^2 - |U|_F^2| / v^2 on the path."""
    squares = flow.path[:, 0] ** 2
    return ((squares - flow.path[:, 1:].square().sum(-1)).abs() / squares).max().item()


@claim(
    "zhang2023/lemmaA.3",
    "The two blocks stay balanced along the flow",
    source="Lemma A.3, Eq. A.12",
    formula=r"u_{-1}^2 = \mathrm{tr}\left[U_{11} U_{11}^\top\right] \text{ for all } t \ge 0",
)
def balance(scale: Scale) -> Verdict:
    return Verdict([balance_check(fixed_runs(scale))], settings=described(fixed_runs(scale)))


def balance_check(runs: list[Run]) -> Check:
    return Check(
        "largest |v^2 - |U|_F^2| / v^2 on the paths",
        max(imbalance(run.flow) for run in runs),
        1e-6,
        min(imbalance(unbalanced(run)) for run in runs),
        "an error of 1e-10 in v and U at each of about a thousand steps may add up to 4e-7",
        "a start with |U|_F = 2 v",
    )


@claim(
    "zhang2023/lemmaA.4",
    "From a start of limited scale, the scalar block stays positive",
    source="Lemma A.4, Eq. A.13",
    formula=r"0 < \sigma < \sqrt{\frac{2}{\sqrt{d}\,\|\Gamma\|_{op}}} \;\Rightarrow\; u_{-1}(t) > 0"
    r" \text{ for all } t",
)
def stays_positive(scale: Scale) -> Verdict:
    runs = fixed_runs(scale)
    return Verdict(
        [positivity_check(runs)],
        settings=described(runs)
        | {
            "the condition on sigma": "not needed: v = 0 on a balanced path means U = 0, a point "
            "of rest, which no other path reaches; see theorem4.1-any-scale"
        },
    )


def positivity_check(runs: list[Run]) -> Check:
    return Check(
        "smallest v on the paths, relative to sigma",
        min(run.flow.path[:, 0].min().item() / run.scale for run in runs),
        1e-9,
        max(past_the_saddle(run).path[:, 0].min().item() / run.scale for run in runs),
        "the claim is v > 0; the integrator's absolute error is 1e-12 a step",
        "a start that is not balanced, U(0) = -3 sigma E Lambda^2 / |E Lambda^2|_F",
        at_least=True,
    )


@claim(
    "zhang2023/lemmaA.5",
    "The scalar block stays above a constant, away from the saddle at the origin",
    source="Lemma A.5, Eq. A.14",
    formula=r"u_{-1} \ge \sqrt{\frac{\sigma^2}{2\sqrt{d}\,\|\Lambda\|_{op}^2} \|\Lambda\Theta\|_F^2"
    r" \left[2 - \sqrt{d}\,\sigma^2 \|\Gamma\|_{op}\right]}",
)
def stays_away_from_zero(scale: Scale) -> Verdict:
    runs = fixed_runs(scale)
    return Verdict([lower_bound_check(runs)], settings=described(runs) | slack_of_bound(runs))


def above_bound(run: Run, flow: theory.flow.Flow) -> float:
    return flow.path[:, 0].min().item() / run.model.smallest_v(run.direction, run.scale)


def lower_bound_check(runs: list[Run]) -> Check:
    return Check(
        "smallest v on the paths, relative to the bound",
        min(above_bound(run, run.flow) for run in runs),
        1.0,
        max(above_bound(run, into_the_saddle(run)) for run in runs),
        "the claim itself",
        INTO_THE_SADDLE,
        at_least=True,
    )


def slack_of_bound(runs: list[Run]) -> dict[str, str]:
    return {"smallest v / bound": spread([above_bound(run, run.flow) for run in runs])}
