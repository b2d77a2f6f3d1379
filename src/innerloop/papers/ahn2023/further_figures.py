"""The authors' two further comparisons: loss against the number of layers, and against n.

GD, preconditioned GD and GD++ are drawn with their best steps, whose losses are exact. The trained
transformer has weights (13) and is trained as for Figure 3.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import NullFormatter, ScalarFormatter
from torch import Tensor

from innerloop import theory
from innerloop.papers.ahn2023.settings import LAYERS, SPARSE_N, D, experiment
from innerloop.papers.ahn2023.training import Trained, grown, off_ray_excess
from innerloop.papers.common import DTYPE, generator
from innerloop.papers.registry import FigureData, Table, figure
from innerloop.papers.verdict import Check, Scale, Verdict
from innerloop.tasks import LinearRegression
from innerloop.training import ControlledWishart

LINES = {
    "GD": ("#D55E00", "--", "gradient descent, best steps"),
    "preconditioned GD": ("#E69F00", "-.", r"$\Sigma^{-1}$-preconditioned, best steps"),
    "GD++": ("#000000", "-", r"GD++ with $\Sigma^{-1}$, best known (exact)"),
}


def best_plain_descent(task: LinearRegression, layers: int) -> float:
    """The least exact loss of `layers` gradient steps without preconditioner."""
    identity = torch.eye(task.d, dtype=DTYPE)

    def risk(steps: Tensor) -> Tensor:
        preconditioners = steps[:, None, None] * identity
        return theory.linear.layered_risk(
            preconditioners, task.covariance, task.n, task.prior, symmetric=True
        )

    starts = (0.3 + torch.rand(layers, generator=generator(s), dtype=DTYPE) for s in range(6))
    return min(theory.flow.descend(risk, start)[0] for start in starts)


def trained_loss(task: LinearRegression, layers: int, scale: Scale) -> tuple[float, float]:
    """A trained transformer's loss (exact on the ray, the rest sampled), and the sampled part."""
    model, history = grown(task, layers, generator(0))
    run = Trained(0, task, model, history)
    draws = scale.pick(smoke=2_000, quick=20_000, paper=100_000)
    ray = ControlledWishart(task, draws).ray_risk(model).item()
    excess = off_ray_excess(run, draws).mean
    return ray + excess, excess


def compare(settings: list[tuple[int, int]], scale: Scale) -> dict[str, list[float]]:
    """One row per (layers, n): the losses of all four."""
    rows: dict[str, list[float]] = {}
    for layers, n in settings:
        task = experiment(n, seed=0)
        starts = scale.pick(smoke=60, quick=300, paper=1000)
        transformed = theory.linear.transformed_optimum(
            layers, n, D, starts=starts, generator=generator(0)
        )
        loss, off_ray = trained_loss(task, layers, scale)
        row = {
            "layers": layers,
            "n": n,
            "GD": best_plain_descent(task, layers),
            "preconditioned GD": theory.linear.untied_optimum(layers, n, D).risk,
            "GD++": transformed.risk,
            "GD++ hits": transformed.hits,
            "trained": loss,
            "trained, off the ray": off_ray,
        }
        for key, value in row.items():
            rows.setdefault(key, []).append(value)
    return rows


def draw(tables: Mapping[str, Table], x: str, label: str) -> Picture:
    table = tables["losses"]
    picture = Picture(figsize=(6, 3.8))
    axes = picture.subplots()
    for name, (colour, style, text) in LINES.items():
        axes.plot(table[x], table[name], style, color=colour, label=text)
    axes.plot(table[x], table["trained"], "o", color="#0072B2", label="trained transformer")
    axes.set(xlabel=label, ylabel=r"expected loss ($E\,y^2 = 5$)", yscale="log")
    if x == "n":
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_xticks([float(v) for v in table[x]])
    axes.legend(fontsize=8)
    return picture


def judge(table: dict[str, list[float]]) -> Verdict:
    """Trained transformers are never worse than the best preconditioned GD, never below GD++."""
    many = [i for i, layers in enumerate(table["layers"]) if layers > 1]
    to_gd = [table["trained"][i] / table["preconditioned GD"][i] for i in many]
    below = min(t / g for t, g in zip(table["trained"], table["GD++"], strict=True))
    plain_to_gd = [table["GD"][i] / table["preconditioned GD"][i] for i in many]
    return Verdict(
        [
            Check(
                "trained loss relative to the best preconditioned GD, largest over settings with "
                "two layers or more",
                max(to_gd),
                1.0,
                min(plain_to_gd),
                "the transformer contains preconditioned GD: above 1 it would be badly trained",
                "gradient descent without preconditioner",
            ),
            Check(
                "trained loss relative to the best known GD++, smallest over settings",
                below,
                1 - 1e-3,
                min(g / p for g, p in zip(table["GD++"], table["preconditioned GD"], strict=True)),
                "below 1 the line would not be an optimum; a thousandth for the sampled part",
                "GD++ relative to the best preconditioned GD",
                at_least=True,
            ),
        ],
        settings={
            "d": D,
            "Sigma": "as in Figure 1, seed 0",
            "trained / best known GD++": ", ".join(
                f"{t / g:.3f}" for t, g in zip(table["trained"], table["GD++"], strict=True)
            ),
            "GD++ search hits": ", ".join(f"{h:.0f}" for h in table["GD++ hits"]),
        },
    )


@figure(
    "ahn2023/layers",
    "More layers: the trained transformer follows GD++, far below gradient descent",
    source="the authors' code, loss against layers",
    draw=lambda tables: draw(tables, "layers", "layers"),
)
def against_layers(scale: Scale) -> FigureData:
    depths = scale.pick(smoke=[1, 2], quick=[1, 2, 3, 4], paper=[1, 2, 3, 4])
    table = compare([(layers, SPARSE_N) for layers in depths], scale)
    caption = (
        f"Expected loss against the number of layers, n = {SPARSE_N}. Lines are exact; points are "
        "trained transformers, whose loss is exact on the ray and sampled off it. "
        "Growing a trained "
        "stack layer by layer can end at a local minimum: the settings list how far above the line."
    )
    return FigureData({"losses": table}, caption, judge(table))


@figure(
    "ahn2023/context-length",
    "More examples: the trained transformer follows GD++, far below gradient descent",
    source="the authors' code, loss against n",
    draw=lambda tables: draw(tables, "n", "examples in the prompt, n"),
)
def against_context_length(scale: Scale) -> FigureData:
    lengths = scale.pick(smoke=[20], quick=[5, 10, 20, 40], paper=[5, 8, 10, 15, 20, 30, 40, 80])
    layers = scale.pick(smoke=2, quick=LAYERS, paper=LAYERS)
    table = compare([(layers, n) for n in lengths], scale)
    caption = (
        f"Expected loss against the number of examples, {layers} layers. Lines are exact; "
        f"points are "
        "trained transformers, whose loss is exact on the ray and sampled off it."
    )
    return FigureData({"losses": table}, caption, judge(table))
