"""How long prompts must be: the error for linear labels below Theorem 4.2, and Corollary 4.3.

Errors are exact, and so is every comparison of a bound with the error it bounds.
"""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import ALGEBRA, DTYPE, generator, rotated
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Scale, Verdict
from innerloop.papers.zhang2023.prediction import LAMBDA, SPECTRUM, brackets
from innerloop.papers.zhang2023.settings import gamma

LENGTHS = (1, 3, 10, 30, 100, 1000, 10**5)
SPECTRA = {
    "1.5/0.8/0.4": (1.5, 0.8, 0.4),
    "I_5": (1.0,) * 5,
    "0.01 I_5": (0.01,) * 5,
    "10/1/0.1/0.01": (10.0, 1.0, 0.1, 0.01),
}


def norm(w: Tensor, matrix: Tensor) -> float:
    """|w|_A^2 = w^T A w."""
    return (w @ matrix @ w).item()


def displayed_error(w: Tensor, lam: Tensor, train: float, test: float) -> float:
    """The display below Theorem 4.2, second line."""
    inverse = torch.linalg.inv(gamma(lam, train))
    squared, trace = inverse @ inverse, lam.trace().item()
    variance = norm(w, squared @ lam @ lam @ lam)
    variance += (squared @ lam @ lam).trace().item() * norm(w, lam)
    bias = norm(w, squared @ lam @ lam @ lam) + 2 * norm(w, squared @ lam @ lam) * trace
    bias += norm(w, squared @ lam) * trace**2
    return variance / test + bias / train**2


def displayed_bound(
    w: Tensor, lam: Tensor, train: float, test: float, *, last: bool = True
) -> float:
    """Its third line; `last` keeps the term with the inverse of Lambda."""
    d, trace = len(lam), lam.trace().item()
    bias = norm(w, lam) + 2 * (w @ w).item() * trace
    bias += norm(w, torch.linalg.inv(lam)) * trace**2 if last else 0.0
    return (d + 1) / test * norm(w, lam) + bias / train**2


def averaged_bounds(spectrum: tuple[float, ...], train: float, test: float) -> tuple[float, float]:
    """The two bounds after averaging over w ~ N(0, I)."""
    d, trace = len(spectrum), sum(spectrum)
    inverse, kappa = sum(1 / v for v in spectrum), max(spectrum) / min(spectrum)
    variance = (d + 1) * trace / test
    first = variance + (trace + 2 * d * trace + inverse * trace**2) / train**2
    return first, variance + (1 + 2 * d + d**2 * kappa) * trace / train**2


@claim(
    "zhang2023/theorem4.2-linear",
    "For noiseless linear labels the error is the displayed one, and at most O(1/M + 1/N^2)",
    source="the two displays between Theorem 4.2 and Corollary 4.3",
    formula=r"\begin{aligned} & \frac{1}{M}\left\{\|w\|_{\Gamma^{-2}\Lambda^3}^2 + \mathrm{tr}"
    r"(\Gamma^{-2}\Lambda^2)\|w\|_\Lambda^2\right\} + \frac{1}{N^2}\left\{\|w\|_{\Gamma^{-2}"
    r"\Lambda^3}^2 + 2\|w\|_{\Gamma^{-2}\Lambda^2}^2 \mathrm{tr}(\Lambda) + \|w\|_{\Gamma^{-2}"
    r"\Lambda}^2 \mathrm{tr}(\Lambda)^2\right\} \\ & \le \frac{d+1}{M}\|w\|_\Lambda^2 + "
    r"\frac{1}{N^2}\left[\|w\|_\Lambda^2 + 2\|w\|_2^2\,\mathrm{tr}(\Lambda) + "
    r"\|w\|_{\Lambda^{-1}}^2\mathrm{tr}(\Lambda)^2\right], \\ & \mathbb{E}_w: \; \le "
    r"\frac{(d+1)\,\mathrm{tr}(\Lambda)}{M} + \frac{(1 + 2d + d^2\kappa)\,\mathrm{tr}(\Lambda)}"
    r"{N^2} \end{aligned}",
)
def error_for_linear_labels(scale: Scale) -> Verdict:
    draws = scale.pick(smoke=5, quick=50, paper=200)
    weights = torch.randn(draws, 3, generator=generator(0), dtype=DTYPE)
    pairs = [(n, m) for n, m in product(LENGTHS, (*LENGTHS, math.inf))]

    def difference(w: Tensor, n: int, m: int | float, *, shift: float = 0.0) -> float:
        moments = theory.linear.JointMoments.of_function(lambda x: x @ w, LAMBDA, degree=1)
        exact = sum(brackets(moments, LAMBDA, n, m).values())
        return abs(displayed_error(w + shift, LAMBDA, n, m) / exact - 1)

    def largest_ratio(*, last: bool) -> float:
        return max(
            displayed_error(w, LAMBDA, n, m) / displayed_bound(w, LAMBDA, n, m, last=last)
            for w in weights
            for n, m in pairs
        )

    averages = {
        name: [
            (theory.linear.SampleComplexity(spectrum).error(n, m), *averaged_bounds(spectrum, n, m))
            for n, m in pairs
        ]
        for name, spectrum in SPECTRA.items()
    }
    every = [row for rows in averages.values() for row in rows]
    ill = SPECTRA["10/1/0.1/0.01"]
    d, long = len(ill), LENGTHS[-1]
    without_kappa = (1 + 2 * d + d**2) * sum(ill) / long**2
    short = [(n, m) for n, m in pairs if n <= 30]
    steps = theory.linear.SampleComplexity(tuple(SPECTRUM))
    return Verdict(
        [
            Check(
                "largest relative difference between the display and (4.6) with moments by "
                "quadrature",
                max(difference(w, n, m) for w in weights[:5] for n, m in short),
                1e-11,
                min(difference(w, n, m, shift=0.1) for w in weights[:5] for n, m in short[:1]),
                ALGEBRA,
                "the display with another w, N = M = 1",
            ),
            Check(
                "largest error relative to the bound at fixed w, over lengths and w",
                largest_ratio(last=True),
                1.0,
                largest_ratio(last=False),
                "a bound: exact numbers on both sides",
                "the bound without its last term",
            ),
            Check(
                "largest averaged error relative to the first bound, over lengths and spectra",
                max(error / bound for error, bound, _ in every),
                1.0,
                theory.linear.SampleComplexity(ill).error(long, math.inf) / without_kappa,
                "a bound: exact numbers on both sides; 1 is approached as N grows",
                "the bound with d^2 in place of tr(Lambda) tr(1/Lambda), condition number 1000, "
                "M infinite",
            ),
            Check(
                "largest ratio of the first averaged bound to the second",
                max(first / second for _, first, second in every),
                1.0 + 1e-12,
                averaged_bounds(ill, long, math.inf)[0] / without_kappa,
                "equal where Lambda is a multiple of I, up to rounding",
                "the second bound with 1 in place of the condition number 1000, M infinite",
            ),
        ],
        settings={
            "Lambda": "eigenvalues 1.5, 0.8, 0.4, rotated; averages also for I_5, 0.01 I_5 and "
            "eigenvalues 10, 1, 0.1, 0.01",
            "N": f"{LENGTHS[0]} to {LENGTHS[-1]}",
            "M": f"{LENGTHS[0]} to {LENGTHS[-1]}, and infinite",
            "w": f"{draws} draws from N(0, I), seed 0",
            "last bound / averaged error": ", ".join(
                f"{name}: {min(slack):.3g} to {max(slack):.3g}"
                for name, rows in averages.items()
                for slack in [[bound / error for error, _, bound in rows]]
            ),
            "longer training is not always better": "the bound falls in N, the error need not: at "
            f"M = 20 it is {steps.error(10, 20):.4f} for N = 10, {steps.error(20, 20):.4f} for "
            f"N = 20 and {steps.error(math.inf, 20):.4f} for N infinite, since the 1/M term grows "
            "as Gamma falls to Lambda; the best N is M",
        },
    )


