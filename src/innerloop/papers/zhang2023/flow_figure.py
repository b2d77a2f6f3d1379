"""Gradient flow from starts of several scales, with a fixed and a random covariance.

The paper proves its convergence and draws none of it: the figure is ours.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from innerloop import theory
from innerloop.papers.common import DTYPE, generator
from innerloop.papers.registry import FigureData, Table, figure
from innerloop.papers.verdict import Check, Scale, Verdict
from innerloop.papers.zhang2023.convergence import spread, worst_ratio
from innerloop.papers.zhang2023.settings import (
    INTO_THE_SADDLE,
    LIMIT,
    RANDOM_LENGTH,
    WHY_LIMIT,
    Run,
    end_error,
    exponential_law,
    fixed_model,
    follow,
    into_the_saddle,
)
from innerloop.theory.flow import SingleLayerFlow

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#aa4499")
GREY = "#888888"
ROWS = {"fixed": "fixed covariance", "random": "random covariance"}
CONTROL_FRACTION = 0.1
POINTS, FIRST = 160, 0.02
"""Times in a curve, evenly spread on a logarithmic axis, and the first of them."""


def trajectory(kind: str, label: str, run: Run, flow: theory.flow.Flow) -> dict[str, list]:
    """One row per time: what the panels show."""
    last = flow.times[-1].item()
    times = torch.from_numpy(np.geomspace(FIRST, last, POINTS)).clamp(max=last)
    theta = flow.at(times)
    product = run.model.product.flatten()
    distance = (theta[:, :1] * theta[:, 1:] - product).norm(dim=1) / product.norm()
    excess = flow.losses(times)
    columns = {
        "t": times,
        "v": theta[:, 0],
        "|U|": theta[:, 1:].norm(dim=1),
        "distance": distance,
        "excess": excess / flow.losses(torch.zeros(1, dtype=DTYPE)),
        "ratio": flow.pl_ratios(0.0, times),
    }
    return {
        "covariance": [kind] * POINTS,
        "start": [label] * POINTS,
        **{name: values.tolist() for name, values in columns.items()},
    }


def of(table: Table, kind: str, start: str, column: str) -> np.ndarray:
    chosen = (np.asarray(table["covariance"]) == kind) & (np.asarray(table["start"]) == start)
    return np.asarray(table[column], dtype=float)[chosen]


def draw_row(panels: list[Axes], kind: str, table: Table, constants: Table) -> None:
    weights, distance, excess, ratio = panels
    rows = [i for i, name in enumerate(constants["covariance"]) if name == kind]
    for i, colour in zip(rows, COLOURS, strict=False):
        start = str(constants["start"][i])
        control = start == "control"
        shade = GREY if control else colour
        t = of(table, kind, start, "t")
        label = "control" if control else rf"$\sigma$ = {start}"
        weights.plot(t, of(table, kind, start, "v"), color=shade, linewidth=1.3, label=label)
        weights.plot(t, of(table, kind, start, "|U|"), ":", color=shade, linewidth=2.2)
        distance.plot(t, of(table, kind, start, "distance"), color=shade, linewidth=1.3)
        excess.plot(t, of(table, kind, start, "excess"), color=shade, linewidth=1.3)
        # Past this the path is at its end up to rounding, and the ratio is that of the rounding.
        moving = of(table, kind, start, "excess") > 1e-15
        ratio.plot(t[moving], of(table, kind, start, "ratio")[moving], color=shade, linewidth=1.3)
        if not control:
            rate = float(constants["constant"][i])
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
    ratio.set_ylim(1e-8, 1e3)


def draw(tables: Mapping[str, Table]) -> Picture:
    picture = Picture(figsize=(12.5, 5.8))
    grid = picture.subplots(2, 4)
    for panels, (kind, name) in zip(grid, ROWS.items(), strict=True):
        draw_row(list(panels), kind, tables["paths"], tables["constants"])
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


@figure(
    "zhang2023/gradient-flow",
    "Gradient flow from balanced starts: past the saddle, then exponentially fast to the stated "
    "minimum",
    source="ours: the flows of Theorems 4.1 and 4.5, Lemmas 5.4 and C.8",
    draw=draw,
)
def gradient_flow_figure(scale: Scale) -> FigureData:
    models = {
        "fixed": fixed_model(scale.pick(smoke=3, quick=3, paper=5)),
        "random": SingleLayerFlow(exponential_law(), RANDOM_LENGTH),
    }
    fractions = scale.pick(smoke=[0.1, 0.7], quick=[0.01, 0.1, 0.7], paper=[0.01, 0.1, 0.7])
    rows: dict[str, list] = {}
    constants: dict[str, list] = {}
    runs, controls = [], []
    for kind, model in models.items():
        for seed, fraction in enumerate(fractions):
            run = follow(model, fraction, seed=20 + seed)
            runs.append(run)
            label = f"{fraction:g} max"
            add(rows, trajectory(kind, label, run, run.flow))
            add(constants, constants_of(kind, label, run))
            if fraction == CONTROL_FRACTION:
                controls.append((kind, run, into_the_saddle(run)))
    for kind, run, flow in controls:
        add(rows, trajectory(kind, "control", run, flow))
        add(constants, constants_of(kind, "control", run))
    slack = [worst_ratio(run, run.flow) for run in runs]
    verdict = Verdict(
        [
            Check(
                "largest entry of the difference between where the flows end and the limits",
                max(run.end_error for run in runs),
                LIMIT,
                min(end_error(model, model.flow(*unbalanced(model))) for model in models.values()),
                WHY_LIMIT,
                "starts that are not balanced, |U(0)|_F = 2 and v(0) = 1",
            ),
            Check(
                "smallest PL ratio on the paths, relative to the paper's constant",
                min(slack),
                1.0,
                max(worst_ratio(run, flow) for _, run, flow in controls),
                "the claim itself",
                INTO_THE_SADDLE,
                at_least=True,
            ),
        ],
        settings={
            "fixed covariance": f"d = {models['fixed'].law.d}, N = {models['fixed'].n}",
            "random covariance": f"d = 3, N = {RANDOM_LENGTH}, independent exponential entries",
            "smallest PL ratio / the paper's constant": spread(slack),
        },
    )
    caption = (
        "Gradient flow of one layer, with a fixed covariance (top) and one drawn for every prompt "
        "(bottom), from balanced starts at several fractions of the largest scale that the paper "
        "allows (max). D is the product v U at the minimum. The smaller the start, the longer the "
        "flow stays near the saddle at the origin; then the loss falls exponentially, far faster "
        "than the paper's constants promise (dashed in c and d). Grey: a start with negative U, "
        "balanced too, from which the flow runs into the saddle; there the PL ratio falls to 0."
    )
    return FigureData({"paths": rows, "constants": constants}, caption, verdict)


def unbalanced(model: SingleLayerFlow) -> tuple[torch.Tensor, torch.Tensor]:
    direction = theory.flow.balanced_direction(model.law.d, generator(20))
    return 2 * direction, torch.tensor(1.0, dtype=DTYPE)


def add(table: dict[str, list], columns: Mapping[str, list]) -> None:
    for name, values in columns.items():
        table.setdefault(name, []).extend(values)


def constants_of(kind: str, label: str, run: Run) -> dict[str, list]:
    return {
        "covariance": [kind],
        "start": [label],
        "sigma": [run.scale],
        "constant": [run.model.pl_constant(run.direction, run.scale)],
        "limit of v": [run.model.limit()[1].item()],
    }
