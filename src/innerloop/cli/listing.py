"""`innerloop list`: everything that has a name, and the line of source that defines it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Annotated, NamedTuple

import tyro
from rich.text import Text

from innerloop import index
from innerloop.cli.console import console, say
from innerloop.index.selection import nearest

LEAST_WIDTH = 60
INDENT = "    "
LABELS = {"records": "trained on"}
"""Of what stands beside a name, where it is not its options."""
Names = Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME ...]")]


class Item(NamedTuple):
    """A line or two of the list."""

    name: str
    heading: str
    """What it stands under: the key of a paper, or a table of the catalogue."""
    aside: str
    """Where a paper says it, or the options of a model."""
    text: str
    place: str


def list_names(names: Names, grep: str = "") -> None:
    """Lists papers, claims, figures, tasks, models, algorithms, recipes and records, and where they
    are.

    For example:
      innerloop list ahn2023/theorem1
      innerloop list records

    Args:
        names: what to show, such as zhang2023, models, records or ahn2023/theorem1; none means all.
        grep: only what has this text in it, in small or capital letters.
    """
    items = [*_entries(), *_catalogue(), *_records()]
    chosen = _matching(_named(items, names), grep)
    headings = _headings()
    in_full = {name for name in names if name not in index.papers()}
    target = console()
    width = max(target.width, LEAST_WIDTH)
    before = None
    for item in chosen:
        if item.heading != before:
            target.print(Text(f"\n{headings[item.heading]}", "bold"))
            before = item.heading
        lines = _in_full if {item.name, item.heading} & in_full else _in_short
        for line in lines(item, width):
            target.print(line, soft_wrap=True, highlight=False)
    say(f"\nfiles are below {index.PACKAGE}")


def _entries() -> Iterator[Item]:
    for entry in index.entries().values():
        place = f"{entry.file}:{entry.line}"
        yield Item(entry.id, entry.paper, entry.source, entry.statement, place)


def _catalogue() -> Iterator[Item]:
    for table, items in index.catalogue().items():
        for item in items:
            place = f"{item.file}:{item.line}"
            yield Item(item.name, table, ",".join(item.options), item.description, place)


def _records() -> Iterator[Item]:
    for record in index.trained_models():
        place = "" if record.name == record.file else record.file
        yield Item(record.name, "records", record.task, record.model, place)


def _headings() -> dict[str, str]:
    papers = {
        key: f"{key}: {paper.authors} ({paper.year}), {paper.title}"
        for key, paper in index.papers().items()
    }
    tables = {table: table for table in index.catalogue()}
    return papers | tables | {"records": "records: trained models that ship with their weights"}


def _named(items: list[Item], names: list[str]) -> list[Item]:
    chosen: dict[Item, None] = {}
    for name in names:
        found = [item for item in items if name in (item.name, item.heading)]
        if not found:
            known = dict.fromkeys(word for item in items for word in (item.heading, item.name))
            hint = nearest(name, list(known)) or f"papers are {', '.join(index.papers())}"
            raise ValueError(f"nothing is called {name!r}; {hint}")
        chosen |= dict.fromkeys(found)
    return list(chosen) if names else items


def _matching(items: list[Item], grep: str) -> list[Item]:
    wanted = grep.casefold()
    found = [
        item
        for item in items
        if any(wanted in part.casefold() for part in (item.name, item.aside, item.text))
    ]
    if not found:
        raise ValueError(f"nothing that is listed has {grep!r} in its name, statement or source")
    return found


def _in_short(item: Item, width: int) -> Iterable[Text]:
    """Two lines: name, as much of the aside as fits, place; as much of the text as fits."""
    room = width - len(item.name) - len(item.place) - 4
    aside = _cut(item.aside, room) if room > 0 else ""
    line = Text.assemble((item.name, "cyan"), f"  {aside:<{max(room, 0)}}  ", (item.place, "dim"))
    return line, Text(_cut(INDENT + item.text, width))


def _in_full(item: Item, width: int) -> Iterable[Text]:
    yield Text(item.name, "cyan")
    label = "source" if item.heading in index.papers() else LABELS.get(item.heading, "options")
    for part in (item.text, f"{label}: {item.aside or 'none'}"):
        for line in textwrap.wrap(part, width - len(INDENT)):
            yield Text(INDENT + line)
    yield Text(INDENT + item.place, "dim")


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"
