"""`innerloop list`: everything that has a name."""

from __future__ import annotations

import inspect
from typing import Any

from rich.console import Console
from rich.table import Table

from innerloop import papers
from innerloop.cli.specs import ALGORITHMS, MODELS, TASKS, settable


def list_everything() -> None:
    """Lists papers, claims, figures, tasks, models and algorithms."""
    console = Console()
    entries = papers.entries()
    for key, paper in papers.PAPERS.items():
        table = Table(title=f"{key}: {paper.authors} ({paper.year}), {paper.title}", expand=True)
        table.add_column("id", no_wrap=True)
        table.add_column("source")
        table.add_column("statement")
        for entry in entries.values():
            if entry.id.startswith(f"{key}/"):
                table.add_row(entry.id, entry.source, entry.statement)
        console.print(table)
    tables: list[tuple[str, dict[str, Any], int]] = [
        ("tasks", dict(TASKS), 0),
        ("models", dict(MODELS), 2),
        ("algorithms", dict(ALGORITHMS), 1),
    ]
    for title, functions, given in tables:
        table = Table(title=title, expand=True)
        for column in ("name", "what it is", "options and defaults"):
            table.add_column(column)
        for name, function in functions.items():
            options = ", ".join(f"{p.name}={p.default}" for p in settable(function, given).values())
            table.add_row(name, inspect.getdoc(function), options)
        console.print(table)
