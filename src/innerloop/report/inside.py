"""What is inside the models that ship, as a picture: how much its best candidate reproduces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure as Picture

from innerloop.papers.plots import as_rows, as_table
from innerloop.papers.registry import Table
from innerloop.reproduction.inside import Inside

ROW = 0.25
"""Inches of height for every model."""
APART = 0.3
"""Of a row: how far the two shares of a model stand apart."""


def shares_table(inside: Sequence[Inside]) -> Table:
    """A row for every share of every model that was measured; no columns if there are none."""
    rows = [
        {"model": each.name, "candidate": each.nearest, "share": share}
        | dict(zip(("value", "low", "high"), interval, strict=True))
        for each in inside
        for share, interval in each.shares.items()
    ]
    return as_table(rows) if rows else {}


def draw_shares(tables: Mapping[str, Table]) -> Picture:
    """The shares of `shares_table` with their intervals: a row for each model, the first on top."""
    table = tables["shares"]
    models = dict(zip(map(str, table["model"]), map(str, table["candidate"]), strict=True))
    picture = Picture(figsize=(7.5, 1.1 + ROW * len(models)))
    axes = picture.subplots()
    places = {model: place for place, model in enumerate(models)}
    for number, share in enumerate(dict.fromkeys(table["share"])):
        rows = as_rows(table, share=share)
        heights = [places[row["model"]] + APART * (number - 0.5) for row in rows]
        colour = f"C{number}"
        axes.hlines(heights, [r["low"] for r in rows], [r["high"] for r in rows], color=colour)
        axes.plot([r["value"] for r in rows], heights, "o", color=colour, label=f"of the {share}")
    for model, candidate in models.items():
        where = (1.02, places[model])
        axes.annotate(candidate, where, xycoords=axes.get_yaxis_transform(), va="center", size=8)
    axes.set_yticks(range(len(models)), list(models), size=8)
    axes.set_ylim(len(models) - 0.5, -0.5)
    for end in (0, 1):
        axes.axvline(end, color="0.6", linewidth=1)
    axes.set_xlabel("share that the best candidate, named on the right, reproduces")
    picture.legend(loc="outside upper center", ncols=2)
    return picture
