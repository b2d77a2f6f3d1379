"""Deliberate errors that the claims of gatmiry2024 must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.mutations.mutation import Mutation, after, times

PAPER = "papers.gatmiry2024"


def ids(*names: str) -> tuple[str, ...]:
    return tuple(f"gatmiry2024/{name}" for name in names)


def convention(**changes: Any) -> Callable[[Any], Any]:
    return lambda right: replace(right, **changes)


def opposite(flag: str) -> Callable[[Any], Any]:
    """The function with this keyword, true or false, the other way round."""

    def wrong(right: Any) -> Any:
        return lambda *a, **named: right(*a, **{**named, flag: not named[flag]})

    return wrong


def property_times(factor: float) -> Callable[[Any], Any]:
    return lambda right: property(lambda self: factor * right.fget(self))


FORWARD = ("lemmaA.3", "corollaryA.4", "lemma4.1", "theorem4.4", "global-min", "optimal-steps")
CONVENTIONS = [
    Mutation(what, "models.conventions:GATMIRY", convention(**changes), ids(*names))
    for what, changes, names in (
        (
            "the residual with a plus",
            {"residual_sign": +1},
            (*FORWARD, "proposition3.1", "theoremA.1", "theorem4.5", "theoremA.13", "expanding"),
        ),
        (
            "the readout with a plus",
            {"readout_sign": +1},
            (*FORWARD, "proposition3.1", "theorem4.5", "theoremA.13", "asymmetric"),
        ),
        (
            "the query attends to itself",
            {"masked": False},
            ("proposition3.1", "theoremA.1", "lemma4.1", "corollaryA.4", "lemmaA.3"),
        ),
        (
            "no division by n",
            {"normalised": False},
            (*FORWARD, "proposition3.1", "theoremA.1", "theorem4.5", "theoremA.13", "convexity"),
        ),
    )
]
FORMULAS = [
    Mutation(what, f"{PAPER}.{target}", wrong, ids(*names))
    for what, target, wrong, names in (
        (
            "delta without its root",
            "settings:accuracy",
            lambda right: lambda loops, n, d: right(loops, n, d) ** (2 * loops),
            ("lemma4.2", "lemma4.3"),
        ),
        ("ten times delta", "settings:accuracy", times(10.0), ("theorem4.4", "lemmaA.9")),
        ("half of delta", "settings:accuracy", times(0.5), ("equation26",)),
        (
            "A^T for A in Q",
            "settings:paper_weights",
            lambda right: lambda a, u=None: right(a.mT, u),
            ("proposition3.1", "theoremA.1", "lemmaA.3"),
        ),
        (
            "half the squared residual",
            "section3:squared_residual",
            times(0.5),
            ("section3.2", "proposition3.1"),
        ),
        (
            "the opposite sign of u",
            "lemma4_1:stated_labels",
            lambda right: lambda a, u, prompt, w, sign: right(a, u, prompt, w, -sign),
            ("theoremA.1",),
        ),
        (
            "outer factors of the sample",
            "lemma4_1:layered_terms",
            lambda right: lambda a, u, outer=None: right(a, u),
            ("lemmaA.3", "lemma4.1", "corollaryA.4"),
        ),
        (
            "the trace formula by 1%",
            "lemma4_1:trace_loss",
            times(1.01),
            ("lemma4.1", "lemmaA.6"),
        ),
        (
            "the norm formula by 1%",
            "lemma4_1:norm_loss",
            times(1.01),
            ("lemma4.1", "corollaryA.4"),
        ),
        ("the shift by 1%", "lemma4_1:telescoped_shift", times(1.01), ("corollaryA.4",)),
        (
            "delta^2k for delta^k",
            "lemma4_2:power_of_delta",
            lambda right: lambda k, *setting: right(2 * k, *setting),
            ("lemma4.2", "lemma4.3"),
        ),
        ("8kd/sqrt n for 4kd/sqrt n", "lemma4_2:delta_of_k", times(2.0), ("lemmaA.5", "lemmaA.7")),
        ("40 delta for delta", "lemma4_2:delta_alone", times(40.0), ("lemmaA.5",)),
        (
            "one graph for the other",
            "equations16_19:cycles",
            lambda right: lambda p, *, meeting: right(p, meeting=False),
            ("equations16-19", "cycle-counts"),
        ),
        ("the sum (18) by 1%", "equations16_19:unrolled", times(1.01), ("equations16-19",)),
        ("a self-loop more", "equations16_19:self_loops", times(1.01), ("cycle-counts",)),
        (
            "(2m + 1)!! for (2m - 1)!!",
            "equations16_19:number_of_pairings",
            lambda right: lambda m: right(m + 1),
            ("cycle-counts",),
        ),
        ("gamma_j by 1%", "equation26:sandwiched_eigenvalues", times(1.01), ("equation26",)),
        (
            "the binomials the other way round",
            "equation26:expanded",
            opposite("swapped"),
            ("equation26",),
        ),
        (
            "E tr Y^2L by 1%",
            "theorem3_2:gaussian_loss",
            times(1.01),
            ("theorem3.2", "theoremA.8"),
        ),
        (
            "reflections for quarter turns",
            "minimum:quarter_turns",
            after(lambda k: k.abs()),
            ("asymmetric",),
        ),
        (
            "twice the printed time",
            "theorem3_3:printed_time",
            times(2.0),
            ("theorem3.3", "theoremA.12"),
        ),
        (
            "1% less than the corrected time",
            "theorem3_3:corrected_time",
            times(0.99),
            ("theorem3.3", "theoremA.12"),
        ),
        (
            "a flow that is 1% further",
            "theorem3_3:gap_after",
            times(1.01),
            ("theorem3.3", "theoremA.12"),
        ),
        (
            "the constant by 1%",
            "theorem3_4:Point.constant",
            property_times(1.01),
            ("theorem3.4", "theoremA.11", "lemmaA.10"),
        ),
        (
            "the power of the loss by 1%",
            "theorem3_4:Point.power",
            property_times(1.01),
            ("theorem3.4", "theoremA.11"),
        ),
        (
            "a symmetric matrix for the shear",
            "settings:sheared",
            after(lambda a: (a + a.mT) / 2),
            ("theorem4.4", "lemmaA.9", "theorem3.3"),
        ),
        (
            "a third of the order distance",
            "settings:order_distance",
            times(1 / 3),
            ("theorem4.4", "lemmaA.9", "theorem3.3"),
        ),
        (
            "the bound less 10%",
            "theorem4_5:printed_factor",
            times(0.9),
            ("theorem4.5", "theoremA.13"),
        ),
        (
            "the norms exchanged",
            "theorem4_5:Instance.norms",
            opposite("swapped"),
            ("theorem4.5", "theoremA.13"),
        ),
        ("L(b) by 1%", "convexity:rank_one_loss", times(1.01), ("convexity",)),
        (
            "a hundredth of the lower bound",
            "figure3:shifted_lower_bound",
            times(0.01),
            ("figure3",),
        ),
        (
            "a flow without the factor L",
            "training:ray_flow",
            lambda right: (
                lambda loops, n, d: tuple(
                    v / f for v, f in zip(right(loops, n, d), (loops, 1), strict=True)
                )
            ),
            ("figure4",),
        ),
        ("the curvature's sign", "training:skew_curvature", times(-1.0), ("figure4",)),
        (
            "a step 1% too long",
            "training:Trained.step",
            property_times(1.01),
            ("figure3",),
        ),
    )
]
MUTATIONS: list[Mutation] = [*CONVENTIONS, *FORMULAS]


def excused(reason: str, functions: str, *names: str) -> dict[tuple[str, str], str]:
    """Every one of these functions times 1.01, for every one of these claims."""
    return {
        (f"theory.{function} times 1.01", id): reason
        for function in functions.split()
        for id in ids(*names)
    }


WORDS = "linear.tied_risk linear.layered_risk linear.layered_risk_polynomial wishart.expected_trace"
EXCUSED: dict[tuple[str, str], str] = {
    **excused(
        "a multiple of the loss has the same minimum; the losses compared are of the forward pass",
        WORDS,
        *("global-min", "optimal-steps", "theorem3.2", "theoremA.8"),
    ),
    **excused(
        "used for the control only",
        "linear.tied_risk linear.layered_risk linear.layered_risk_polynomial",
        "convex-ray",
    ),
    **excused("the flow stands still with any multiple of the loss", WORDS, "theorem3.3"),
    **excused(
        "the inequality has room off the ray, and a larger loss is on its safe side",
        f"{WORDS} linear.lower_bound",
        *("theorem3.4", "theoremA.11", "lemmaA.10"),
    ),
    **excused(
        "where descent ends is held to an inequality with room, or needs only to be lower",
        "flow.descend",
        *("theorem3.2", "theoremA.8", "asymmetric"),
    ),
    **excused("a ratio of such moments", "linear.centred_moment", "theorem3.2-rate"),
    **excused(
        "the best step is where the slope changes its sign, and only that is used",
        "linear.long_prompt_slope",
        *("theorem3.2", "theoremA.8", "theorem3.2-rate", "theorem4.4", "lemmaA.9"),
        *("theorem4.5", "theoremA.13"),
    ),
    **excused(
        "the least loss is insensitive to the step, and 1 - a* is 1/n or less beside 1",
        "linear.optimal_gap",
        *("theorem3.3", "theoremA.12", "theorem3.4", "theoremA.11", "lemmaA.10"),
        *("theorem4.4", "lemmaA.9"),
    ),
    **excused(
        "the step is held to an inequality with room",
        "wishart.trace_moment",
        *("theorem4.4", "lemmaA.9"),
    ),
    **excused(
        "both ways to the best step rest on these moments",
        "wishart.trace_moment",
        *("theorem4.5", "theoremA.13"),
    ),
    **excused(
        "told in words only, and measured in gatmiry2024/expanding",
        "linear.expanding_probability wishart.largest_eigenvalue_exceeds",
        "figure3",
    ),
    **excused("used for the control only", "linear.loop_risks", "figure2"),
    **excused(
        "training and where it ends rest on the same spectrum, which optimal-steps checks",
        "linear.ray_spectrum wishart.mean_spectrum wishart.trace_moment",
        "figure1",
    ),
    **excused("a multiple of the loss has the same minimum", "linear.ray_risk", "figure1"),
    **excused(
        "on a sample of any scale the best symmetric A is on the ray, where the loss is exact",
        "wishart.sample_wishart",
        *("figure1", "figure2", "figure3", "figure4"),
    ),
    **excused(
        "means and losses rest on the same spectrum, which expanding checks; the bound has room",
        "wishart.mean_spectrum",
        "figure3",
    ),
    **excused(
        "only the step of the optimum is used, not its loss",
        "linear.ray_error linear.ray_risk",
        *("theorem4.5", "theoremA.13"),
    ),
}
"""Mutations that a claim rightly does not notice, and why: (what, id) to the reason."""
