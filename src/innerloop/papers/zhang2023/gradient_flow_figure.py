"""Gradient flow from starts of several scales, with a fixed and a random covariance.

The paper proves its convergence and draws none of it: the figure is ours.
"""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from innerloop.papers.quantity import INEQUALITY, measured
from innerloop.papers.registry import Numbers, Table, Tables, figure
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.zhang2023.flows import Start, direction
from innerloop.papers.zhang2023.settings import (
    LIMIT,
    against_the_rest,
    exponential,
    fixed,
    gammas,
)

COLOURS = ("#0072b2", "#d55e00", "#009e73")
ROWS = {"fixed": "fixed covariance", "random": "random covariance"}
POINTS, FIRST = 160, 0.02
"""Times in a curve, evenly spread on a logarithmic axis, and the first of them."""


def trajectory(kind: str, start: Start) -> tuple[dict[str, list], dict[str, list]]:
    """One row for each time, what the panels show; and one of constants."""
    flow = start.flow
    last = flow.times[-1].item()
    times = torch.from_numpy(np.geomspace(FIRST, last, POINTS)).clamp(max=last)
    path = flow.at(times)
    u, v, gaps = path[:, 1:].norm(dim=1), path[:, 0], start.gaps(path)
    limits = {name: start.limit(g) for name, g in gammas().items()}
    limit = limits["Gamma as printed"]
    product = limit[:1] * limit[1:]
    # Past this the path is at its end up to rounding, and the ratio is that of the rounding.
    ratios = torch.where(gaps > 1e-15 * gaps[0], start.squared_gradients(path) / gaps, torch.nan)
    first = start.gaps(flow.path[:1])
    paths = {
        "t": times,
        "v": v,
        "|U|": u,
        "distance": (path[:, :1] * path[:, 1:] - product).norm(dim=1) / product.norm(),
        "excess": gaps / first,
        "ratio": ratios,
    }
    label = f"{start.fraction:g} max"
    ends = {f"end, {name}": [(flow.end - at).abs().max().item()] for name, at in limits.items()}
    constants = {"sigma": start.sigma, "constant": start.rate, "limit of v": limit[0].item()}
    return (
        {"covariance": [kind] * POINTS, "start": [label] * POINTS}
        | {name: values.tolist() for name, values in paths.items()},
        {"covariance": [kind], "start": [label]}
        | {name: [value] for name, value in constants.items()}
        | ends,
    )


def of(table: Table, kind: str, start: str, column: str) -> np.ndarray:
    chosen = (np.asarray(table["covariance"]) == kind) & (np.asarray(table["start"]) == start)
    return np.asarray(table[column], dtype=float)[chosen]


def judge(tables: Tables) -> Verdict:
    constants, paths = tables["constants"], tables["paths"]
    ends = measured(
        "largest entry of the difference between where flows end and Eq. 5.9 or C.15 with C.17",
        LIMIT,
        {name: max(map(float, constants[f"end, {name}"])) for name in gammas()},
    )
    exponents = []
    starts = zip(constants["covariance"], constants["start"], constants["constant"], strict=True)
    for kind, start, constant in starts:
        t, excess, ratio = (of(paths, str(kind), str(start), c) for c in ("t", "excess", "ratio"))
        moving = np.isfinite(ratio) & (excess < 1 - 1e-6)
        exponents.append(float(constant) * float((t / -np.log(excess))[moving].max()))
    decay = measured(
        "largest ratio of exponents on the curves, constant times t and fall of the loss",
        INEQUALITY,
        {"the paper's constant": max(exponents), "30 times as much": 30 * max(exponents)},
    )
    return Verdict([*against_the_rest(ends), *against_the_rest(decay)])


