"""How figures look: one style for every paper, and SVG that is the same each time it is drawn."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from cycler import cycler
from matplotlib.figure import Figure as Picture
from matplotlib.style import context

from innerloop.papers.registry import Table
from innerloop.runs import code_version

Draw = Callable[[Mapping[str, Table]], Picture]

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#e69f00", "#56b4e9", "#333333")
"""Okabe and Ito's colours, told apart under every common colour blindness; the two that are
faintest on white, yellow and pink, are replaced."""

WIDTH, HEIGHT = 5.0, 3.3
"""Inches. A phone shows 5 inches at nearly the size of print, so that 10 points stay readable."""

STYLE: Mapping[str, Any] = {
    "figure.figsize": (WIDTH, HEIGHT),
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "savefig.facecolor": "white",
    # Matplotlib's own font, set as paths: the only one that is there on every machine, and a
    # picture inside a page cannot ask for another.
    "font.family": "DejaVu Sans",
    "mathtext.fontset": "dejavusans",
    "svg.fonttype": "path",
    "svg.hashsalt": "innerloop",
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "axes.prop_cycle": cycler(color=PALETTE),
    "text.color": "#1c2024",
    "axes.labelcolor": "#1c2024",
    "axes.edgecolor": "#6b7280",
    "xtick.color": "#6b7280",
    "ytick.color": "#6b7280",
    "xtick.labelcolor": "#374151",
    "ytick.labelcolor": "#374151",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e5e7eb",
    "grid.linewidth": 0.7,
    "xtick.minor.visible": False,
    "ytick.minor.visible": False,
    "lines.linewidth": 1.9,
    "lines.markersize": 5,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.handlelength": 1.7,
    "image.cmap": "viridis",
}


@contextmanager
def plot_style() -> Iterator[None]:
    """Matplotlib with this style and nothing of the user's own settings."""
    with context(["default", dict(STYLE)]):
        yield


@dataclass(frozen=True)
class Drawing:
    """A figure as SVG."""

    svg: str

    @property
    def aspect(self) -> float:
        """Width over height."""
        box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', self.svg)
        assert box is not None, "every SVG of matplotlib has a viewBox"
        return float(box[1]) / float(box[2])


def drawn(draw: Draw, tables: Mapping[str, Table], *, kept: Path | None = None) -> Drawing:
    """What `draw` makes of the tables; the same tables give the same characters.

    A drawing takes about a second, and a report has twenty: if the file `kept` holds what the same
    code made of the same tables, that is the drawing.
    """
    origin = _origin(draw, tables)
    if kept is not None and (svg := _svg_from(kept, origin)) is not None:
        return Drawing(svg)
    with plot_style():
        picture = draw(tables)
        file = io.StringIO()
        # No date and no version: two reports of the same numbers are then equal, file by file.
        metadata = {"Date": None, "Creator": None, "Identifier": origin}
        picture.savefig(file, format="svg", metadata=metadata)
    return Drawing(file.getvalue())


def _origin(draw: Draw, tables: Mapping[str, Table]) -> str:
    """A hash of all that a drawing depends on: numbers, the code that draws, matplotlib."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    code = f"{draw.__module__}.{draw.__qualname__} of {code_version()}"
    for part in (code, matplotlib.__version__, json.dumps(tables, default=list)):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def _svg_from(path: Path, origin: str) -> str | None:
    """The drawing at this path, if it is there, whole and of this origin."""
    try:
        svg = path.read_text() if path.is_file() else ""
    except (OSError, UnicodeDecodeError):
        return None
    whole = svg.rstrip().endswith("</svg>") and "viewBox" in svg
    return svg if whole and f"<dc:identifier>{origin}</dc:identifier>" in svg else None
