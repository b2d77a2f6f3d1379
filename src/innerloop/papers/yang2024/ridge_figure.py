"""Figure 3 of Yang et al. (2024): the learned ridge regression and the one called best.

All numbers are exact for their dictionary, averaged over several, and nothing is trained. K = 200
as in Figure 2, which the paper leaves open.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from statistics import fmean

import numpy as np
import torch
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import NullFormatter, ScalarFormatter
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import DTYPE, generator
from innerloop.papers.registry import FigureData, Table, figure
from innerloop.papers.verdict import Check, Correction, Scale, Verdict
from innerloop.papers.yang2024.ridge import expanded_risk
from innerloop.papers.yang2024.settings import OUT_OF_DOMAIN
from innerloop.tasks import GaussianCoefficients

TAU = 0.01
BLUE, RED, GREY, GREEN = "#0072B2", "#D55E00", "#555555", "#009E73"


def draw_figure3(tables: Mapping[str, Table]) -> Picture:
    table = tables["gaps"]
    n = np.asarray(table["N"], dtype=float)
    m = int(table["m"][0])
    picture = Picture(figsize=(9.2, 3.4))
    left, right = picture.subplots(1, 2)
    for column, colour in (("in domain", BLUE), ("out of domain", GREEN)):
        gaps = np.asarray(table[column], dtype=float)
        left.plot(n[n < m], gaps[n < m], color=colour, label=column)
        left.plot(n[n > m], gaps[n > m], color=colour)
    left.axvline(m, color="black", linewidth=0.8, linestyle=":", label=f"N = m = {m}, gap 0")
    left.set(yscale="log", xlabel="N, shown labels", title="distance from $y^{best}$")
    left.set_ylabel(r"$E\,\frac{1}{K}\|\hat y^* - \hat y^{best}\|^2$")
    left.legend()
    right.plot(n, table["learned error"], color=RED, label="learned, penalty $m\\tau$")
    right.plot(n, table["best error"], "--", color=GREY, label="$y^{best}$, penalty $N\\tau$")
    right.axvline(m, color="black", linewidth=0.8, linestyle=":")
    right.set(yscale="log", xlabel="N, shown labels", title="error on the tokens not shown")
    right.set_ylabel("expected squared error per token")
    right.yaxis.set_minor_formatter(NullFormatter())
    right.yaxis.set_major_formatter(ScalarFormatter())
    right.set_yticks([3, 5, 10, 20, 50])
    right.legend()
    return picture


def compare(features: Tensor, shown: int) -> dict[str, float]:
    """The distances of the two predictions, and the error per token that is not shown of each.

    Errors are risks expanded around zero, so that none is the smallest by construction.
    """
    count, m = features.shape
    risk, beyond = (
        theory.softmax.DictionaryRisk.of(features, shown, TAU, coefficients.second_moment(m))
        for coefficients in (GaussianCoefficients(), OUT_OF_DOMAIN)
    )
    best, strong = (
        theory.softmax.ridge_matrix(features, shown, penalty)
        for penalty in (shown * TAU, 10 * m * TAU)
    )
    learned = risk.optimum
    per_query = 2 * count / (count - shown)
    return {
        "in domain": risk.distance(learned, best).item(),
        "out of domain": beyond.distance(learned, best).item(),
        "learned error": per_query * expanded_risk(risk, learned),
        "best error": per_query * expanded_risk(risk, best),
        "error with tenfold penalty": per_query * expanded_risk(risk, strong),
    }


@figure(
    "yang2024/figure3",
    "The closer N is to m, the closer the prediction is to the best one and the better it is",
    source="Figure 3, sections 3.2 and 4",
    draw=draw_figure3,
)
def figure3(scale: Scale) -> FigureData:
    m, count = 100, 200
    step, dictionaries = scale.pick(smoke=(10, 2), quick=(2, 8), paper=(1, 20))
    lengths = list(range(50, 151, step))
    drawn = [
        torch.randn(count, m, generator=generator(seed), dtype=DTYPE)
        for seed in range(dictionaries)
    ]
    rows: dict[str, list[float]] = {}
    for n in lengths:
        of_each = [compare(features, n) for features in drawn]
        row = {name: fmean(numbers[name] for numbers in of_each) for name in of_each[0]}
        for key, value in ({"N": n, "m": m} | row).items():
            rows.setdefault(key, []).append(value)
    caption = (
        "Left: how far the learned prediction is from y^best; zero at N = m, where both are the "
        "same ridge regression, and smaller again far from it. Right: the error on the tokens not "
        "shown, which falls with N throughout and hardly differs between the two."
    )
    verdict = judge_figure3(rows, lengths.index(m), dictionaries)
    return FigureData({"gaps": rows}, caption, verdict)


def judge_figure3(rows: dict[str, list[float]], middle: int, dictionaries: int) -> Verdict:
    gaps, errors, lengths = rows["in domain"], rows["learned error"], rows["N"]
    m = lengths[middle]

    def least_growth(values: list[float]) -> float:
        """The smallest ratio of neighbouring values, the farther from N = m to the nearer."""
        left, right = values[middle - 1 :: -1], values[middle + 1 :]
        return min(far / near for side in (left, right) for near, far in pairwise(side))

    def least_excess(over: list[float]) -> float:
        return min(best / error for best, error in zip(rows["best error"], over, strict=True)) - 1

    def largest_ratio(values: list[float]) -> float:
        return max(after / before for before, after in pairwise(values))

    peaks = [lengths[gaps.index(max(side))] for side in (gaps[:middle], gaps[middle:])]
    return Verdict(
        printed=[
            Check(
                "smallest ratio of the gap farther from N = m to that nearer",
                least_growth(gaps),
                1.0,
                least_growth(errors),
                "growing with the distance means ratios above 1",
                "the same for the error of the prediction itself",
                at_least=True,
            ),
            Check(
                "error of the prediction at N = m relative to the smallest over N",
                errors[middle] / min(errors),
                1.0,
                errors[0] / min(errors),
                "best at N = m means 1",
                f"the error at N = {lengths[0]:.0f}",
            ),
        ],
        corrected=[
            Check(
                "gap at N = m relative to the largest",
                gaps[middle] / max(gaps),
                1e-20,
                gaps[middle + 1] / max(gaps),
                "equal predictions: the square of float64 rounding",
                f"the gap at N = {lengths[middle + 1]:.0f}",
            ),
            Check(
                "largest ratio of the errors at successive N",
                largest_ratio(errors),
                1.0,
                largest_ratio(gaps[:middle]),
                "falling means ratios below 1",
                "the same for the gap, below N = m",
            ),
            Check(
                "smallest relative excess of the error of y^best over that of the learned one",
                least_excess(errors),
                -1e-12,
                least_excess(rows["error with tenfold penalty"]),
                "never better means none below zero; 1e-12 is rounding",
                "over ridge regression with the penalty 10 m tau",
                at_least=True,
            ),
        ],
        correction=Correction(
            r"|N - m| \text{ smaller} \;\Rightarrow\; \text{closer to } "
            r"\hat{y}^{\mathrm{best}} \text{ and better}",
            r"\mathbb{E} \frac{1}{K} \|\hat{y}^\star - \hat{y}^{\mathrm{best}}\|^2 = "
            r"2 (L(\hat{y}^{\mathrm{best}}) - L^\star) = 0 \text{ at } N = m;\quad "
            r"\text{the error falls with } N",
            "The gap vanishes at N = m because the penalties m tau and N tau are then equal, grows "
            f"up to about N = {peaks[0]:.0f} on one side and {peaks[1]:.0f} on the other, and "
            "shrinks again beyond. It measures how much worse y^best is, not the quality of the "
            f"learned prediction: its error per token is {errors[0]:.1f} at N = {lengths[0]:.0f}, "
            f"{errors[middle]:.1f} at N = m = {m:.0f} and {errors[-1]:.2f} at N = "
            f"{lengths[-1]:.0f}.",
        ),
        settings={
            "m": m,
            "tau": TAU,
            "K": "200; the paper does not say",
            "features": f"standard normal; means over {dictionaries} dictionaries, for each of "
            "which all numbers are exact; nothing is trained",
        },
    )
