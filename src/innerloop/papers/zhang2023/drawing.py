"""Tables as rows, and axes with plain numbers, for the figures."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter


def logarithmic(axes: Axes, **labels: Any) -> None:
    """Both axes, with plain numbers."""
    axes.set(xscale="log", yscale="log", **labels)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
