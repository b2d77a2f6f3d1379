"""Pictures that a command writes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from innerloop.runs import require_writable, write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def require_picture(name: str, file: Path) -> None:
    """Refuses, before any work, a file that could not be written as a picture."""
    require_writable(name, file)
    if file.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"{name} must be a .png, .svg or .pdf file, got {file}")


def save_picture(picture: Figure, file: Path) -> None:
    drawn = io.BytesIO()
    picture.savefig(drawn, format=file.suffix[1:], dpi=150, bbox_inches="tight")
    write_atomic(file, drawn.getvalue())
