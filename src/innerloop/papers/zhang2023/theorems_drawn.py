"""Theorem 4.2, and the flows of Theorems 4.1 and 4.5, as figures; the paper has none of them."""

from itertools import product
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import LogLocator

from innerloop.papers.common import rotated
from innerloop.papers.plots import as_table, where
from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.zhang2023 import settings
from innerloop.papers.zhang2023.drawing import logarithmic
from innerloop.papers.zhang2023.flows import Start, direction
from innerloop.papers.zhang2023.prompts import LABELS, WORDS, layer_around
from innerloop.papers.zhang2023.settings import as_stated
from innerloop.papers.zhang2023.theorem4_2 import brackets, stated_error

COLOURS = ("#0072b2", "#d55e00", "#009e73")
AXES = {
    "test": ("test length M", "train", "N", (3, 12, 100)),
    "train": ("training length N", "test", "M", (1, 2, 100)),
}
"""What is on the axis, and the other length, which has a line for each of these."""
FIRST = 0.02
"""The first time of a flow in a curve."""


def judge_errors(tables: Tables) -> Verdict:
    points = where(tables["points"])
    off = {
        name: np.abs(points[name] / points["error"] - 1).max()
        for name in ("formula", "N + 1 for N", "M + 1 for M", "N and M exchanged")
    }
    name = "largest relative difference from the layer's error over every prompt"
    return Verdict(as_stated(name, off.pop("formula"), off))


def draw_errors(tables: Tables) -> Picture:
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
    judge=judge_errors,
    draw=draw_errors,
    ours="measured",
)
def error_against_lengths(scale: Scale) -> Numbers:
    lam = rotated(settings.SPECTRA[2], seed=1)
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
            visited = labels.error(layer_around(settings.inverse_gamma(lam, n)), m, lam)
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
    return Numbers(tables, caption, {"Lambda": settings.ROTATED[2], "points": len(points)}, [WORDS])


def trajectory(kind: str, start: Start) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """One row for each time, what the panels show; and one of constants."""
    flow, name = start.flow, {"covariance": kind, "start": f"{start.fraction:g} max"}
    last = flow.times[-1].item()
    times = torch.from_numpy(np.geomspace(FIRST, last, 160)).clamp(max=last)
    path, gaps = flow.at(times), flow.losses(times)
    limits = {case: start.limit(g) for case, g in settings.gammas().items()}
    limit = limits["Gamma as printed"]
    target = limit[:1] * limit[1:]
    # Past this the path is at its end up to rounding, and the ratio is that of the rounding.
    ratios = torch.where(gaps > 1e-15 * gaps[0], flow.pl_ratios(0.0, times), torch.nan)
    columns = {
        "t": times,
        "v": path[:, 0],
        "|U|": path[:, 1:].norm(dim=1),
        "distance": (path[:, :1] * path[:, 1:] - target).norm(dim=1) / target.norm(),
        "excess": gaps / flow.loss(flow.path[0]),
        "ratio": ratios,
    }
    rows = torch.stack(list(columns.values()), dim=1).tolist()
    ends = {case: (flow.end - at).abs().max().item() for case, at in limits.items()}
    constants = name | {"constant": start.rate, "limit of v": limit[0].item()} | ends
    return [name | dict(zip(columns, row, strict=True)) for row in rows], constants


def judge_flows(tables: Tables) -> Verdict:
    constants, exponents = where(tables["constants"]), []
    starts = zip(*(constants[c] for c in ("covariance", "start", "constant")), strict=True)
    for kind, start, constant in starts:
        path = where(tables["paths"], covariance=kind, start=start)
        moving = np.isfinite(path["ratio"]) & (path["excess"] < 1 - 1e-6)
        exponents.append(constant * (path["t"] / -np.log(path["excess"]))[moving].max())
    (_, right), *wrong = ((case, constants[case].max()) for case in settings.gammas())
    name = "largest entry of the difference between where flows end and Eq. 5.9 or C.15 with C.17"
    ends = as_stated(name, right, dict(wrong), tolerance=settings.LIMIT)
    decay = "largest ratio of exponents on the curves, constant times t and fall of the loss"
    return Verdict([*ends, *settings.tight(decay, max(exponents), 30)])


