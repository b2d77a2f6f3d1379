"""Figure 3: the learned ridge regression and the one called best, against N. Nothing is trained."""

import numpy as np
import torch
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import NullFormatter, ScalarFormatter
from torch import Tensor

from innerloop import theory
from innerloop.analysis import Estimate
from innerloop.papers.common import mean_log, normal
from innerloop.papers.plots import as_table, where
from innerloop.papers.quantity import checks
from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.papers.yang2024 import settings
from innerloop.papers.yang2024.lemmas1_to_6 import loss_75
from innerloop.papers.yang2024.sections3_2_3 import DIFFERENCE, NO_RIVAL
from innerloop.papers.yang2024.settings import FALLS, SQUARED_ROUNDING
from innerloop.tasks import DictionaryRegression

M, K, TAU = 100, 200, 0.01
FIRST, LAST = 50, 150


def draw_figure3(tables: Tables) -> Picture:
    lengths = np.unique(tables["gaps"]["N"])
    rows = [where(tables["gaps"], N=n) for n in lengths]
    mean = {name: np.asarray([row[name].mean() for row in rows]) for name in tables["gaps"]}
    picture = Picture(figsize=(9.2, 3.4))
    left, right = picture.subplots(1, 2)
    for name, colour in (("in domain", "#0072B2"), ("out of domain", "#009E73")):
        for side, label in ((lengths < M, name), (lengths > M, None)):
            left.plot(lengths[side], mean[name][side], color=colour, label=label)
    left.set(
        title="distance from $y^{best}$", ylabel=r"$E\,\frac{1}{K}\|\hat y^*-\hat y^{best}\|^2$"
    )
    right.plot(lengths, mean["learned error"], color="#D55E00", label="learned, penalty $m\\tau$")
    right.plot(lengths, mean["best error"], "--", color="#555555", label="$y^{best}$, $N\\tau$")
    right.set(title="error on the tokens not shown", ylabel="expected squared error per token")
    for axes in (left, right):
        axes.axvline(M, color="black", linewidth=0.8, linestyle=":", label=f"N = m = {M}")
        axes.set(yscale="log", xlabel="N, shown labels")
        axes.legend()
    right.yaxis.set_minor_formatter(NullFormatter())
    right.yaxis.set_major_formatter(ScalarFormatter())
    right.set_yticks([3, 5, 10, 20, 50])
    return picture


def compare(features: Tensor, shown: int) -> dict[str, float]:
    """The distances of the two predictions, and the error per token that is not shown of each.

    Errors are those of Eq. 75, so that none is the smallest by construction.
    """
    task = DictionaryRegression(normal(0, K, 2), features, shown, TAU)
    made = settings.without_weights(task, torch.zeros(1, 2, 2).to(features))
    beyond = settings.risk(task, settings.OUT_OF_DOMAIN.second_moment(M))
    best, strong = (
        theory.softmax.ridge_matrix(features, shown, p) for p in (shown * TAU, 2 * M * TAU)
    )
    matrices = {"learned": made.risk.optimum, "best": best, "doubled penalty": strong}
    return {
        "in domain": made.risk.distance(matrices["learned"], best).item(),
        "out of domain": beyond.distance(matrices["learned"], best).item(),
    } | {f"{name} error": 2 * K / (K - shown) * loss_75(made, a) for name, a in matrices.items()}


