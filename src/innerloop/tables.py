"""Tables: as files of columns, and as plain text that loses nothing on a narrow terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

GAP = "  "


@dataclass
class TextTable:
    """Rows under named columns; the first column names the row.

    Where all columns do not fit side by side, they are printed in several blocks, each with the
    first column again. Nothing is cut.
    """

    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    left: int = 1
    """How many columns are words, set to the left; the others are numbers, set to the right."""
    together: int = 0
    """So many rows belong together, and are set apart from the next ones; 0: all of them."""

    @property
    def groups(self) -> list[list[Sequence[str]]]:
        """The rows that belong together."""
        size = self.together or max(len(self.rows), 1)
        return [self.rows[i : i + size] for i in range(0, len(self.rows), size)]

    def add(self, *cells: str) -> None:
        if len(cells) != len(self.columns):
            raise ValueError(
                f"a row must have {len(self.columns)} cells, one for each column, got {len(cells)}"
            )
        self.rows.append(cells)

    def render(self, width: int = 80) -> str:
        """The table in lines of at most `width` characters, wherever its widest pair allows it."""
        widths = [
            max(len(column), *(len(row[i]) for row in self.rows), 1)
            if self.rows
            else max(len(column), 1)
            for i, column in enumerate(self.columns)
        ]
        blocks: list[list[int]] = []
        for i in range(1, len(self.columns)):
            last = blocks[-1] if blocks else []
            used = widths[0] + sum(len(GAP) + widths[j] for j in last)
            if last and used + len(GAP) + widths[i] <= width:
                last.append(i)
            else:
                blocks.append([i])
        parts = [self._block([0, *block], widths) for block in blocks or [[]]]
        return "\n\n".join([*([self.title] if self.title else []), *parts])

    def _block(self, chosen: Sequence[int], widths: Sequence[int]) -> str:
        def line(cells: Sequence[str]) -> str:
            padded = (
                cells[i].ljust(widths[i]) if i < self.left else cells[i].rjust(widths[i])
                for i in chosen
            )
            return GAP.join(padded).rstrip()

        rule = GAP.join("-" * widths[i] for i in chosen)
        groups = ["\n".join(line(row) for row in group) for group in self.groups]
        return "\n".join([line(self.columns), rule, "\n\n".join(groups)]).rstrip("\n")

    def __str__(self) -> str:
        return self.render()


def as_csv(columns: Mapping[str, Sequence[Any]]) -> str:
    """The columns under a header line, numbers in full precision."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return file.getvalue()
