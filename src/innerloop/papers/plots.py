"""Tables and panels that figures of several papers share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from innerloop.papers.registry import Table
from innerloop.training import History


def as_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Rows with the same keys, as columns."""
    every = list(rows)
    return {name: [row[name] for row in every] for name in every[0]}


def as_rows(table: Table, **kept: object) -> list[dict[str, Any]]:
    """The rows of a table that have these values."""
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    return [row for row in rows if all(row[name] == value for name, value in kept.items())]


def where(table: Table, **kept: object) -> dict[str, np.ndarray]:
    """The columns as arrays, in the rows that have these values."""
    columns = {name: np.asarray(column) for name, column in table.items()}
    chosen = [columns[name] == value for name, value in kept.items()]
    return {k: v[np.logical_and.reduce(chosen)] if kept else v for k, v in columns.items()}


def running_mean(values: np.ndarray, most: int = 10) -> np.ndarray:
    """The mean of each value and of those before it, `most` in all, from where there are so many:
    the losses of single batches as a line that can be read."""
    window = min(most, len(values))
    return np.convolve(values, np.ones(window) / window, "valid")


def history_table(runs: Mapping[str, Sequence[tuple[int, History]]]) -> Table:
    """One row per recorded iteration: which training, seed, step, loss and every distance."""
    columns: dict[str, list[float | int | str]] = {}
    for name, histories in runs.items():
        for seed, history in histories:
            for row in range(len(history)):
                values: dict[str, float | int | str] = {"training": name, "seed": seed}
                for key, column in history.columns.items():
                    if isinstance(column[row], list):
                        values |= {f"{key} {i}": v for i, v in enumerate(column[row])}
                    else:
                        values[key] = column[row]
                for key, value in values.items():
                    columns.setdefault(key, []).append(value)
    return columns


def plot_runs(
    axes: Axes, table: Table, training: str, column: str, colour: str, label: str, style: str = "-"
) -> None:
    """Mean over the seeds, their range shaded; a finished run keeps its last value."""
    chosen = np.asarray(table["training"]) == training
    seeds = np.asarray(table["seed"])[chosen]
    steps, values = (np.asarray(table[c], dtype=float)[chosen] for c in ("step", column))
    grid = np.arange(int(steps.max()) + 1)
    curves = np.stack(
        [np.interp(grid, steps[seeds == s], values[seeds == s]) for s in np.unique(seeds)]
    )
    axes.plot(grid, curves.mean(0), style, color=colour, label=label)
    axes.fill_between(grid, curves.min(0), curves.max(0), color=colour, alpha=0.15, linewidth=0)


def heatmaps(table: Table, names: Sequence[str]) -> Picture:
    """The named matrices side by side, on one colour scale each, centred at 0."""
    picture = Picture(figsize=(2.6 * len(names) + 0.6, 2.9))
    for axes, name in zip(picture.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        chosen = np.asarray(table["matrix"]) == name
        d = round(chosen.sum() ** 0.5)
        values = np.asarray(table["value"], dtype=float)[chosen].reshape(d, d)
        limit = np.abs(values).max()
        image = axes.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit)
        axes.set_title(name)
        axes.set_xticks(range(d), [str(i + 1) for i in range(d)])
        axes.set_yticks(range(d), [str(i + 1) for i in range(d)])
        axes.set_xlabel("column")
        axes.grid(False)
        picture.colorbar(image, ax=axes, shrink=0.8)
    picture.axes[0].set_ylabel("row")
    return picture


def matrix_table(matrices: Mapping[str, torch.Tensor]) -> Table:
    rows = [
        (name, i + 1, j + 1, value)
        for name, matrix in matrices.items()
        for i, line in enumerate(matrix.tolist())
        for j, value in enumerate(line)
    ]
    names, row, column, value = zip(*rows, strict=True)
    return {"matrix": names, "row": row, "column": column, "value": value}
