"""The error of Theorem 4.2 against test and training length: formula, and every prompt visited."""

from itertools import product

import numpy as np
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import LogLocator

from innerloop.papers.common import rotated
from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.zhang2023.drawing import as_table, logarithmic, where
from innerloop.papers.zhang2023.prompts import LABELS, WORDS, layer_around
from innerloop.papers.zhang2023.settings import ROTATED, SPECTRA, as_printed, inverse_gamma
from innerloop.papers.zhang2023.theorem4_2 import brackets, stated_error

COLOURS = ("#d55e00", "#0072b2", "#009e73")
AXES = {
    "test": ("test length M", "train", "N", (3, 12, 100)),
    "train": ("training length N", "test", "M", (1, 2, 100)),
}
"""What is on the axis, and the other length, which has a line for each of these."""


def judge(tables: Tables) -> Verdict:
    points = where(tables["points"])
    off = {
        name: np.abs(points[name] / points["error"] - 1).max()
        for name in ("formula", "N + 1 for N", "M + 1 for M", "N and M exchanged")
    }
    name = "largest relative difference from the layer's error over every prompt"
    return Verdict(as_printed(name, off.pop("formula"), off))


def draw(tables: Tables) -> Picture:
    picture = Picture(figsize=(10, 5.6))
    rows = picture.subplots(2, 3)
    for row, (on_axis, (xlabel, fixed, letter, lengths)) in zip(rows, AXES.items(), strict=True):
        for axes, name in zip(row, LABELS, strict=True):
            for colour, length in zip(COLOURS, lengths, strict=True):
                line = where(tables["lines"], labels=name, axis=on_axis, **{fixed: length})
                points = where(tables["points"], labels=name, **{fixed: length})
                axes.plot(line[on_axis], line["error"], color=colour, label=f"{letter} = {length}")
                axes.plot(points[on_axis], points["error"], "o", color=colour, markersize=4)
            if (floor := line["best linear"][0]) > 1e-9:
                axes.axhline(floor, color="black", lw=0.9, linestyle="--", label="best linear")
            logarithmic(axes, xlabel=xlabel, title=f"{name} labels")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        row[0].set_ylabel("expected squared error")
    rows[0, -1].legend(fontsize=8)
    rows[1, 0].legend(fontsize=8, loc="lower left")
    return picture


@figure(
    "zhang2023/error-lengths",
    "The error against test and training length: formula (4.6), and the layer over every prompt",
    source="Theorem 4.2, drawn",
    judge=judge,
    draw=draw,
    ours="measured",
)
def error_against_lengths(scale: Scale) -> Numbers:
    lam = rotated(SPECTRA[2], seed=1)
    grid = np.unique(np.geomspace(1, 100, 60).round().astype(int)).tolist()
    lines, points = [], []
    for name, labels in LABELS.items():
        moments = labels.moments(lam)
        floor = brackets(moments, lam, 1, 1)["best linear predictor"]
        for on_axis, (_, fixed, _, lengths) in AXES.items():
            for at in ({fixed: a, on_axis: b} for a, b in product(lengths, grid)):
                error = stated_error(moments, lam, at["train"], at["test"])
                row = {"labels": name, "axis": on_axis, **at, "error": error}
                lines.append({**row, "best linear": floor})
        longest = scale.pick(smoke=2, quick=2, paper=3)
        for n, m in product((1, 3, 6, 12, 30, 100), range(1, longest + 1)):
            visited = labels.error(layer_around(inverse_gamma(lam, n)), m, lam)
            formulas = {
                "formula": (n, m),
                "N + 1 for N": (n + 1, m),
                "M + 1 for M": (n, m + 1),
                "N and M exchanged": (m, n),
            }
            stated = {key: stated_error(moments, lam, *at) for key, at in formulas.items()}
            points.append({"labels": name, "train": n, "test": m, "error": visited, **stated})
    caption = (
        "Error of the trained layer on new prompts, d = 2: formula (4.6) as lines, the layer over "
        "every prompt as points, the best linear predictor dashed. Past N of about M longer "
        "training raises the error, because the 1/M term grows as Gamma falls to Lambda."
    )
    tables = {"lines": as_table(lines), "points": as_table(points)}
    return Numbers(tables, caption, {"Lambda": ROTATED[2], "points": len(points)}, [WORDS])
