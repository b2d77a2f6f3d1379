"""The error of Theorem 4.2 against test and training length: formula, and every prompt visited."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from innerloop.papers.common import rotated
from innerloop.papers.quantity import ROUNDING, measured
from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.zhang2023.prompts import LABELS, WORDS
from innerloop.papers.zhang2023.settings import SPECTRA, against_the_rest, gamma
from innerloop.papers.zhang2023.theorem4_2 import brackets, layer_around, stated_error

SHOWN = {"train": (3, 12, 100), "test": (1, 2, 100)}
"""The lengths that get a line of their own; the other length is on the axis."""
TRAIN = (1, 3, 6, 12, 30, 100)
AXIS = {"train": "training length N", "test": "test length M"}
COLOURS = ("#d55e00", "#0072b2", "#009e73")
Row = dict[str, float | int | str]


def judge(tables: Tables) -> Verdict:
    table = {key: np.asarray(column) for key, column in tables["points"].items()}
    cases = measured(
        "largest relative difference from the layer's error over every prompt",
        ROUNDING,
        {
            name: float(np.abs(table[name] / table["error"] - 1).max())
            for name in ("formula", "N + 1 for N", "M + 1 for M", "N and M exchanged")
        },
    )
    return Verdict(against_the_rest(cases))


def draw(tables: Tables) -> Picture:
    picture = Picture(figsize=(10, 5.6))
    rows = picture.subplots(2, 3)
    for row, on_axis in zip(rows, ("test", "train"), strict=True):
        for axes, name in zip(row, LABELS, strict=True):
            _panel(axes, tables, name, on_axis)
        row[0].set_ylabel("expected squared error")
    rows[0, -1].legend(fontsize=8)
    rows[1, 0].legend(fontsize=8, loc="lower left")
    return picture


def _panel(axes: Axes, tables: Tables, name: str, on_axis: str) -> None:
    fixed = {"test": "train", "train": "test"}[on_axis]
    lines, points = (
        {column: np.asarray(values) for column, values in tables[key].items()}
        for key in ("lines", "points")
    )
    for colour, length in zip(COLOURS, SHOWN[fixed], strict=True):
        chosen = (lines["labels"] == name) & (lines["axis"] == on_axis) & (lines[fixed] == length)
        label = f"{'N' if fixed == 'train' else 'M'} = {length}"
        axes.plot(lines[on_axis][chosen], lines["error"][chosen], color=colour, label=label)
        chosen = (points["labels"] == name) & (points[fixed] == length)
        x, y = points[on_axis][chosen], points["error"][chosen]
        axes.plot(x, y, "o", color=colour, markersize=4)
    floor = float(lines["best linear"][lines["labels"] == name][0])
    if floor > 1e-9:
        axes.axhline(floor, color="black", linewidth=0.9, linestyle="--", label="best linear")
    axes.set(xscale="log", yscale="log", xlabel=AXIS[on_axis], title=f"{name} labels")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


@figure(
    "zhang2023/error-lengths",
    "The error of the trained layer against the lengths of test and training prompts: formula "
    "(4.6), and the layer's own average over every prompt",
    source="Theorem 4.2, drawn",
    judge=judge,
    draw=draw,
    ours="measured",
)
def error_against_lengths(scale: Scale) -> Numbers:
    lam = rotated(SPECTRA[2], seed=1)
    grid = np.unique(np.geomspace(1, 100, 60).round().astype(int)).tolist()
    lines: list[Row] = []
    points: list[Row] = []
    for name, labels in LABELS.items():
        moments = labels.moments(lam)
        floor = brackets(moments, lam, 1, 1)["best linear predictor"]
        for on_axis, fixed in (("test", "train"), ("train", "test")):
            for length, other in product(SHOWN[fixed], grid):
                at = {fixed: length, on_axis: other}
                error = stated_error(moments, lam, at["train"], at["test"])
                row = {"labels": name, "axis": on_axis, **at, "error": error}
                lines.append({**row, "best linear": floor})
        longest = scale.pick(smoke=2, quick=2, paper=3)
        for train, test in product(TRAIN, range(1, longest + 1)):
            layer = layer_around(torch.linalg.inv(gamma(lam, train)))
            formulas = {
                "formula": (train, test),
                "N + 1 for N": (train + 1, test),
                "M + 1 for M": (train, test + 1),
                "N and M exchanged": (test, train),
            }
            stated = {key: stated_error(moments, lam, n, m) for key, (n, m) in formulas.items()}
            row = {"labels": name, "train": train, "test": test}
            points.append({**row, "error": labels.error(layer, test, lam), **stated})
    tables = {
        key: {column: [row[column] for row in rows] for column in rows[0]}
        for key, rows in (("lines", lines), ("points", points))
    }
    caption = (
        "Error of the trained layer on new prompts, d = 2. Lines: formula (4.6). Points: the layer "
        "itself, averaged over every prompt, where M is small enough. Top: against the test length "
        "M for three training lengths N. Bottom: against N for three M; past N of about M longer "
        "training raises the error again, because the 1/M term grows as Gamma falls to Lambda. "
        "Dashed: the best linear predictor."
    )
    settings = {"Lambda": f"eigenvalues {SPECTRA[2]}, rotated", "points": len(points)}
    return Numbers(tables, caption, settings, [WORDS])
