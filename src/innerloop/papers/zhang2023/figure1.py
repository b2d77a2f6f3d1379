"""Linear layers where every prompt has its own covariance, at the lengths of Figure 1."""

import math
from functools import cache
from itertools import product

import numpy as np
import torch
from matplotlib.figure import Figure as Picture
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import DTYPE, identity
from innerloop.papers.plots import as_table, where
from innerloop.papers.quantity import at_least, checks
from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Check, Scale, Verdict
from innerloop.papers.zhang2023.drawing import logarithmic
from innerloop.papers.zhang2023.prompts import layer_around, linear_prompts, predict
from innerloop.papers.zhang2023.settings import as_stated, exponential, only
from innerloop.theory.linear import CovarianceLaw

D = 20
STYLES = {40: ":", 70: "--", 100: "-"}
"""Of the training lengths."""
COLOURS = {"fixed": "#d55e00", "random": "#0072b2"}
"""Covariance I in every training prompt, or diag of Exponential(1) drawn anew."""
TESTS = {"I": ("fixed", 1.0), "Exponential(1)": ("random", 1.0)}
TESTS |= {f"{c} Exponential(1)": ("random", float(c)) for c in (4, 9)}
"""Kind and scale of the covariances in test prompts: the four panels of Figure 1."""
SCALES = [0.25, 0.5, 1.0, 1.9, 2.5, 4.0, 9.0]


@cache
def law(kind: str, scale: float = 1.0, d: int = D) -> CovarianceLaw:
    entries = torch.full((d,), scale, dtype=DTYPE)
    if kind == "fixed":
        return CovarianceLaw.fixed(torch.diag(entries))
    return CovarianceLaw.exponential(entries)


@cache
def trained_layer(kind: str, train: float, d: int) -> Tensor:
    return theory.flow.SingleLayerFlow(law(kind, d=d), train).product


def error(kind: str, train: float, tested: CovarianceLaw, test: float) -> float:
    """The exact error per dimension of a layer trained on `train` examples."""
    layer = trained_layer(kind, train, tested.d)
    return theory.linear.random_covariance_risk(layer, tested, test).item() / tested.d


def visited_error(kind: str, train: float, name: str, test: int, d: int) -> float:
    """The same by the layer itself over every prompt, with the weights of Eq. 4.1 and 4.12."""
    step = 1 / (1 + (d + 1) / train)
    if kind == "random":
        step = 2 / (6 * (train + 1) / train + (6 + 2 * (d - 1)) / train)
    tested, scale = TESTS[name]
    mixture = only(scale * identity(d)) if tested == "fixed" else exponential((scale,) * d)
    prompt, _, _, mass = linear_prompts(mixture, test)
    off = predict(layer_around(step * identity(d)), prompt) - prompt.y_query[:, 0]
    return (mass @ off**2).item() / d


def judge(tables: Tables) -> Verdict:
    small, limits = where(tables["compared"]), where(tables["limits"])
    c = limits["c"]
    share = dict(zip(c.tolist(), limits["random"] / c, strict=True))

    def polynomial(kind: str, cube: float, square: float) -> list[Check]:
        return as_stated(
            f"trained on {kind}: relative difference from {cube:.3g} c^3 - {square:.3g} c^2 + c",
            square,
            {f"{1.01 * square:.3g} for {square:.3g}": 1.01 * square},
            lambda k: np.abs(limits[kind] / (cube * c**3 - k * c**2 + c) - 1).max(),
        )

    lines = as_stated(
        "relative difference from the layer's error over every prompt, d = 1, 2",
        "line",
        {name: name for name in ("M + 1 for M", "N + 1 for N")},
        lambda name: np.abs(small[name] / small["visited"] - 1).max(),
    )
    worse = checks(
        "limit M, N to infinity, trained on random: error over that of predicting 0",
        at_least(1.0, "the statement: no better than predicting 0"),
        {"c = 4": share[4.0], "c = 9": share[9.0]},
        unlike={"c = 1.9": share[1.9]},
    )
    name = "distance of the limit at c = 1 from 1/3, trained on random"
    third = as_stated(name, 1.0, {"c = 0.5": 0.5}, lambda c: abs(share[c] - 1 / 3))
    limits_by_scale = *polynomial("random", 2 / 3, 4 / 3), *polynomial("fixed", 6.0, 4.0)
    remark = "Worse than predicting 0 above c = 2, trained on random covariances; on I, c = 2/3."
    return Verdict([*lines, *limits_by_scale, *worse, *third], remarks=[remark])