def draw_flows(tables: Tables) -> Picture:
    picture = Picture(figsize=(12.5, 5.8))
    grid = picture.subplots(2, 4)
    titles = r"$v$ (lines), $|U|_F$ (dots)", r"$|vU - D|_F\,/\,|D|_F$", "loss above its minimum"
    for axes, letter, title in zip(grid[0], "abcd", (*titles, "PL ratio"), strict=True):
        axes.set_title(f"({letter}) {title}")
    for panels, kind in zip(grid, ("fixed", "random"), strict=True):
        weights, distance, excess, ratio = panels
        constants = where(tables["constants"], covariance=kind)
        rates = dict(zip(constants["start"], constants["constant"], strict=True))
        for (start, rate), colour in zip(rates.items(), COLOURS, strict=False):
            path = where(tables["paths"], covariance=kind, start=start)
            weights.plot(path["t"], path["v"], color=colour, label=rf"$\sigma$ = {start}")
            weights.plot(path["t"], path["|U|"], ":", color=colour, linewidth=2.2)
            distance.plot(path["t"], path["distance"], color=colour)
            excess.plot(path["t"], path["excess"], color=colour)
            excess.plot(path["t"], np.exp(-rate * path["t"]), "--", color=colour, linewidth=0.9)
            ratio.plot(path["t"], path["ratio"], color=colour)
            ratio.axhline(rate, linestyle="--", color=colour, linewidth=0.9)
        limit = constants["limit of v"][0]
        weights.axhline(limit, color="black", linewidth=0.8)
        weights.annotate("limit", (FIRST, limit), va="bottom", fontsize=8)
        for axes in panels:
            axes.set(xscale="log", xlabel="time t", yscale="linear" if axes is weights else "log")
        distance.set_ylim(1e-9, 30)
        excess.set_ylim(1e-16, 10)
        weights.set_ylabel(f"{kind} covariance")
        weights.legend(fontsize=7.5, loc="upper left", bbox_to_anchor=(0.0, 0.9))
    return picture


@figure(
    "zhang2023/gradient-flow",
    "Balanced starts: past the saddle, then exponentially fast to the stated minimum",
    source="the flows of Theorems 4.1 and 4.5, Lemmas 5.4 and C.8, drawn",
    judge=judge_flows,
    draw=draw_flows,
    ours="measured",
)
def gradient_flow_figure(scale: Scale) -> Numbers:
    d = scale.pick(smoke=3, quick=3, paper=5)
    laws = {"fixed": settings.fixed(d), "random": settings.exponential((1.0,) * 3)}
    n = {"fixed": {3: 10, 5: 20}[d], "random": 8}
    fractions = [0.1, 0.7] if scale is Scale.SMOKE else [0.01, 0.1, 0.7]
    found = [
        trajectory(kind, Start(law, n[kind], direction(law.d, str(20 + seed)), fraction))
        for kind, law in laws.items()
        for seed, fraction in enumerate(fractions)
    ]
    paths, constants = [row for rows, _ in found for row in rows], [row for _, row in found]
    caption = (
        "Gradient flow of one layer, with a fixed covariance (top) and one drawn for every prompt "
        "(bottom), from balanced starts at fractions of the largest scale that the paper allows "
        "(max); D is v U at the minimum. Small starts stay near the saddle at the origin for long; "
        "then the loss falls far faster than the paper's constants promise (dashed)."
    )
    random = "d = 3, N = 8, independent entries with three moments of Exponential(1)"
    about = {"fixed covariance": f"d = {d}, N = {n['fixed']}", "random covariance": random}
    return Numbers({"paths": as_table(paths), "constants": as_table(constants)}, caption, about)
