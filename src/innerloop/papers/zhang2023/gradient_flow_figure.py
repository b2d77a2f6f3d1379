"""Gradient flow from starts of several scales, of which the paper draws nothing."""

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure as Picture

from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.zhang2023.drawing import as_table, where
from innerloop.papers.zhang2023.flows import Start, direction
from innerloop.papers.zhang2023.settings import LIMIT, as_printed, exponential, fixed, gammas, tight

COLOURS = ("#0072b2", "#d55e00", "#009e73")
FIRST = 0.02
"""The first time in a curve."""


def trajectory(kind: str, start: Start) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """One row for each time, what the panels show; and one of constants."""
    flow, name = start.flow, {"covariance": kind, "start": f"{start.fraction:g} max"}
    last = flow.times[-1].item()
    times = torch.from_numpy(np.geomspace(FIRST, last, 160)).clamp(max=last)
    path, gaps = flow.at(times), flow.losses(times)
    limits = {case: start.limit(g) for case, g in gammas().items()}
    limit = limits["Gamma as printed"]
    product = limit[:1] * limit[1:]
    # Past this the path is at its end up to rounding, and the ratio is that of the rounding.
    ratios = torch.where(gaps > 1e-15 * gaps[0], flow.pl_ratios(0.0, times), torch.nan)
    columns = {
        "t": times,
        "v": path[:, 0],
        "|U|": path[:, 1:].norm(dim=1),
        "distance": (path[:, :1] * path[:, 1:] - product).norm(dim=1) / product.norm(),
        "excess": gaps / flow.loss(flow.path[0]),
        "ratio": ratios,
    }
    rows = torch.stack(list(columns.values()), dim=1).tolist()
    ends = {case: (flow.end - at).abs().max().item() for case, at in limits.items()}
    constants = name | {"constant": start.rate, "limit of v": limit[0].item()} | ends
    return [name | dict(zip(columns, row, strict=True)) for row in rows], constants


def judge(tables: Tables) -> Verdict:
    constants, exponents = where(tables["constants"]), []
    starts = zip(*(constants[c] for c in ("covariance", "start", "constant")), strict=True)
    for kind, start, constant in starts:
        path = where(tables["paths"], covariance=kind, start=start)
        moving = np.isfinite(path["ratio"]) & (path["excess"] < 1 - 1e-6)
        exponents.append(constant * (path["t"] / -np.log(path["excess"]))[moving].max())
    (_, right), *wrong = ((case, constants[case].max()) for case in gammas())
    name = "largest entry of the difference between where flows end and Eq. 5.9 or C.15 with C.17"
    ends = as_printed(name, right, dict(wrong), tolerance=LIMIT)
    decay = "largest ratio of exponents on the curves, constant times t and fall of the loss"
    return Verdict([*ends, *tight(decay, max(exponents), 30)])


def draw(tables: Tables) -> Picture:
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
    judge=judge,
    draw=draw,
    ours="measured",
)
def gradient_flow_figure(scale: Scale) -> Numbers:
    d = scale.pick(smoke=3, quick=3, paper=5)
    laws = {"fixed": (fixed(d), {3: 10, 5: 20}[d]), "random": (exponential((1.0,) * 3), 8)}
    fractions = [0.1, 0.7] if scale is Scale.SMOKE else [0.01, 0.1, 0.7]
    found = [
        trajectory(kind, Start(law, n, direction(law.d, str(20 + seed)), fraction))
        for kind, (law, n) in laws.items()
        for seed, fraction in enumerate(fractions)
    ]
    paths, constants = [row for rows, _ in found for row in rows], [row for _, row in found]
    caption = (
        "Gradient flow of one layer, with a fixed covariance (top) and one drawn for every prompt "
        "(bottom), from balanced starts at fractions of the largest scale that the paper allows "
        "(max); D is v U at the minimum. Small starts stay near the saddle at the origin for long; "
        "then the loss falls far faster than the paper's constants promise (dashed)."
    )
    settings = {
        "fixed covariance": f"d = {d}, N = {laws['fixed'][1]}",
        "random covariance": "d = 3, N = 8, independent, with three moments of Exponential(1)",
    }
    tables = {"paths": as_table(paths), "constants": as_table(constants)}
    return Numbers(tables, caption, settings)