def draw(tables: Tables) -> Picture:
    picture = Picture(figsize=(10.5, 6))
    first, *panels, last = picture.subplots(2, 3).flat
    table = tables["limits"]
    for kind, colour in COLOURS.items():
        label = f"trained on {kind}, limit"
        first.plot(table["c"], table[kind], "o-", color=colour, markersize=3, label=label)
    first.plot(table["c"], table["c"], color="#555555", linestyle="--", label="predicting 0")
    labels = {"xlabel": "scale c of the covariance", "ylabel": "error / d"}
    logarithmic(first, title="limit, against the scale", **labels)
    first.set_xticks([0.25, 1, 4, 9])
    first.legend(fontsize=7.5)
    for axes, (name, (_, zero)) in zip(panels, TESTS.items(), strict=True):
        for (kind, colour), (train, style) in product(COLOURS.items(), STYLES.items()):
            line = where(tables["lines"], test=name, training=kind, train=train)
            label = f"trained on {kind}, N = {train}"
            axes.plot(line["length"], line["error"], style, color=colour, label=label)
        axes.axhline(zero, color="#555555", linestyle="--", label="predicting 0")
        axes.axvline(D, color="#009e73", linestyle="-.", label="from here on least squares has 0")
        logarithmic(axes, title=f"tested on {name}", xlabel="test length M", ylabel="error / d")
        axes.set_xticks([1, 5, 20, 100])
    last.axis("off")
    last.legend(*panels[1].get_legend_handles_labels(), loc="center", fontsize=8)
    return picture


@figure(
    "zhang2023/random-covariance",
    "Trained on random covariances the linear layer does not adapt to that of a prompt: in the "
    "limit it errs by a third, at scales 4 and 9 more than predicting 0 (GPT-2 curves absent)",
    source="section 4.3 and the linear layer of Figure 1",
    judge=judge,
    draw=draw,
)
def under_random_covariances(scale: Scale) -> Numbers:
    grid = np.unique(np.geomspace(1, 130, 40).round().astype(int)).tolist()
    lines = [
        {
            **{"test": name, "training": kind, "train": train, "length": length},
            "error": error(kind, train, law(*TESTS[name]), length),
        }
        for name, kind, train, length in product(TESTS, COLOURS, STYLES, grid)
    ]
    limits = {"c": SCALES} | {
        kind: [error(kind, math.inf, law("random", c), math.inf) for c in SCALES]
        for kind in COLOURS
    }
    compared = [  # where the layer can visit every prompt, and near misses of the lines
        {
            "visited": visited_error(kind, train, name, test, d),
            "line": error(kind, train, law(*TESTS[name], d), test),
            "M + 1 for M": error(kind, train, law(*TESTS[name], d), test + 1),
            "N + 1 for N": error(kind, train + 1, law(*TESTS[name], d), test),
        }
        for name, kind, train, (d, test) in product(TESTS, COLOURS, STYLES, ((1, 2), (2, 1)))
    ]
    caption = (
        "Exact error of linear layers trained on the covariance I (orange) or on "
        "diag(Exponential(1)) drawn anew for every prompt (blue). First panel: against the scale c "
        f"of the test covariances, M, N to infinity. Others: against the test length, d = {D}, for "
        "the training lengths of Figure 1, which shows GPT-2 models (absent here) and of linear "
        "layers the limit alone. Errors are divided by d; the paper does not say how its own are."
    )
    tables = {"limits": limits, "lines": as_table(lines), "compared": as_table(compared)}
    return Numbers(tables, caption, {"d": D, "N": ", ".join(map(str, STYLES))})
