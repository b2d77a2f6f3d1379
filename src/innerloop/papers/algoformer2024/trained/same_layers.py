"""Section 5.3: AlgoFormer against standard transformers with as many layers, on all three tasks."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure as Picture

from innerloop.papers.algoformer2024 import trainings
from innerloop.papers.algoformer2024.trained.comparing import together
from innerloop.papers.algoformer2024.trained.costs import with_seconds
from innerloop.papers.algoformer2024.trained.drawing import (
    COLOURS,
    NAMES,
    logarithmic,
    shown,
    tera,
)
from innerloop.papers.algoformer2024.trained.figure2 import STUDIES, compared
from innerloop.papers.algoformer2024.trained.measuring import MODEL, UNTRAINED
from innerloop.papers.plots import as_rows, as_table, where
from innerloop.papers.registry import Numbers, Table, Tables, figure
from innerloop.papers.verdict import Check, Scale, Verdict

KEPT = ("costs", "training", "blocks")
TITLES = dict(
    zip(trainings.TASKS, ("(a) representation", "(b) AR(q)", "(c) chain of thought"), strict=True)
)
LAST_SHARE = 0.1
"""Of the recorded training losses, whose mean is the loss at that point."""


def of_panel(tables: Tables, panel: str) -> dict[str, Table]:
    """The tables of one task."""
    return {
        name: {k: v.tolist() for k, v in where(tables[name], panel=panel).items()} for name in KEPT
    }


def judge(tables: Tables) -> Verdict:
    """Below standard transformers of as many layers with weights of their own, and of as many
    layers in all, on every task."""
    printed: list[Check] = []
    remarks = []
    for panel, title in TITLES.items():
        own = of_panel(tables, panel)
        rivals = [name for name in shown(own) if name.startswith("standard-")]
        printed += [
            replace(c, case=f"{c.case}, {title}") for c in compared(own, "algoformer", rivals)
        ]
        remarks += [at_equal_cost(own, rival, title) for rival in rivals]
    early = (
        "At equal cost, the training that is longer in all is taken before its end, and losses "
        "fall fastest at the end of the schedule."
    )
    return Verdict(printed, remarks=[*remarks, early])


def at_equal_cost(tables: Tables, rival: str, title: str) -> str:
    """Training losses where as many FLOPs, or seconds, had been spent on both."""
    parts = []
    for what in ("training FLOPs", "seconds"):
        mine, theirs = (
            where(tables["costs"], model=name)[what].astype(float).mean()
            for name in ("algoformer", rival)
        )
        spent = min(mine, theirs)
        ours = loss_at(tables, "algoformer", spent / mine)
        other = loss_at(tables, rival, spent / theirs)
        parts.append(
            f"{ours / other:.2f} at equal {what} ({mine / theirs:.2g} times as many in all)"
        )
    return (
        f"{title}: AlgoFormer's training loss over that of {NAMES[rival]} is {' and '.join(parts)}."
    )


def loss_at(tables: Tables, model: str, share: float) -> float:
    """The mean training loss, over seeds and the last records before this share of the steps."""
    rows = where(tables["training"], model=model)
    seeds = len(np.unique(rows["seed"]))
    steps, losses = (rows[k].astype(float).reshape(seeds, -1) for k in ("step", "loss"))
    until = max(1, int((steps[0] <= share * steps[0, -1]).sum()))
    first = max(0, until - math.ceil(LAST_SHARE * losses.shape[1]))
    return float(losses[:, first:until].mean())


def draw(tables: Tables) -> Picture:
    picture = Picture(figsize=(10.5, 3.9))
    for axes, (panel, title) in zip(picture.subplots(1, 3), TITLES.items(), strict=True):
        own = of_panel(tables, panel)
        for model in shown(own):
            costs = where(own["costs"], model=model)
            spent = tera(costs)
            rows = where(own["blocks"], model=model, learner=MODEL)
            means = rows["last"].astype(float).reshape(len(np.unique(rows["seed"])), -1).mean(1)
            label = (
                f"{NAMES[model]}: {costs['parameters'].astype(float).mean() / 1000:.0f}k weights"
            )
            axes.plot([spent] * len(means), means, "o", color=COLOURS[model], label=label)
            axes.plot(spent, means.mean(), "_", color=COLOURS[model], markersize=16)
        logarithmic(axes, title=title, xlabel="training, $10^{12}$ operations")
    picture.axes[0].set_ylabel("error after all examples")
    handles = picture.axes[0].get_legend_handles_labels()
    picture.legend(*handles, loc="outside lower center", ncols=3, fontsize=8)
    return picture


@figure(
    "algoformer2024/same-layers",
    "Even with the same number of layers, AlgoFormer exhibits better performance than the standard "
    "transformer in those tasks",
    source="section 5.3",
    judge=judge,
    draw=draw,
    study=replace(STUDIES["figure2a"], beside=(STUDIES["figure2b"], STUDIES["figure2c"])),
)
def same_layers(scale: Scale) -> Numbers:
    results = {panel: study.results(scale) for panel, study in STUDIES.items()}
    parts = {panel: together(found, *KEPT) for panel, found in results.items()}
    for panel, part in parts.items():
        part["costs"] = with_seconds(part["costs"], results[panel])
    tables = {
        name: as_table(
            {"panel": panel, **row}
            for panel, part in parts.items()
            for row in as_rows(part[name])
            if row.get("learner", MODEL) in (MODEL, UNTRAINED)
        )
        for name in KEPT
    }
    caption = (
        "The error after all examples of every training of Figure 2 (lines: means over seeds), "
        "against the floating-point operations of the training; the number of weights stands "
        "beside each. Three layers have AlgoFormer's parameters, ten are as many as it applies."
    )
    return Numbers(tables, caption)