def draw(tables: Tables) -> Picture:
    picture = Picture(figsize=(12.5, 5.8))
    grid = picture.subplots(2, 4)
    for panels, (kind, name) in zip(grid, ROWS.items(), strict=True):
        _row(list(panels), kind, tables["paths"], tables["constants"])
        panels[0].set_ylabel(name)
        panels[0].legend(fontsize=7.5, loc="upper left", bbox_to_anchor=(0.0, 0.9))
    titles = (
        r"(a) $v$ (lines), $|U|_F$ (dots)",
        r"(b) $|vU - D|_F\,/\,|D|_F$",
        "(c) loss above its minimum",
        "(d) PL ratio",
    )
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title)
    return picture


def _row(panels: list[Axes], kind: str, table: Table, constants: Table) -> None:
    weights, distance, excess, ratio = panels
    rows = [i for i, name in enumerate(constants["covariance"]) if name == kind]
    for i, colour in zip(rows, COLOURS, strict=False):
        start, rate = str(constants["start"][i]), float(constants["constant"][i])
        t = of(table, kind, start, "t")
        for axes, column in ((weights, "v"), (distance, "distance"), (excess, "excess")):
            label = rf"$\sigma$ = {start}" if axes is weights else None
            values = of(table, kind, start, column)
            axes.plot(t, values, color=colour, linewidth=1.3, label=label)
        weights.plot(t, of(table, kind, start, "|U|"), ":", color=colour, linewidth=2.2)
        ratio.plot(t, of(table, kind, start, "ratio"), color=colour, linewidth=1.3)
        excess.plot(t, np.exp(-rate * t), "--", color=colour, linewidth=0.9)
        ratio.axhline(rate, linestyle="--", color=colour, linewidth=0.9)
    limit = float(constants["limit of v"][rows[0]])
    weights.axhline(limit, color="black", linewidth=0.8)
    weights.annotate("limit", (FIRST, limit), va="bottom", fontsize=8)
    for axes in panels:
        axes.set_xscale("log")
        axes.set_xlabel("time t")
    for axes in (distance, excess, ratio):
        axes.set_yscale("log")
    distance.set_ylim(1e-9, 30)
    excess.set_ylim(1e-16, 10)


@figure(
    "zhang2023/gradient-flow",
    "Gradient flow from balanced starts: past the saddle, then exponentially fast to the stated "
    "minimum",
    source="the flows of Theorems 4.1 and 4.5, Lemmas 5.4 and C.8, drawn",
    judge=judge,
    draw=draw,
    ours="measured",
)
def gradient_flow_figure(scale: Scale) -> Numbers:
    d = scale.pick(smoke=3, quick=3, paper=5)
    settings = {"fixed": (fixed(d), {3: 10, 5: 20}[d]), "random": (exponential((1.0,) * 3), 8)}
    fractions = scale.pick(smoke=[0.1, 0.7], quick=[0.01, 0.1, 0.7], paper=[0.01, 0.1, 0.7])
    paths: dict[str, list] = {}
    constants: dict[str, list] = {}
    for kind, (law, n) in settings.items():
        for seed, fraction in enumerate(fractions):
            start = Start(law, n, direction(law.d, str(20 + seed)), fraction)
            for table, rows in zip((paths, constants), trajectory(kind, start), strict=True):
                for name, values in rows.items():
                    table.setdefault(name, []).extend(values)
    caption = (
        "Gradient flow of one layer, with a fixed covariance (top) and one drawn for every prompt "
        "(bottom), from balanced starts at several fractions of the largest scale that the paper "
        "allows (max). D is the product v U at the minimum. The smaller the start, the longer the "
        "flow stays near the saddle at the origin; then the loss falls exponentially, far faster "
        "than the paper's constants promise (dashed in c and d)."
    )
    return Numbers(
        {"paths": paths, "constants": constants},
        caption,
        {
            "fixed covariance": f"d = {d}, N = {settings['fixed'][1]}",
            "random covariance": "d = 3, N = 8, independent entries of two values, with the "
            "moments of Exponential(1) up to the third",
        },
    )