def judge_figure3(tables: Tables) -> Verdict:
    table, at = where(tables["gaps"]), {n: where(tables["gaps"], N=n) for n in tables["gaps"]["N"]}

    def log_ratio(column: str, n: int, other: int) -> Estimate:
        return mean_log(at[n][column] / at[other][column])

    def share(n: int) -> float:
        return at[n]["in domain"].mean() / max(rows["in domain"].mean() for rows in at.values())

    def excess(rival: str) -> float:
        return (table["best error"] / table[f"{rival} error"] - 1).min()

    def error_of_gain(column: str) -> float:
        gain = (table["best error"] - table["learned error"]) * (K - table["N"]) / K
        return np.abs(gain / table[column] - 1)[table["N"] != M].max()

    steps = [(log_ratio("learned error", n + 10, n), n) for n in range(FIRST, LAST, 10)]
    least, slowest = max(steps, key=lambda step: step[0].mean)
    near_miss = {"N = m to 140": log_ratio("learned error", M, 140)}
    gap, error = "mean log ratio of gaps", "mean log ratio of the errors of the prediction"
    nearer = {f"N = {n} to {m}": log_ratio("in domain", n, m) for n, m in ((70, 50), (130, 150))}
    farther = {"N = 90 to 99, which is nearer": log_ratio("in domain", 90, 99)}
    best = {"N = m to 150": log_ratio("learned error", M, LAST)}
    fall = {f"N = {slowest + 10} to {slowest}, the least fall": least}
    zero, next_to_zero = {"N = m": share(M)}, {"N = m + 1": share(M + 1)}
    learned, doubled = ({name: excess(name)} for name in ("learned", "doubled penalty"))
    inside, outside = ({name: error_of_gain(name)} for name in ("in domain", "out of domain"))
    over = "smallest relative excess of the error of y^best over"
    of_gain, relative = "relative error of 2 (L(y^best) - L*)", "gap relative to the largest"
    values = [at[n]["in domain"].mean() for n in (70, FIRST)]
    values += [at[n]["learned error"].mean() for n in (FIRST, M, LAST)]
    return Verdict(
        printed=[
            *checks(gap, FALLS, nearer, unlike=farther),
            *checks(error, FALLS, best, unlike=near_miss),
        ],
        corrected=[
            *checks(relative, SQUARED_ROUNDING, zero, unlike=next_to_zero),
            *checks(over, NO_RIVAL, learned, unlike=doubled),
            *checks(of_gain, DIFFERENCE, inside, unlike=outside),
            *checks(error, FALLS, fall, unlike=near_miss),
        ],
        correction=Correction(
            r"|N - m| \text{ smaller} \;\Rightarrow\; \text{closer to } "
            r"\hat{y}^{\mathrm{best}} \text{ and better}",
            r"\mathbb{E} \frac{1}{K} \|\hat{y}^\star - \hat{y}^{\mathrm{best}}\|^2 = "
            r"2 (L(\hat{y}^{\mathrm{best}}) - L^\star) = 0 \text{ at } N = m;\quad "
            r"\text{the error falls with } N",
            "The gap, which measures how much worse y^best is, vanishes at N = m, where the "
            "penalties m tau and N tau are equal, but shrinks again beyond about N = 70 and 130. "
            "The error of the learned prediction falls with N throughout.",
            kind=Kind.SENTENCE,
            counterexample="The gap is {:.4f} at N = 70 and {:.4f} at N = 50; the error per token "
            "is {:.1f} at N = 50, {:.1f} at N = m = 100 and {:.2f} at N = 150.".format(*values),
        ),
    )


@figure(
    "yang2024/figure3",
    "The closer N is to m, the closer the prediction is to the best one and the better it is",
    source="Figure 3, sections 3.2 and 4",
    judge=judge_figure3,
    draw=draw_figure3,
)
def figure3(scale: Scale) -> Numbers:
    step, dictionaries = scale.pick(smoke=(10, 16), quick=(5, 16), paper=(1, 20))
    rows = [
        {"N": n, "dictionary": seed, **compare(normal(seed, K, M), n)}
        for seed in range(dictionaries)
        for n in sorted({*range(FIRST, LAST + 1, step), M - 1, M + 1})
    ]
    return Numbers(
        {"gaps": as_table(rows)},
        "Left: how far the learned prediction is from y^best; zero at N = m, and smaller again far "
        "from it. Right: the error on the tokens not shown, which hardly differs between the two. "
        "The paper leaves open K (200 here, as in Figure 2), the features (standard normal), "
        "whether lambda is in or out of domain (both are shown) and the average (here the exact "
        f"expectation over lambda and noise, and the mean over {dictionaries} dictionaries).",
        {"m": M, "tau": TAU, "K": K, "dictionaries": dictionaries},
    )
