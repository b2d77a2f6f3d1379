"""What was identified, as a picture: distances, errors against the best candidate's, depths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from innerloop.analysis.identification.answer import Identification
from innerloop.analysis.identification.inside import DepthMatch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOTTOM = 1e-9
"""The smallest distance that is drawn, relative to the largest: below is rounding."""


def plot_identification(
    found: Identification, depths: Sequence[DepthMatch] = (), *, title: str = ""
) -> Figure:
    """Distances with intervals; errors scattered; a heat map for every iterative algorithm.

    The line on a heat map is the nearest number of steps at each depth, with its interval.
    """
    from matplotlib.figure import Figure

    rows = 1 + -(-len(depths) // 2)
    figure = Figure(figsize=(10, 4.2 * rows), layout="constrained")
    axes = figure.subplots(rows, 2).flatten()
    _distances(axes[0], found)
    _errors(axes[1], found)
    for panel, match in zip(axes[2:], depths, strict=False):
        image = _heat_map(panel, match)
        figure.colorbar(image, ax=panel, label="share of the error")
    for panel in axes[2 + len(depths) :]:
        panel.set_visible(False)
    figure.suptitle(f"{title}: {found.decision.grade}" if title else str(found.decision.grade))
    return figure


def _distances(axes: Any, found: Identification) -> None:
    from matplotlib.ticker import NullFormatter

    ranked = found.decision.ranked[::-1]
    largest = max((s.distance.value for s in ranked if s.distance.value < 1e50), default=1.0)
    floor = BOTTOM * (largest or 1.0)
    leading = found.decision.leading
    for place, standing in enumerate(ranked):
        distance = standing.distance
        values = [max(v, floor) for v in (distance.low, distance.value, distance.high)]
        colour = "C1" if standing in leading else "C0"
        axes.plot(values[::2], [place, place], color=colour, linewidth=2)
        axes.plot(values[1], place, "o", color=colour, markersize=5)
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(right=3 * largest if largest > 0 else 1.0)
    axes.set_yticks(range(len(ranked)), [str(standing.candidate) for standing in ranked])
    axes.tick_params(axis="y", labelsize=7)
    axes.set(xlabel="root mean square difference", title="distance to each candidate")
    axes.grid(alpha=0.3)


def _errors(axes: Any, found: Identification) -> None:
    learner, best = found.errors
    axes.plot(best, learner, ".", markersize=3, alpha=0.6)
    most = max((abs(v) for v in (*learner, *best) if math.isfinite(v)), default=1.0) or 1.0
    axes.plot([-most, most], [-most, most], color="0.6", linewidth=1)
    axes.set(xlabel="error of the best candidate", ylabel="error of the learner")
    axes.set_title(f"beside {found.decision.best.candidate}", fontsize=10)
    axes.grid(alpha=0.3)


def _heat_map(axes: Any, match: DepthMatch) -> Any:
    """Depths to the right, numbers of steps upwards, one row each: they are not equally spaced."""
    image = axes.imshow(
        match.shares.mT.clamp(0, 1).numpy(), origin="lower", aspect="auto", vmin=0, vmax=1
    )
    rows = {steps: row for row, steps in enumerate(match.steps)}
    places = range(len(match.depths))
    best = [rows[int(b.value)] for b in match.best]
    # The quantiles of resampled steps may fall between two that were tried.
    low, high = (
        [_row(match.steps, getattr(b, end)) for b in match.best] for end in ("low", "high")
    )
    axes.plot(places, best, "o-", color="white", markersize=4)
    axes.vlines(places, low, high, color="white", linewidth=1)
    axes.set_xticks(places, match.depths, rotation=60, fontsize=7)
    shown = range(0, len(match.steps), max(1, len(match.steps) // 12))
    axes.set_yticks(list(shown), [str(match.steps[i]) for i in shown])
    axes.set(ylabel="steps", title=match.family)
    return image


def _row(steps: Sequence[int], value: float) -> int:
    return min(range(len(steps)), key=lambda i: abs(steps[i] - value))
