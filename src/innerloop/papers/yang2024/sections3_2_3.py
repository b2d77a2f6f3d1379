"""Section 3.2, the learned prediction and the one called best; section 3.3, why several heads."""

from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from innerloop import theory
from innerloop.models import DictionaryAttention
from innerloop.papers.common import generator, identity, normal
from innerloop.papers.quantity import ROUNDING, at_least, at_most, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.papers.yang2024 import settings
from innerloop.papers.yang2024.lemmas1_to_6 import loss_75
from innerloop.papers.yang2024.settings import SMALL, Instance, Sizes, instance, ratio_error
from innerloop.tasks import DictionaryRegression
from innerloop.training import train

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
    """Repeats the shown labels and answers the others by ridge regression on the features."""
    return theory.softmax.ridge_matrix(made.task.features, made.n, penalty)


def relative_loss(made: Instance, penalty: float, to: float) -> float:
    """How much higher the loss is with this penalty than with the other, both in tau."""
    return loss_75(made, ridge(made, penalty * TAU)) / loss_75(made, ridge(made, to * TAU)) - 1


@claim(
    "yang2024/ybest",
    "The best prediction one can hope for is ridge regression with the penalty N tau",
    source="Section 3.2, Eq. 23 to 25, and the first bullet after them",
    formula=r"\hat{y}^{\mathrm{best}} = \begin{bmatrix} y \\ (Z^Q)^\top \hat\lambda_\tau "
    r"\end{bmatrix},\quad \hat\lambda_\tau = (Z Z^\top + N\tau I)^{-1} Z y",
)
def best_prediction(scale: Scale) -> Verdict:
    made = {shown: dictionary(shown) for shown in LENGTHS}
    excess = {n: relative_loss(each, n, M) for n, each in made.items()}
    worst = max(excess, key=lambda n: excess[n])

    def least_rival(centre: int | None) -> float:
        """The lowest relative change of the loss over 41 penalties around m tau, or N tau."""
        return min(
            relative_loss(each, factor * at, at)
            for n, each in made.items()
            for at in [centre or n]
            for factor in torch.logspace(-1, 1, 41).tolist()
        )

    def identity_error(sign: int) -> float:
        """Of E (1/K) |y* - y^best|^2 = 2 (L(y^best) - L(y*)), or of its negative."""
        both = [(each, ridge(each, M * TAU), ridge(each, each.n * TAU)) for each in made.values()]
        gains = [2 * sign * (loss_75(it, best) - loss_75(it, mine)) for it, mine, best in both]
        distances = [it.risk.distance(mine, best).item() for it, mine, best in both]
        return max(map(ratio_error, zip(gains, distances, strict=True)))

    over = "largest relative excess of the loss over that of the learned predictor"
    doubled = {"penalty 2 N tau": max(relative_loss(each, 2 * n, M) for n, each in made.items())}
    change = "lowest relative change of the loss over 41 penalties"
    of_m, of_n = {"around m tau": M}, {"around N tau": None}
    error = "largest relative error of E (1/K) |y* - y^best|^2"
    gain, loss = {"2 (L(y^best) - L*)": 1}, {"2 (L* - L(y^best))": -1}
    return Verdict(
        printed=checks(over, NO_EXCESS, {"y^best": excess[worst]}, unlike=doubled),
        corrected=[
            *checks(change, NO_RIVAL, of_m, unlike=of_n, measure=least_rival),
            *checks(error, DIFFERENCE, gain, unlike=loss, measure=identity_error),
        ],
        correction=Correction(
            r"\hat{y}^{\mathrm{best}}:\; \text{penalty } N\tau",
            r"\hat{y}^{\mathrm{best}} = \hat{y}^\star:\; \text{penalty } m\tau,\quad "
            r"\mathbb{E} \frac{1}{K} \|\hat{y}^\star - \hat{y}_{N\tau}\|^2 = "
            r"2 (L(\hat{y}_{N\tau}) - L^\star) \ge 0",
            "Of all predictors linear in the labels the learned one has the least loss: its "
            "penalty is the variance of the label noise, tau E|lambda|^2 = m tau. N tau in (25) "
            "comes from adding noise once more to features of known labels.",
            kind=Kind.STATEMENT,
            counterexample=f"m = {M}, tau = {TAU}, N = {worst}: the loss of y^best is "
            f"{excess[worst]:.2%} above that of the learned predictor.",
        ),
        settings={"task": made[worst].task, "N": ", ".join(map(str, LENGTHS))},
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
        labels, shown = made.task.sample(prompts, generator=generator(2)).y, made.z.mT
        learned, stated = (
            theory.softmax.ridge_coefficients(shown, labels, count * TAU).norm(dim=1)
            for count in (M, made.n)
        )
        return learned / stated

    short, long = {"N = 5": norms(fewer)}, {"N = 7": norms(more)}
    norm_checks = [
        *checks("largest |lambda| / |lambda_tau|", SHORTER, short, unlike=long, measure=torch.max),
        *checks("smallest |lambda| / |lambda_tau|", LONGER, long, unlike=short, measure=torch.min),
    ]
    change, times = "relative change of the loss", "times the penalty"
    # A hundredth of the way that under- or overfitting would ask for, and the other way.
    asked = {
        f"N = 5, 0.99 {times}": relative_loss(fewer, 0.99 * M, M),
        f"N = 7, 1.01 {times}": relative_loss(more, 1.01 * M, M),
    }
    wrong_way = {f"N = 5, 1.01 {times}": relative_loss(fewer, 1.01 * M, M)}
    every = {**asked, **wrong_way, f"N = 7, 0.99 {times}": relative_loss(more, 0.99 * M, M)}
    rival = {f"N = 5, 1.01 {times} N tau": relative_loss(fewer, 1.01 * (M - 1), M - 1)}
    less, greater = asked.values()
    return Verdict(
        printed=[*norm_checks, *checks(change, GAINS, asked, unlike=wrong_way)],
        corrected=[*norm_checks, *checks(change, NO_RIVAL, every, unlike=rival)],
        correction=Correction(
            r"N < m:\; \text{underfits},\qquad N > m:\; \text{overfits}",
            r"\text{neither, for any } N",
            "The norms compare as stated. But underfitting would gain from less penalty, and "
            "overfitting from more, and the learned predictor loses by either. It is (25) that has "
            "too little penalty for N < m and too much for N > m; see ybest.",
            kind=Kind.STATEMENT,
            counterexample=f"m = {M}, tau = {TAU}: with N = {M - 1} a hundredth less penalty "
            f"raises the loss by {less:.1e} of it, with N = {M + 1} a hundredth more by "
            f"{greater:.1e}.",
        ),
        settings={"task": fewer.task, "N": f"{M - 1} and {M + 1}", "prompts": prompts},
        remarks=["For one fixed lambda the best penalty depends on its norm, not on N and m."],
    )


FLOOR = at_least(1 - 1e-9, "the floor is a lower bound; 1e-9 is rounding of least squares")
POSITIVE = at_least(1e-9, "a floor at 0 would be rounding, 1e-16 squared; this is far above")
LEAST_SQUARES = at_most(1e-9, "rounding of least squares")


@claim(
    "yang2024/eq26",
    "Without noise and with N >= m examples, the shown labels determine those of all tokens",
    source="Section 3.3, Eq. 26",
    formula=r"\tau = 0,\; N \ge m:\quad y_k = \langle y, Z^\dagger \hat{Z}_{:,k} \rangle",
)
def noiseless(scale: Scale) -> Verdict:
    tokens, features = normal(1, 12, 3), normal(0, 12, 4)

    def printed(shown: int) -> Tensor:
        return torch.linalg.pinv(features[:shown].mT) @ features.mT

    def error(matrix: Tensor) -> float:
        task = DictionaryRegression(tokens, features, len(matrix), 0.0)
        prompt = task.sample(50, generator=generator(2))
        return settings.relative_distance(prompt.y_query, prompt.y @ matrix)

    library = theory.softmax.DictionaryRisk.of(features, 7, 0.0).optimum
    away = (printed(7)[:, :7] - identity(7)).norm().item()
    right = {"N = 4": printed(4), "N = 7": printed(7), "N = 7, the library's optimum": library}
    name, wrong = "relative error of the labels, m = 4", {"N = 3": printed(3)}
    return Verdict(
        checks(name, ROUNDING, right, unlike=wrong, measure=error),
        settings={"m": 4, "K": 12},
        remarks=[
            "As tau -> 0, A becomes Z^+ Zhat, as section 3.3 says, only on the queries: its "
            "columns for the shown tokens stay the identity, and Z^+ Z is a projection of rank m "
            f"(distance {away:.3f} for N = 7); both give the same labels."
        ],
    )


def nearest_of_one_sign(made: Instance) -> Tensor:
    """For every token the a >= 0 or a <= 0 with the least |Zbar (a - A_k)|: [shown, tokens].

    Every set of entries that are not 0 is tried, which is exact and knows no solver.
    """
    zbar, a, best = made.zbar, made.a, torch.zeros_like(made.a)
    least = (zbar @ a).square().sum(0)
    for used in list(product((False, True), repeat=made.n))[1:]:
        columns, tried = torch.tensor(used), torch.zeros_like(best)
        tried[columns] = torch.linalg.lstsq(zbar[:, columns], zbar @ a).solution
        distance = (zbar @ (tried - a)).square().sum(0)
        better = ((tried >= 0).all(0) | (tried <= 0).all(0)) & (distance < least)
        best[:, better], least = tried[:, better], torch.where(better, distance, least)
    return best


def best_softmaxes() -> Instance:
    """One head at its floor: d = K orthonormal tokens allow every softmax."""
    v = torch.linalg.qr(normal(3, SMALL.tokens, SMALL.tokens)).Q
    free = settings.without_weights(
        replace(instance(SMALL, 0).task, tokens=v), torch.zeros_like(v)[None]
    )
    wanted, logits = nearest_of_one_sign(free), torch.zeros_like(v)
    logits[: free.n] = (wanted.abs() + 1e-9).log()
    return free.with_weights(wanted.sum(0, keepdim=True), (v.mT @ logits @ v)[None])


def trained_one_layer(task: DictionaryRegression, heads: int, seed: int, steps: int) -> float:
    """The gap that training from this start leaves."""
    tokens, d = task.tokens.shape
    made = Instance(task, DictionaryAttention.gaussian(heads, d, tokens, generator=generator(seed)))
    optimizer = torch.optim.Adam(made.model.parameters(), 2e-2)
    train(made.model, made.objective, optimizer, steps=steps, generator=generator(0), every=steps)
    return made.gap


@claim(
    "yang2024/one-head",
    "One head cannot reach the infimum: its attention weights for a token all have one sign",
    source="Section 3.3, the necessity of multi-head attention",
    formula=r"H = 1:\quad \inf_\theta L - L^\star \ge \frac{1}{2K} \sum_{k=1}^K "
    r"\min_{a \ge 0 \text{ or } a \le 0} \|\bar{Z} (a - A_{:,k})\|_2^2 > 0",
)
def one_head(scale: Scale) -> Verdict:
    steps, starts = scale.pick(smoke=(300, 2), quick=(1000, 3), paper=(10_000, 10))
    best, made = best_softmaxes(), instance(SMALL.with_heads(1), 0)
    all_shown = instance(replace(SMALL, tokens=SMALL.shown, heads=1), 0)
    floor = theory.softmax.one_head_floor(made.risk)
    attained = best.gap / theory.softmax.one_head_floor(best.risk)

    def error(matrix: Tensor) -> float:
        by_hand = (made.zbar @ (matrix - made.a)).square().sum().item() / (2 * made.k)
        return ratio_error((floor, by_hand))

    single, several = (
        [trained_one_layer(made.task, heads, seed, steps) for seed in range(starts)]
        for heads in (1, 4)
    )
    exact = "relative distance of the library's floor from that of"
    one_sign = {"weights of one sign, all sets of entries": nearest_of_one_sign(made)}
    cut_off = {"A with its negative entries cut off": made.a.clamp_min(0)}
    some = {"N = 5, K = 20": floor / made.gap}
    no_floor = theory.softmax.one_head_floor(all_shown.risk) / all_shown.gap
    none = {"N = K, where A = I has one sign": no_floor}
    gaps = {"trained": min(single) / floor, "the best softmaxes, orthonormal tokens": attained}
    wrong = {"four heads": min(several) / floor, "1.01 times the floor": attained / 1.01}
    return Verdict(
        [
            *checks("floor relative to the gap at w = 0", POSITIVE, some, unlike=none),
            *checks(exact, LEAST_SQUARES, one_sign, unlike=cut_off, measure=error),
            *checks("lowest gap relative to the floor", FLOOR, gaps, unlike=wrong),
        ],
        settings={
            "task": made.task,
            "training": f"Adam, learning rate 0.02, {steps} steps, exact loss, {starts} starts",
        },
        remarks=[
            f"The floor is {floor:.4f}, the gap at w = 0 {made.gap:.3f}, after training "
            f"{min(single):.3f}. All tokens share one Q: only orthonormal ones reach the floor."
        ],
    )
