"""What is learned: Lemmas 4 and 5, Eq. 26, and the comparison with the "best" prediction.

Risks are exact (`theory.softmax.DictionaryRisk`); sampled losses are compared with them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop import theory
from innerloop.analysis import Estimate
from innerloop.papers.common import ALGEBRA, SAMPLING, WHY_SAMPLING, generator
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Correction, Scale, Verdict
from innerloop.papers.yang2024.settings import Instance, Sizes, instance, normal
from innerloop.tasks import DictionaryRegression

FEW = Sizes(4, 5, 4, 9, 0.05, 6)
"""Fewer shown tokens than features, as the paper has it in mind, and more heads than shown."""


def expanded_risk(risk: theory.softmax.DictionaryRisk, matrix: Tensor) -> float:
    """(1/2K) sum_k (a_k^T G a_k - 2 a_k^T r_k + c_k), a route that knows no optimum."""
    quadratic = (matrix * (risk.gram @ matrix)).sum() - 2 * (matrix * risk.cross).sum()
    return ((quadratic + risk.power.sum()) / (2 * risk.tokens)).item()


@claim(
    "yang2024/lemma4",
    "Regression on noisy features is ridge regression, on average over the noise",
    source="Lemma 4, Eq. 24, 25 and 32",
    formula=r"\mathbb{E}_\epsilon \frac{1}{2N} \sum_{i=1}^N (y_i - \lambda^\top (f(v_i) + "
    r"\epsilon_i))^2 = \frac{1}{2N} \sum_{i=1}^N (y_i - \lambda^\top f(v_i))^2 + "
    r"\frac{\tau}{2} \|\lambda\|_2^2",
)
def two_regressions(scale: Scale) -> Verdict:
    n, m, tau, samples = 5, 3, 0.4, scale.pick(smoke=20_000, quick=200_000, paper=2_000_000)
    z, coefficients, tried = normal(n, m, seed=0), normal(m, seed=1), normal(m, seed=2)
    label_noise, fresh = (tau**0.5 * normal(samples, n, m, seed=seed) for seed in (3, 4))
    y = (z + label_noise) @ coefficients  # [samples, n]

    def z_score(noise: Tensor) -> float:
        left = (y - (z + noise) @ tried).square().mean(1) / 2
        right = (y - z @ tried).square().mean(1) / 2 + tau / 2 * tried.square().sum()
        return abs(Estimate.of(left - right).z(0.0))

    def slope(penalty: float) -> float:
        at = theory.softmax.ridge_coefficients(z, y[0], penalty).requires_grad_()
        right = (y[0] - z @ at).square().mean() / 2 + tau / 2 * at.square().sum()
        (gradient,) = torch.autograd.grad(right, at)
        return gradient.abs().max().item()

    return Verdict(
        [
            Check(
                f"|z| of the difference of both sides over {samples} samples",
                z_score(fresh),
                SAMPLING,
                z_score(label_noise),
                WHY_SAMPLING,
                "the noise that is already in the labels instead of a fresh copy",
            ),
            Check(
                "largest entry of the gradient at (Z Z^T + N tau I)^-1 Z y",
                slope(n * tau),
                1e-12,
                slope(m * tau),
                ALGEBRA,
                "the ridge solution with m tau in place of N tau",
            ),
        ],
        settings={
            "N": n,
            "m": m,
            "tau": tau,
            "reading": "the noise is a fresh copy, independent of the labels; (24) writes a tilde "
            "under the expectation and loses it inside",
        },
    )


def sampled_loss(made: Instance, matrix: Tensor, samples: int) -> Estimate:
    prompt = made.task.sample(samples, generator=generator(11))
    return Estimate.of((prompt.y @ matrix - prompt.y_query).square().mean(1) / 2)


@claim(
    "yang2024/lemma5",
    "The population loss is a quadratic form in the attention weights, above a constant L*",
    source="Lemma 5, Eq. 33 to 36",
    formula=r"L(\theta) = \frac{1}{2K} \sum_{k=1}^K \left\| (Z^\top Z + m\tau I)^{1/2} "
    r"\delta_k^\theta \right\|_2^2 + L^\star",
)
def quadratic_loss(scale: Scale) -> Verdict:
    samples = scale.pick(smoke=20_000, quick=200_000, paper=2_000_000)
    made, few = instance(FEW, 0), instance(Sizes(4, 5, 4, 9, 0.05, 3), 0)
    risk = made.risk
    with torch.no_grad():
        made.model.w.normal_(generator=generator(5))
    random = made.attention()
    start = risk.gap(torch.zeros_like(random)).item()
    for fitted in (made, few):
        fitted.fit_weights()
    at_infimum = sampled_loss(made, made.attention(), samples)
    misread = theory.softmax.DictionaryRisk.of(made.task.features, FEW.shown, FEW.tau**2)
    control = "the variance tau^2 of the noise, as the proof has it, in place of tau"
    quantity = f"|z| of the loss of the best heads on {samples} prompts against L*"
    return Verdict(
        printed=[
            Check(
                f"{quantity} as printed",
                abs(at_infimum.z(risk.printed_infimum)),
                SAMPLING,
                abs(at_infimum.z(misread.printed_infimum)),
                WHY_SAMPLING,
                control,
            )
        ],
        corrected=[
            Check(
                f"{quantity} with m tau for every token",
                abs(at_infimum.z(risk.infimum)),
                SAMPLING,
                abs(at_infimum.z(misread.infimum)),
                WHY_SAMPLING,
                control,
            ),
            Check(
                f"|z| of the loss of random heads on {samples} prompts against (36)",
                abs(sampled_loss(made, random, samples).z(risk(random).item())),
                SAMPLING,
                abs(sampled_loss(made, 1.1 * random, samples).z(risk(random).item())),
                WHY_SAMPLING,
                "heads with 1.1 times the weights",
            ),
            Check(
                "smallest gap of random heads with fitted w, relative to that of w = 0",
                risk.gap(made.attention()).item() / start,
                1e-16,
                few.risk.gap(few.attention()).item() / start,
                "L* is attained for H >= N, up to the square of float64 rounding",
                "H = 3 heads for N = 4 shown tokens",
            ),
        ],
        correction=Correction(
            r"L^\star = \frac{1}{2K} \left[ \sum_{k \le N} (\|z_k\|^2 + m\tau - "
            r"r_k^\top G^{-1} r_k) + \sum_{k > N} (\|z_k\|^2 - r_k^\top G^{-1} r_k) \right]",
            r"L^\star = \frac{1}{2K} \sum_{k=1}^K (\|z_k\|^2 + m\tau - r_k^\top G^{-1} r_k),\quad "
            r"G = Z^\top Z + m\tau I,\; r_k = Z^\top z_k + m\tau e_k 1\{k \le N\}",
            "The labels of the tokens that are not shown carry noise as well, E y_k^2 = |z_k|^2 + "
            "m tau, so the printed L* is (K - N) m tau / 2K below the infimum and the gap to it "
            f"never closes: here it is {risk.printed_infimum:.5f}, and the infimum, which fitted "
            f"heads attain, {risk.infimum:.5f} (on prompts {at_infimum}). Also, (33) lacks a "
            "Z^T before z_k, without which the dimensions do not match, and the proof calls the "
            "noise N(0, tau^2 I).",
        ),
        settings={"sizes": str(FEW), "seed": 0, "prompts": samples},
    )


@claim(
    "yang2024/eq26",
    "Without noise and with N >= m examples, the shown labels determine those of all tokens",
    source="Section 3.3, Eq. 26",
    formula=r"\tau = 0,\; N \ge m:\quad y_k = \langle y, Z^\dagger \hat{Z}_{:,k} \rangle",
)
def noiseless(scale: Scale) -> Verdict:
    def error(shown: int) -> float:
        features = normal(12, 4, seed=0)
        prompt = DictionaryRegression(normal(12, 3, seed=1), features, shown, 0.0).sample(
            50, generator=generator(2)
        )
        matrix = torch.linalg.pinv(features[:shown].mT) @ features.mT
        return ((prompt.y @ matrix - prompt.y_query).norm() / prompt.y_query.norm()).item()

    limit = theory.softmax.DictionaryRisk.of(normal(12, 4, seed=0), 7, 0.0).optimum[:, :7]
    projection = torch.linalg.pinv(normal(12, 4, seed=0)[:7].mT) @ normal(12, 4, seed=0)[:7].mT
    return Verdict(
        [
            Check(
                "relative error of the labels, N = 4 and 7 for m = 4",
                max(error(4), error(7)),
                1e-12,
                error(3),
                ALGEBRA,
                "N = 3, too few examples to determine the function",
            )
        ],
        settings={
            "m": 4,
            "K": 12,
            "not quite": "A becomes Z^+ Zhat only on the queries: its columns for the shown tokens "
            "stay the identity for every tau > 0, while Z^+ Z is a projection of rank m (distance "
            f"{(limit - projection).norm().item():.3f} for N = 7); both give the same labels",
        },
    )


@claim(
    "yang2024/ybest",
    "The best prediction one can hope for is ridge regression with the penalty N tau",
    source="Section 3.2, Eq. 23 to 25, and the first bullet after them",
    formula=r"\hat{y}^{\mathrm{best}} = \begin{bmatrix} y \\ (Z^Q)^\top \hat\lambda_\tau "
    r"\end{bmatrix},\quad \hat\lambda_\tau = (Z Z^\top + N\tau I)^{-1} Z y",
)
def best_prediction(scale: Scale) -> Verdict:
    m, count, tau = 6, 20, 0.3
    features = normal(count, m, seed=0)
    excess, tenfold, rivals, around_printed, identity, other = [], [], [], [], [], []
    lengths = (2, 3, 4, 8, 10, 12)
    for shown in lengths:
        risk = theory.softmax.DictionaryRisk.of(features, shown, tau)

        def ridge(penalty: float, shown: int = shown) -> Tensor:
            return theory.softmax.ridge_matrix(features, shown, penalty)

        learned, best = ridge(m * tau), ridge(shown * tau)
        loss, printed = (expanded_risk(risk, matrix) for matrix in (learned, best))
        excess.append(printed / loss - 1)
        tenfold.append(expanded_risk(risk, ridge(10 * shown * tau)) / loss - 1)
        grid = [expanded_risk(risk, ridge(f * m * tau)) for f in torch.logspace(-2, 2, 81).tolist()]
        rivals.append(min(grid) / loss - 1)
        around_printed.append(min(grid) / printed - 1)
        distance = risk.distance(learned, best).item()
        identity.append(abs(distance / (2 * (printed - loss)) - 1))
        doubled = ridge(2 * shown * tau)
        gap = 2 * (expanded_risk(risk, doubled) - printed)
        other.append(abs(risk.distance(doubled, best).item() / gap - 1))
    return Verdict(
        printed=[
            Check(
                "largest relative excess of the risk of y^best over that of the learned predictor",
                max(excess),
                1e-12,
                max(tenfold),
                "the best prediction has none; 1e-12 is rounding",
                "ridge regression with ten times the penalty",
            )
        ],
        corrected=[
            Check(
                "lowest relative change of the risk over 81 penalties around m tau",
                min(rivals),
                -1e-12,
                min(around_printed),
                "a minimum allows none below zero; 1e-12 is rounding",
                "the same around N tau",
                at_least=True,
            ),
            Check(
                "largest relative error of E (1/K) |y* - y^best|^2 = 2 (L(y^best) - L*)",
                max(identity),
                1e-9,
                min(other),
                "float64: a difference of risks, whose cancellation costs a few digits",
                "the same identity around y^best instead of y*",
            ),
        ],
        correction=Correction(
            r"\hat{y}^{\mathrm{best}}:\; \text{penalty } N\tau",
            r"\hat{y}^{\mathrm{best}} = \hat{y}^\star:\; \text{penalty } m\tau,\quad "
            r"\mathbb{E} \frac{1}{K} \|\hat{y}^\star - \hat{y}_{N\tau}\|^2 = "
            r"2 (L(\hat{y}_{N\tau}) - L^\star) \ge 0",
            "The learned predictor minimises the population loss over all predictors linear in the "
            "labels, so none of them is better on average over the training distribution. The "
            "label noise lambda^T eps has the variance tau E|lambda|^2 = m tau, which is the "
            "penalty that (20) has; N tau in (25) comes from adding noise once more to features "
            "of known labels. The distance to y^best therefore measures how much worse y^best is "
            f"(by {max(excess):.1%} of the risk at N = {lengths[excess.index(max(excess))]}, m = "
            f"{m}), and "
            "is zero at N = m because the two penalties are then equal.",
        ),
        settings={"m": m, "K": count, "tau": tau, "N": ", ".join(map(str, lengths))},
    )


@claim(
    "yang2024/underfit",
    "With N < m the transformer chooses a smaller lambda than the ridge regression of (25), with "
    "N > m a larger one",
    source="Section 3.2, second and third bullets",
    formula=r"N < m:\; \|\hat\lambda\|_2 \le \|\hat\lambda_\tau\|_2,\qquad N > m:\; "
    r"\|\hat\lambda\|_2 \ge \|\hat\lambda_\tau\|_2",
)
def shrinkage(scale: Scale) -> Verdict:
    m, tau, prompts = 6, 0.3, scale.pick(smoke=500, quick=10_000, paper=10_000)

    def ratios(shown: int) -> Tensor:
        """|lambda_hat| / |lambda_hat_tau| of every prompt."""
        task = DictionaryRegression(normal(16, 3, seed=1), normal(16, m, seed=0), shown, tau)
        labels = task.sample(prompts, generator=generator(2)).y
        learned, stated = (
            theory.softmax.ridge_coefficients(task.features[:shown], labels, penalty)
            for penalty in (m * tau, shown * tau)
        )
        return learned.norm(dim=1) / stated.norm(dim=1)

    few, many = ratios(3), ratios(12)
    return Verdict(
        [
            Check(
                "N = 3, m = 6: largest |lambda| / |lambda_tau| over the prompts",
                few.max().item(),
                1.0,
                many.max().item(),
                "smaller means a ratio of at most 1",
                "the same for N = 12",
            ),
            Check(
                "N = 12, m = 6: smallest |lambda| / |lambda_tau| over the prompts",
                many.min().item(),
                1.0,
                few.min().item(),
                "larger means a ratio of at least 1",
                "the same for N = 3",
                at_least=True,
            ),
        ],
        settings={
            "tau": tau,
            "prompts": prompts,
            "reading": "a comparison of two penalties. That the smaller norm is underfitting and "
            "the larger overfitting does not follow: on average the learned predictor has the "
            "smaller error in both cases, see ybest",
        },
    )
