"""Papers, claims and figures, as their modules write them down.

The decorators `@claim("id", "statement", source=...)` and `@figure(...)` are read where they stand.
Modules are followed in the order in which importing them would run them, so that entries come in
the order of the registry.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from innerloop.index.source import Module, read

REGISTRY = "innerloop.papers.registry"
"""The module whose `NAME = Paper(...)` are the papers."""
PAPERS = "innerloop.papers"
KINDS = ("claim", "figure")


@dataclass(frozen=True)
class IndexedPaper:
    """A paper, as the registry names it."""

    key: str
    authors: str
    title: str
    year: int
    arxiv: str


@dataclass(frozen=True)
class IndexedEntry:
    """A claim or figure, and where its function stands: its decorator begins at file:line."""

    id: str
    kind: str
    statement: str
    source: str
    file: str
    line: int

    @property
    def paper(self) -> str:
        return self.id.split("/")[0]


@cache
def papers() -> dict[str, IndexedPaper]:
    """Every paper by key, in the registry's order."""
    registry = read(REGISTRY)
    assert registry is not None, f"there is no {REGISTRY}"
    found = []
    for statement in registry.body:
        match statement:
            case ast.Assign(value=ast.Call(func=ast.Name(id="Paper"), args=args)):
                found.append(IndexedPaper(*(registry.literal(a, "a paper") for a in args)))
    return {paper.key: paper for paper in found}


@cache
def entries() -> dict[str, IndexedEntry]:
    """Every claim and figure by id: paper by paper, claims first, as the registry orders them."""
    found: list[IndexedEntry] = []
    seen: set[str] = set()
    for key in papers():
        _follow(f"{PAPERS}.{key}", seen, found)
    order = [(key, kind) for key in papers() for kind in KINDS]
    found.sort(key=lambda entry: order.index((entry.paper, entry.kind)))
    return {entry.id: entry for entry in found}


def _follow(name: str, seen: set[str], found: list[IndexedEntry]) -> None:
    """Reads a module, its package before it and its imports as they come; each module once."""
    module = read(name) if name.startswith(f"{PAPERS}.") and name not in seen else None
    if module is None:
        return
    _follow(name.rpartition(".")[0], seen, found)
    seen.add(name)
    for statement in module.body:
        for imported in module.imports(statement):
            _follow(imported.module, seen, found)
            _follow(f"{imported.module}.{imported.attribute}", seen, found)
        if isinstance(statement, ast.FunctionDef):
            found.extend(_registered(statement, module))


def _registered(function: ast.FunctionDef, module: Module) -> Iterator[IndexedEntry]:
    for decorator in function.decorator_list:
        match decorator:
            case ast.Call(func=ast.Name(id=kind)) if kind in KINDS:
                values = dict(zip(("id", "statement"), decorator.args, strict=False))
                values |= {word.arg: word.value for word in decorator.keywords if word.arg}
                id, statement, source = (
                    module.literal(values.get(name), f"the {name} of a {kind}")
                    for name in ("id", "statement", "source")
                )
                line = function.decorator_list[0].lineno
                yield IndexedEntry(id, kind, statement, source, module.file, line)
