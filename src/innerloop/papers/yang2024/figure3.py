"""Figure 3: the learned ridge regression and the one called best, against N. Nothing is trained."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import NullFormatter, ScalarFormatter
from torch import Tensor

from innerloop import theory
from innerloop.analysis import Estimate
from innerloop.models import DictionaryAttention
from innerloop.papers.common import DTYPE, generator
from innerloop.papers.quantity import measured
from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.papers.yang2024.lemmas5_6 import loss_75
from innerloop.papers.yang2024.section3_2_best import DIFFERENCE, NO_RIVAL
from innerloop.papers.yang2024.settings import (
    FALLS,
    OUT_OF_DOMAIN,
    SQUARED_ROUNDING,
    Instance,
    normal,
)
from innerloop.tasks import DictionaryRegression

M, K, TAU = 100, 200, 0.01
FIRST, LAST = 50, 150


def draw_figure3(tables: Tables) -> Picture:
    columns = {name: np.asarray(v, dtype=float) for name, v in tables["gaps"].items()}
    lengths = np.unique(columns["N"])
    mean = {
        name: np.asarray([values[columns["N"] == n].mean() for n in lengths])
        for name, values in columns.items()
    }
    picture = Picture(figsize=(9.2, 3.4))
    left, right = picture.subplots(1, 2)
    for name, colour in (("in domain", "#0072B2"), ("out of domain", "#009E73")):
        for side, label in ((lengths < M, name), (lengths > M, None)):
            left.plot(lengths[side], mean[name][side], color=colour, label=label)
    left.axvline(M, color="black", linewidth=0.8, linestyle=":", label=f"N = m = {M}, gap 0")
    left.set(yscale="log", xlabel="N, shown labels", title="distance from $y^{best}$")
    left.set_ylabel(r"$E\,\frac{1}{K}\|\hat y^* - \hat y^{best}\|^2$")
    left.legend()
    right.plot(lengths, mean["learned error"], color="#D55E00", label="learned, penalty $m\\tau$")
    right.plot(lengths, mean["best error"], "--", color="#555555", label="$y^{best}$, $N\\tau$")
    right.axvline(M, color="black", linewidth=0.8, linestyle=":")
    right.set(yscale="log", xlabel="N, shown labels", title="error on the tokens not shown")
    right.set_ylabel("expected squared error per token")
    right.yaxis.set_minor_formatter(NullFormatter())
    right.yaxis.set_major_formatter(ScalarFormatter())
    right.set_yticks([3, 5, 10, 20, 50])
    right.legend()
    return picture


def compare(features: Tensor, shown: int) -> dict[str, float]:
    """The distances of the two predictions, and the error per token that is not shown of each.

    Errors are those of Eq. 75, so that none is the smallest by construction.
    """
    task = DictionaryRegression(normal(K, 2, seed=0), features, shown, TAU)
    made = Instance(task, DictionaryAttention(torch.zeros(1, 2, 2), torch.zeros(1, K)))
    moment = OUT_OF_DOMAIN.second_moment(M)
    beyond = theory.softmax.DictionaryRisk.of(features, shown, TAU, moment)
    learned = made.risk.optimum
    best, strong = (
        theory.softmax.ridge_matrix(features, shown, p) for p in (shown * TAU, 2 * M * TAU)
    )
    errors = {"learned": learned, "best": best, "doubled penalty": strong}
    return {
        "in domain": made.risk.distance(learned, best).item(),
        "out of domain": beyond.distance(learned, best).item(),
    } | {
        f"{name} error": 2 * K / (K - shown) * loss_75(made, matrix)
        for name, matrix in errors.items()
    }


FALLS_WITH_N = Correction(
    r"|N - m| \text{ smaller} \;\Rightarrow\; \text{closer to } "
    r"\hat{y}^{\mathrm{best}} \text{ and better}",
    r"\mathbb{E} \frac{1}{K} \|\hat{y}^\star - \hat{y}^{\mathrm{best}}\|^2 = "
    r"2 (L(\hat{y}^{\mathrm{best}}) - L^\star) = 0 \text{ at } N = m;\quad "
    r"\text{the error falls with } N",
    "The gap vanishes at N = m because the penalties m tau and N tau are then equal, grows "
    "on both sides, and shrinks again beyond about N = 70 and N = 130. It measures how "
    "much worse y^best is, not the quality of the learned prediction, whose error falls "
    "with N throughout.",
    kind=Kind.SENTENCE,
)


def judge_figure3(tables: Tables) -> Verdict:
    table = {name: np.asarray(values, dtype=float) for name, values in tables["gaps"].items()}
    here = {int(n): table["N"] == n for n in np.unique(table["N"])}

    def log_ratio(column: str, n: int, other: int) -> Estimate:
        """Of paired dictionaries, at N = n to that at the other."""
        return Estimate.of(
            torch.tensor(np.log(table[column][here[n]] / table[column][here[other]]))
        )

    def mean(column: str, n: int) -> float:
        return float(table[column][here[n]].mean())

    tens = range(FIRST, LAST, 10)
    steps = {f"N = {n + 10} to {n}": log_ratio("learned error", n + 10, n) for n in tens}
    slowest = max(steps, key=lambda case: steps[case].mean)
    nearer = measured(
        "mean log ratio of the gap nearer to N = m to that farther",
        FALLS,
        {
            "N = 70 to 50": log_ratio("in domain", 70, 50),
            "N = 130 to 150": log_ratio("in domain", 130, 150),
            "N = 90 to 99, the wrong way round": log_ratio("in domain", 90, 99),
        },
    )
    errors = measured(
        "mean log ratio of the errors of the prediction",
        FALLS,
        {
            f"N = m to {LAST}": log_ratio("learned error", M, LAST),
            f"N = m to {LAST - 10}": log_ratio("learned error", M, LAST - 10),
            f"{slowest}, the least fall of all": steps[slowest],
        },
    )
    largest = max(mean("in domain", n) for n in here)
    at_m = measured(
        "gap relative to the largest",
        SQUARED_ROUNDING,
        {f"N = {n}": mean("in domain", n) / largest for n in (M, M + 1)},
    )
    excess = measured(
        "smallest relative excess of the error of y^best",
        NO_RIVAL,
        {
            f"over {name}": (table["best error"] / table[f"{name} error"] - 1).min()
            for name in ("learned", "doubled penalty")
        },
    )
    apart = table["N"] != M
    gain = (table["best error"] - table["learned error"]) * (K - table["N"]) / K
    identity = measured(
        "largest relative error of the gap against 2 (L(y^best) - L*)",
        DIFFERENCE,
        {
            name: np.abs(gain / table[name] - 1)[apart].max()
            for name in ("in domain", "out of domain")
        },
    )
    wrong_way = "N = 90 to 99, the wrong way round"
    return Verdict(
        printed=[
            nearer.check("N = 70 to 50", unlike=wrong_way),
            nearer.check("N = 130 to 150", unlike=wrong_way),
            errors.check(f"N = m to {LAST}", unlike=f"N = m to {LAST - 10}"),
        ],
        corrected=[
            at_m.check(f"N = {M}", unlike=f"N = {M + 1}"),
            errors.check(f"{slowest}, the least fall of all", unlike=f"N = m to {LAST - 10}"),
            excess.check("over learned", unlike="over doubled penalty"),
            identity.check("in domain", unlike="out of domain"),
        ],
        correction=replace(
            FALLS_WITH_N,
            counterexample=f"The gap is {mean('in domain', 70):.4f} at N = 70 and "
            f"{mean('in domain', 50):.4f} at N = 50; the error per token is "
            f"{mean('learned error', 50):.1f} at N = 50, {mean('learned error', M):.1f} at N = m = "
            f"{M} and {mean('learned error', LAST):.2f} at N = {LAST}.",
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
    step, dictionaries = scale.pick(smoke=(10, 10), quick=(5, 16), paper=(1, 20))
    lengths = sorted({*range(FIRST, LAST + 1, step), M - 1, M + 1})
    rows: dict[str, list[float | int | str]] = {}
    for seed in range(dictionaries):
        features = torch.randn(K, M, generator=generator(seed), dtype=DTYPE)
        for n in lengths:
            row = {"N": n, "dictionary": seed} | compare(features, n)
            for name, value in row.items():
                rows.setdefault(name, []).append(value)
    return Numbers(
        {"gaps": rows},
        "Left: how far the learned prediction is from y^best; zero at N = m, where both are the "
        "same ridge regression, and smaller again far from it. Right: the error on the tokens not "
        "shown, which falls with N throughout and hardly differs between the two. The paper gives "
        "m = 100 and tau = 0.01, and leaves open K (200 here, as in Figure 2), the features of "
        "this figure (standard normal, as in its setup), whether lambda is in or out of domain "
        "(both are shown) and over what it averages (here the expectation over lambda and noise, "
        f"exact, and the mean over {dictionaries} dictionaries).",
        {"m": M, "tau": TAU, "K": K, "dictionaries": dictionaries},
    )
