"""Tables as rows, and axes with plain numbers, for the figures."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from innerloop.papers.registry import Table


def as_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    first, *rest = rows
    return {column: [first[column], *(row[column] for row in rest)] for column in first}


def where(table: Table, **values: object) -> dict[str, np.ndarray]:
    """The columns, in the rows that have these values."""
    columns = {name: np.asarray(column) for name, column in table.items()}
    kept = np.all([columns[name] == value for name, value in values.items()] or [True], axis=0)
    return {name: column[np.broadcast_to(kept, column.shape)] for name, column in columns.items()}


def logarithmic(axes: Axes, **labels: Any) -> None:
    """Both axes, with plain numbers."""
    axes.set(xscale="log", yscale="log", **labels)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
