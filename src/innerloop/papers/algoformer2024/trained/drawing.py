"""Panels that Figures 2 to 5 share, and the names of what they show."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import LogLocator, NullFormatter

from innerloop.papers.algoformer2024.trained.measuring import LONGER, MODEL
from innerloop.papers.plots import running_mean, where
from innerloop.papers.registry import Tables

BLUE, ORANGE, GREEN, PINK, YELLOW = "#0072b2", "#d55e00", "#009e73", "#aa4499", "#e69f00"
GREY, BLACK = "#777777", "#333333"
NAMES = {
    "algoformer": "AlgoFormer, 1 + 1 + 1 layers",
    "looped": "looped, 1 layer",
    "looped-3-layers": "looped, 3 layers",
    "standard-3-layers": "standard, 3 layers",
    "standard-10-layers": "standard, 10 layers",
    "standard": "standard, 12 layers",
    "standard-22-layers": "standard, 22 layers",
}
COLOURS = {
    "algoformer": BLUE,
    "looped": ORANGE,
    "looped-3-layers": YELLOW,
    "standard-3-layers": PINK,
    "standard-10-layers": GREEN,
    "standard": GREEN,
    "standard-22-layers": BLACK,
}
REFERENCES = {
    "feature-ridge": ("least squares on true features", BLACK, "--"),
    "ols": ("least squares on x", GREY, "--"),
}
TRAINING_LOSS = r"training loss / E$\,|$target$|^2$"
ROUNDING = 1e-9
"""Of errors in float32, which exact learners reach: a logarithmic axis has no 0."""


def seeds_band(axes: Axes, x: np.ndarray, values: np.ndarray, colour: str, label: str) -> None:
    """The mean over seeds, and what lies between the lowest and the highest."""
    axes.plot(x, values.mean(0), "o-", markersize=2.5, color=colour, label=label)
    axes.fill_between(x, values.min(0), values.max(0), color=colour, alpha=0.2, linewidth=0)


def errors_band(
    axes: Axes, x: np.ndarray, mean: np.ndarray, error: np.ndarray, colour: str, label: str
) -> None:
    """Means, and two standard errors to each side."""
    axes.plot(x, mean, "o-", markersize=2.5, color=colour, label=label)
    # On a logarithmic axis a band that reaches 0 would fill everything below.
    low = np.maximum(mean - 2 * error, mean / 2)
    axes.fill_between(x, low, mean + 2 * error, color=colour, alpha=0.2, linewidth=0)


def curves(axes: Axes, tables: Tables, ending: str = "") -> None:
    """Errors against the number of examples, with the task's reference learners as far as the
    models reach."""
    lowest = 1.0
    for model in shown(tables, ending):
        rows = where(tables["curve"], model=model + ending, learner=MODEL)
        examples = np.unique(rows["examples"])
        values = rows["mean"].astype(float).reshape(-1, len(examples))
        seeds_band(axes, examples, values, COLOURS[model], NAMES[model])
        lowest = min(lowest, values.min())
    first = shown(tables, ending)[0] + ending
    for learner, (label, colour, style) in REFERENCES.items():
        rows = where(tables["curve"], model=first, learner=learner, seed=0)
        if len(rows["mean"]):
            drawn = np.maximum(rows["mean"].astype(float), ROUNDING)
            axes.plot(rows["examples"], drawn, style, color=colour, linewidth=1.3, label=label)
    one(axes)
    axes.set(xlabel="examples in context", yscale="log")
    axes.set_ylim(bottom=lowest / 2, top=2)
    plain_numbers(axes.yaxis)
    axes.set_ylabel(r"squared error / E$\,|$target$|^2$")


def loops(axes: Axes, tables: Tables) -> None:
    """Errors after all examples, against the number of loops."""
    for model in shown(tables):
        rows = where(tables["loops"], model=model)
        if len(rows["loops"]):
            counts = np.unique(rows["loops"])
            values = rows["mean"].astype(float).reshape(-1, len(counts))
            seeds_band(axes, counts, values, COLOURS[model], NAMES[model])
            trained_loops(axes, int(counts[-1]) // LONGER)
    one(axes)
    logarithmic(axes, xlabel="loops", ylabel="error after all examples")


def training(axes: Axes, tables: Tables) -> None:
    """Training losses against what was spent: the mean of ten records of every seed."""
    for model in shown(tables):
        steps, losses = smoothed(tables, model)
        spent = tera(where(tables["costs"], model=model)) * np.maximum(steps, 1) / steps[-1]
        axes.plot(spent, losses.mean(0), color=COLOURS[model], label=NAMES[model])
    logarithmic(axes, xlabel="training, $10^{12}$ operations", ylabel=TRAINING_LOSS)


def convergence(axes: Axes, tables: Tables, colours: Mapping[str, str]) -> None:
    """Training losses of these models against the step, a line for every seed."""
    for model, colour in colours.items():
        steps, losses = smoothed(tables, model)
        axes.plot(steps, losses.T, color=colour, linewidth=0.8)
    axes.set(xlabel="step of training", yscale="log")
    plain_numbers(axes.yaxis)


def smoothed(tables: Tables, model: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and the training losses of every seed over E |target|^2, means of ten records."""
    costs, rows = where(tables["costs"], model=model), where(tables["training"], model=model)
    seeds = len(np.unique(rows["seed"]))
    steps, losses = (rows[k].astype(float).reshape(seeds, -1) for k in ("step", "loss"))
    unit = costs["E target^2"].astype(float).mean()
    smooth = np.array([running_mean(one) for one in losses / unit])
    return steps[0, -smooth.shape[1] :], smooth


def tera(costs: Mapping[str, np.ndarray]) -> float:
    """Floating-point operations of a training, in 10^12."""
    return float(costs["training FLOPs"].astype(float).mean() / 1e12)


def shown(tables: Tables, ending: str = "") -> list[str]:
    """The architectures of the trainings whose names end so, in the order of `NAMES`."""
    return [name for name in NAMES if name + ending in tables["costs"]["model"]]


def logarithmic(axes: Axes, **labels: str) -> None:
    """Both axes, with plain numbers."""
    axes.set(xscale="log", yscale="log", **labels)
    for axis in (axes.xaxis, axes.yaxis):
        plain_numbers(axis)


def plain_numbers(axis: Axis) -> None:
    """On a logarithmic axis: 1, 2, 5, 10, or powers of ten if it is long."""
    low, high = axis.get_view_interval()
    if high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def one(axes: Axes) -> None:
    axes.axhline(1.0, color=GREY, linewidth=0.8, linestyle=":")


def trained_loops(axes: Axes, loops: int, colour: str = GREY) -> None:
    axes.axvline(loops, color=colour, linestyle=":", linewidth=0.8)
