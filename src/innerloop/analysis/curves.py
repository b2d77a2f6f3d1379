"""Learning curves as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from innerloop.analysis.risk import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOTTOM = 1e-4
"""The lowest loss that is drawn, relative to the largest."""


def plot_learning_curves(
    curves: Mapping[str, Sequence[Estimate]], *, title: str = "", relative_to: float = 1.0
) -> Figure:
    """The loss of every learner against the number of examples it has seen.

    Args:
        curves: of `learning_curve`, by the learner's name. Bands are two standard errors.
        relative_to: what losses are divided by, such as E y^2.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    if not curves:
        raise ValueError("curves must hold at least one learner's curve, got none")
    picture = Figure(figsize=(6.4, 4.2))
    axes = picture.subplots()
    for name, curve in curves.items():
        counts = range(len(curve))
        mean = [e.mean / relative_to for e in curve]
        error = [2 * e.standard_error / relative_to for e in curve]
        (line,) = axes.plot(counts, mean, marker="o", markersize=3, label=name)
        # On a logarithmic axis a band that reaches 0 would fill everything below.
        low = [max(m - e, m / 2) for m, e in zip(mean, error, strict=True)]
        high = [m + e for m, e in zip(mean, error, strict=True)]
        axes.fill_between(counts, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set(xlabel="examples seen", ylabel="expected squared error", title=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    # A learner that diverges leaves the picture, and not the others in it.
    finite = [e.mean for curve in curves.values() for e in curve if isfinite(e.mean)] or [0.0]
    largest, smallest = max(finite) / relative_to, min(finite) / relative_to
    if largest > 0 and smallest < largest / 50:
        # Learners that are exact reach rounding: what is below the bottom is as good as 0.
        axes.set_yscale("log")
        axes.set_ylim(bottom=max(smallest / 2, BOTTOM * largest), top=3 * largest)
    axes.legend()
    axes.grid(alpha=0.3)
    return picture
