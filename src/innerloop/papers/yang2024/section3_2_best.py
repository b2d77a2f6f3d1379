"""The learned prediction and the one called best: section 3.2, Eq. 23 to 25 and the bullets."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import generator
from innerloop.papers.quantity import Quantity, at_least, at_most, measured
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.papers.yang2024.lemmas5_6 import loss_75
from innerloop.papers.yang2024.settings import Instance, Sizes, against, checked, instance

M, TAU = 6, 0.3
LENGTHS = (2, 4, 5, 7, 9, 12)
"""Shown labels N, around m = 6."""
NO_EXCESS = at_most(1e-12, "the best prediction has no excess; 1e-12 is rounding")
GAINS = at_most(-1e-12, "a penalty that is wrong in this direction can be bettered; 1e-12 rounding")
NO_RIVAL = at_least(-1e-12, "a minimum allows nothing below it; 1e-12 is rounding")
SHORTER = at_most(1.0, "shorter, for every prompt, means a ratio of at most 1")
LONGER = at_least(1.0, "longer, for every prompt, means a ratio of at least 1")
DIFFERENCE = at_most(1e-8, "float64: a difference of risks, whose cancellation costs a few digits")


def dictionary(shown: int) -> Instance:
    return instance(Sizes(4, M, shown, 20, TAU, 1), 0)


def ridge(made: Instance, penalty: float) -> Tensor:
    return theory.softmax.ridge_matrix(made.task.features, made.task.shown, penalty)


def relative_loss(made: Instance, penalty: float, to: float) -> float:
    """How much higher the loss is with this penalty than with the other, relative to it."""
    return loss_75(made, ridge(made, penalty)) / loss_75(made, ridge(made, to)) - 1


PENALTY = Correction(
    r"\hat{y}^{\mathrm{best}}:\; \text{penalty } N\tau",
    r"\hat{y}^{\mathrm{best}} = \hat{y}^\star:\; \text{penalty } m\tau,\quad "
    r"\mathbb{E} \frac{1}{K} \|\hat{y}^\star - \hat{y}_{N\tau}\|^2 = "
    r"2 (L(\hat{y}_{N\tau}) - L^\star) \ge 0",
    "The learned predictor minimises the population loss over all predictors linear in the "
    "labels, so none of them is better on average over the training distribution. The "
    "label noise lambda^T eps has the variance tau E|lambda|^2 = m tau, which is the "
    "penalty that (20) has; N tau in (25) comes from adding noise once more to features "
    "of known labels. The distance to y^best therefore measures how much worse y^best is, "
    "and is zero at N = m because the two penalties are then equal.",
    kind=Kind.STATEMENT,
)


@claim(
    "yang2024/ybest",
    "The best prediction one can hope for is ridge regression with the penalty N tau",
    source="Section 3.2, Eq. 23 to 25, and the first bullet after them",
    formula=r"\hat{y}^{\mathrm{best}} = \begin{bmatrix} y \\ (Z^Q)^\top \hat\lambda_\tau "
    r"\end{bmatrix},\quad \hat\lambda_\tau = (Z Z^\top + N\tau I)^{-1} Z y",
)
def best_prediction(scale: Scale) -> Verdict:
    made = {shown: dictionary(shown) for shown in LENGTHS}
    excess = {n: relative_loss(each, n * TAU, M * TAU) for n, each in made.items()}
    worst = max(excess, key=lambda n: excess[n])
    printed = measured(
        "largest relative excess of the loss over that of the learned predictor",
        NO_EXCESS,
        {
            "y^best": excess[worst],
            "penalty 2 N tau": max(relative_loss(made[n], 2 * n * TAU, M * TAU) for n in made),
        },
    )

    def least_rival(centre: float | None) -> float:
        """The lowest relative change of the loss over 41 penalties around m tau, or N tau."""
        return min(
            relative_loss(each, factor * at * TAU, at * TAU)
            for n, each in made.items()
            for at in [n if centre is None else centre]
            for factor in torch.logspace(-1, 1, 41).tolist()
        )

    rivals = Quantity(
        "lowest relative change of the loss over 41 penalties", least_rival, NO_RIVAL
    ).of({"around m tau": M, "around N tau": None})

    def identity_error(sign: int) -> float:
        """Of E (1/K) |y* - y^best|^2 = 2 (L(y^best) - L(y*)), or of its negative."""
        errors = []
        for n, each in made.items():
            learned, best = ridge(each, M * TAU), ridge(each, n * TAU)
            gain = 2 * sign * (loss_75(each, best) - loss_75(each, learned))
            errors.append(abs(gain / each.risk.distance(learned, best).item() - 1))
        return max(errors)

    identity = Quantity(
        "largest relative error of E (1/K) |y* - y^best|^2", identity_error, DIFFERENCE
    ).of({"2 (L(y^best) - L*)": 1, "2 (L* - L(y^best))": -1})
    return Verdict(
        printed=against(printed, "penalty 2 N tau"),
        corrected=[
            *against(rivals, "around N tau"),
            *against(identity, "2 (L* - L(y^best))"),
        ],
        correction=replace(
            PENALTY,
            counterexample=f"m = {M}, tau = {TAU}, N = {worst}: the loss of y^best is "
            f"{excess[worst]:.2%} above that of the learned predictor.",
        ),
        settings={"task": made[worst].task, "N": ", ".join(map(str, LENGTHS))},
    )


NEITHER = Correction(
    r"N < m:\; \text{underfits},\qquad N > m:\; \text{overfits}",
    r"\text{neither, for any } N",
    "The norms compare as stated, since more penalty shortens lambda. But underfitting "
    "would gain from less penalty, and overfitting from more; on average over the "
    "training distribution the learned predictor loses by either, for every N, because its "
    "penalty m tau is the variance of the label noise. It is (25) that has too little "
    "penalty for N < m and too much for N > m; see ybest.",
    kind=Kind.STATEMENT,
)


@claim(
    "yang2024/underfit",
    "With N < m the transformer underfits, choosing a lambda of small norm, and with N > m it "
    "overfits",
    source="Section 3.2, second and third bullets",
    formula=r"N < m:\; \|\hat\lambda\|_2 \le \|\hat\lambda_\tau\|_2,\qquad N > m:\; "
    r"\|\hat\lambda\|_2 \ge \|\hat\lambda_\tau\|_2",
)
def under_and_overfitting(scale: Scale) -> Verdict:
    prompts = scale.pick(smoke=500, quick=10_000, paper=10_000)
    fewer, more = dictionary(M - 1), dictionary(M + 1)

    def norms(made: Instance) -> Tensor:
        """|lambda-hat| / |lambda-hat_tau| of every prompt."""
        labels = made.task.sample(prompts, generator=generator(2)).y
        shown = made.task.features[: made.task.shown]
        learned, stated = (
            theory.softmax.ridge_coefficients(shown, labels, count * TAU).norm(dim=1)
            for count in (M, made.task.shown)
        )
        return learned / stated

    shorter = {"N = 5": norms(fewer).max(), "N = 7": norms(more).max()}
    longer = {"N = 7": norms(more).min(), "N = 5": norms(fewer).min()}
    norm_checks = [
        *checked("largest |lambda| / |lambda_tau|", SHORTER, shorter, unlike="N = 7"),
        *checked("smallest |lambda| / |lambda_tau|", LONGER, longer, unlike="N = 5"),
    ]
    # A hundredth of the way that under- or overfitting would ask for, and the other way.
    asked, other = (
        {
            f"N = {made.task.shown}, {factor:g} times the penalty": relative_loss(
                made, factor * M * TAU, M * TAU
            )
            for made, factor in pairs
        }
        for pairs in (((fewer, 0.99), (more, 1.01)), ((fewer, 1.01), (more, 0.99)))
    )
    change, less, more_ = "relative change of the loss", *asked.values()
    wrong_way, from_n_tau = next(iter(other)), "N = 5, 1.01 times the penalty N tau"
    gains = {**asked, wrong_way: other[wrong_way]}
    rival = {from_n_tau: relative_loss(fewer, 1.01 * (M - 1) * TAU, (M - 1) * TAU)}
    minimum = {**asked, **other, **rival}
    return Verdict(
        printed=[*norm_checks, *checked(change, GAINS, gains, unlike=wrong_way)],
        corrected=[*norm_checks, *checked(change, NO_RIVAL, minimum, unlike=from_n_tau)],
        correction=replace(
            NEITHER,
            counterexample=f"m = {M}, tau = {TAU}: with N = {M - 1} a hundredth less penalty "
            f"raises the loss by {less:.1e} of it, with N = {M + 1} a hundredth more by "
            f"{more_:.1e}.",
        ),
        settings={"task": fewer.task, "N": f"{M - 1} and {M + 1}", "prompts": prompts},
        remarks=[
            "For one fixed lambda the best penalty depends on its norm, not on N and m: functions "
            "with |lambda|^2 above m would want less than m tau, and those below more."
        ],
    )