@claim(
    "zhang2023/corollary4.3",
    "The trained layer has an error of at most eps if training and test prompts have the stated "
    "lengths",
    source="Corollary 4.3",
    formula=r"M \ge 2(d+1)\,\mathrm{tr}(\Lambda)\,\varepsilon^{-1},\quad N \ge "
    r"\sqrt{2(1 + 2d + d^2\kappa)\,\mathrm{tr}(\Lambda)}\,\varepsilon^{-1/2}",
)
def sufficient_lengths(scale: Scale) -> Verdict:
    accuracies = (0.9, 0.5, 0.1, 0.01, 1e-4)
    settings = {
        name: theory.linear.SampleComplexity(spectrum) for name, spectrum in SPECTRA.items()
    }

    def worst(share: float) -> dict[tuple[str, float], float]:
        """Largest error / eps over lengths from the stated ones on, `share` of the training."""
        found = {}
        for (name, setting), eps in product(settings.items(), accuracies):
            stated = setting.stated(eps)
            shortest = max(1, math.ceil(share * stated.train))
            found[name, eps] = max(
                setting.error(train, test) / eps
                for train in (shortest, 2 * shortest, 100 * shortest, math.inf)
                for test in (stated.test, 2 * stated.test, math.inf)
            )
        return found

    measured = worst(1.0)
    shown = settings["1.5/0.8/0.4"]
    stated, floor = shown.stated(0.1), shown.error(shown.stated(0.1).train, math.inf)
    rotated_error = theory.linear.mean_error_parts(
        theory.linear.one_step_preconditioner(rotated(SPECTRUM, seed=0), int(stated.train)),
        rotated(SPECTRUM, seed=0),
        stated.test,
    ).total
    return Verdict(
        [
            Check(
                "largest error / eps at the stated lengths and longer ones",
                max(measured.values()),
                1.0,
                max(worst(0.1).values()),
                "exact errors: the corollary itself is the tolerance",
                "a tenth of the stated training length",
            ),
            Check(
                "relative difference between the error by eigenvalues and by matrices, Lambda "
                "rotated, N and M stated for eps = 0.1",
                abs(rotated_error / stated.error - 1),
                1e-11,
                abs(rotated_error / shown.error(stated.test, stated.train) - 1),
                ALGEBRA,
                "training and test length exchanged",
            ),
        ],
        settings={
            "spectra": ", ".join(SPECTRA),
            "eps": ", ".join(f"{eps:g}" for eps in accuracies),
            "eps / largest error at these lengths": ", ".join(
                f"{name}: {min(1 / measured[name, e] for e in accuracies):.3g} to "
                f"{max(1 / measured[name, e] for e in accuracies):.3g}"
                for name in SPECTRA
            ),
            "1.5/0.8/0.4, eps = 0.1": f"stated N = {stated.train}, M = {stated.test}, error "
            f"{stated.error:.4f}; N = M = {shown.equal_length(0.1)} is enough, so is N = "
            f"{stated.train} with M = {shown.test_length(0.1, stated.train)}; no M helps below "
            f"N = {shown.train_length(0.1)}",
            "one model is not enough": "Definition 3.2 asks one model to reach every eps. A layer "
            f"trained at one N does not: at N = {stated.train} the error stays above {floor:.4f} "
            "for any M. The corollary is read for one eps at a time, as its N depends on eps",
        },
    )
