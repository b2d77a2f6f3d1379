"""The code that a number comes from: modules that define what a module uses, and what those use.

Found by reading, without importing anything. A name is followed through the packages that only pass
it on to the module that defines it, so that `theory.linear.looped_optimum` leads to
`theory/linear/looped.py` and not to all of `theory`. Where reading cannot tell what is meant (a
star import, a package handed on as a value, a name that nobody defines) everything that could be
meant counts: a version may change without need, but does not stay when the code has changed.

Comments, docstrings and line breaks do not count. Neither do other packages, nor data files.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Chain = tuple[str, ...]
"""`a.b.c` as ("a", "b", "c")."""

UNREADABLE = {"importlib", "__import__", "eval", "exec", "globals"}
"""Names by which a module can reach what its text does not say."""


@dataclass(frozen=True)
class Source:
    """What the text of one module says; its syntax tree itself is not kept."""

    name: str
    is_package: bool
    digest: str
    passes_on: bool
    """Whether it holds nothing but imports and `__all__`."""
    imports: Mapping[str, Sequence[tuple[str, Chain]]]
    """For each name that an import binds, wherever: the modules, and what is taken from them."""
    defined: Set[str]
    """Names that it gives a value of its own, at any depth."""
    uses: Mapping[str, Set[Chain]]
    """For each name that it reads, the attributes asked of it: () where the name stands alone."""

    @property
    def unreadable(self) -> bool:
        """Whether it may import what its text does not name."""
        return bool(UNREADABLE & self.uses.keys()) or "*" in self.imports


def read_source(name: str, file: Path) -> Source:
    """The module of this name, from its file."""
    is_package = file.name == "__init__.py"
    tree = ast.parse(file.read_bytes(), file)
    imports: dict[str, list[tuple[str, Chain]]] = {}
    defined: set[str] = set()
    uses: dict[str, set[Chain]] = {}
    inner: set[ast.AST] = set()
    for node in ast.walk(tree):  # outer nodes first
        match node:
            case ast.Import():
                for item in node.names:
                    first = item.name.partition(".")[0]
                    module = item.name if item.asname else first
                    imports.setdefault(item.asname or first, []).append((module, ()))
            case ast.ImportFrom():
                module = _imported_from(node, name, is_package)
                for item in node.names:
                    imports.setdefault(item.asname or item.name, []).append((module, (item.name,)))
            case ast.Attribute() | ast.Name() if node not in inner:
                attributes: list[str] = []
                value: ast.expr = node
                while isinstance(value, ast.Attribute):
                    attributes.append(value.attr)
                    value = value.value
                    inner.add(value)
                if isinstance(value, ast.Name):
                    uses.setdefault(value.id, set()).add(tuple(reversed(attributes)))
                    if isinstance(value.ctx, ast.Store):
                        defined.add(value.id)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                defined.add(node.name)
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [line for line in body if not _is_text(line)]  # type: ignore[attr-defined]
    passes_on = all(
        isinstance(line, ast.Import | ast.ImportFrom)
        or (isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "__all__")
        for line in tree.body
    )
    digest = hashlib.sha256(ast.dump(tree, annotate_fields=False).encode()).hexdigest()
    return Source(name, is_package, digest, passes_on, imports, defined, uses)


def _imported_from(node: ast.ImportFrom, importer: str, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    up = node.level - 1 if is_package else node.level
    package = importer.split(".")[: -up or None]
    return ".".join([*package, *([node.module] if node.module else [])])


def _is_text(line: ast.stmt) -> bool:
    """Whether the statement is a docstring, of whatever stands above it."""
    return (
        isinstance(line, ast.Expr)
        and isinstance(line.value, ast.Constant)
        and isinstance(line.value.value, str)
    )


class SourceTree:
    """The modules of one package.

    Args:
        folder: the package's folder; the package has its name.
        without: modules that no number comes from.
    """

    def __init__(self, folder: Path, *, without: Collection[str] = ()) -> None:
        self.folder, self.name, self.without = folder, folder.name, frozenset(without)
        self._sources: dict[str, Source | None] = {}
        self._direct: dict[str, set[str]] = {}

    def version(self, module: str, file: Path | None = None) -> str:
        """A hash of this module and of all that it depends on.

        Args:
            module: its name, such as innerloop.papers.ahn2023.figures.
            file: where it lies, if that is outside of the package.
        """
        if file is not None:
            self._sources[module] = read_source(module, file)
        digest = hashlib.sha256()
        for name in sorted(self.behind(module)):
            digest.update(f"{name} {self._source(name).digest}\n".encode())
        return digest.hexdigest()[:12]

    def behind(self, module: str) -> set[str]:
        """The names of this module and of all that it depends on."""
        reached: set[str] = set()
        to_visit = {module}
        while to_visit:
            name = to_visit.pop()
            reached.add(name)
            to_visit |= self._depends_on(name) - reached - self.without
        return reached

    def _depends_on(self, name: str) -> set[str]:
        if name not in self._direct:
            source = self._source(name)
            found: set[str] = set(self._whole(self.name) if source.unreadable else ())
            for bound, targets in source.imports.items():
                for module, taken in targets:
                    for attributes in source.uses.get(bound, {()}):
                        found |= self._defining(module, taken + attributes, set())
            # A package is run before its modules: it counts if it does more than pass names on.
            parents = {p for module in {name, *found} for p in _parents(module) if self._has(p)}
            found |= {parent for parent in parents if not self._source(parent).passes_on}
            self._direct[name] = found
        return self._direct[name]

    def _defining(self, module: str, chain: Chain, seen: set[tuple[str, Chain]]) -> set[str]:
        """The modules that may define what `module.chain` means; none for other packages."""
        if not self._has(module) or (module, chain) in seen:
            return set()
        seen.add((module, chain))
        if not chain:
            return self._whole(module)
        source, (name, *rest) = self._source(module), chain
        found = {module} if name in source.defined or not source.passes_on else set()
        known = name in source.defined
        for target, taken in source.imports.get(name, ()):
            found |= self._defining(target, (*taken, *rest), seen)
            known = True
        if self._has(f"{module}.{name}"):
            found |= self._defining(f"{module}.{name}", tuple(rest), seen)
            known = True
        return found if known else found | self._whole(module)

    def _whole(self, module: str) -> set[str]:
        """The module and, of a package, everything below it."""
        if not self._source(module).is_package:
            return {module}
        folder = self._file(module).parent
        below = (path.relative_to(folder).with_suffix("").parts for path in folder.rglob("*.py"))
        dotted = (".".join([module, *(p for p in parts if p != "__init__")]) for parts in below)
        return {name for name in dotted if self._has(name)}

    def _has(self, module: str) -> bool:
        if module not in self._sources:
            inside = module.split(".")[0] == self.name
            file = self._file(module)
            self._sources[module] = read_source(module, file) if inside and file.is_file() else None
        return self._sources[module] is not None

    def _source(self, module: str) -> Source:
        source = self._sources[module] if self._has(module) else None
        if source is None:
            raise ValueError(f"{module} is no module of the package in {self.folder}")
        return source

    def _file(self, module: str) -> Path:
        path = self.folder.joinpath(*module.split(".")[1:])
        return path / "__init__.py" if path.is_dir() else path.with_name(f"{path.name}.py")


def _parents(module: str) -> Iterator[str]:
    """a.b.c: a and a.b."""
    parts = module.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts)))


@functools.cache
def _innerloop() -> SourceTree:
    # The registry keeps entries, and makes no numbers: a new paper measures no other again.
    folder = Path(__file__).parent.parent
    return SourceTree(folder, without={f"{folder.name}.papers.registry"})


@functools.cache
def _version(module: str, file: Path | None) -> str:
    return _innerloop().version(module, file)


def modules_behind(function: Callable[..., Any]) -> set[str]:
    """The names of innerloop's modules that this function of one of them depends on."""
    return _innerloop().behind(inspect.unwrap(function).__module__)


def code_behind(function: Callable[..., Any]) -> str:
    """A hash of the code that this function depends on: its module, and what that imports."""
    module = inspect.unwrap(function).__module__
    if module.split(".")[0] == _innerloop().name:
        return _version(module, None)
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        raise ValueError(
            f"the function {function!r} must be defined in a file, so that its results can be "
            f"told from those of other code; its module {module!r} has none"
        )
    return _version(module, Path(file))
