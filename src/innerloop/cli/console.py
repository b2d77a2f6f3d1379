"""Where every command prints: one kind of console, in which text means what it says.

Square brackets in a path or a sentence are printed, not taken for markup; what needs a colour is a
`rich.text.Text`. Boxes fall back to ASCII where the terminal's encoding asks for it.
"""

from __future__ import annotations

from rich.console import Console

from innerloop.tables import TextTable


def console(*, stderr: bool = False) -> Console:
    """As wide as the terminal or COLUMNS say, 80 columns if neither does."""
    return Console(stderr=stderr, markup=False, emoji=False)


def say(sentence: str) -> None:
    """Prints a sentence or a path unbroken and as it is, so that it can be copied."""
    console().print(sentence, soft_wrap=True, highlight=False)


def print_table(table: TextTable) -> None:
    """In as many blocks as the width of the terminal asks for."""
    out = console()
    out.print(table.render(out.width), soft_wrap=True, highlight=False)
