"""Modules as syntax trees: what they define and import, without running them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]
"""The folder of the installed package; files are named relative to it."""


class NotLiteralError(ValueError):
    """Something the index reads is computed when the module runs."""


@dataclass(frozen=True)
class Import:
    """A name that an import statement binds: `attribute` of `module`, or a submodule of it."""

    name: str
    module: str
    attribute: str


@dataclass(frozen=True)
class Module:
    """A source file of the package."""

    name: str
    path: Path
    body: list[ast.stmt]

    @property
    def file(self) -> str:
        """Relative to the package, such as papers/ahn2023/figures.py."""
        return self.path.relative_to(PACKAGE).as_posix()

    def imports(self, statement: ast.stmt) -> Iterator[Import]:
        """What `from module import name` binds; nothing for other statements."""
        if isinstance(statement, ast.ImportFrom):
            base = statement.module or ""
            if statement.level:
                is_package = self.path.name == "__init__.py"
                parents = self.name.split(".")
                kept = parents[: len(parents) - statement.level + is_package]
                base = ".".join([*kept, *filter(None, [base])])
            for alias in statement.names:
                yield Import(alias.asname or alias.name, base, alias.name)

    def literal(self, node: ast.expr | None, what: str) -> Any:
        """The value of an expression made of constants alone."""
        try:
            return ast.literal_eval(node) if node is not None else None
        except ValueError:
            assert node is not None
            place = f"{self.file}:{node.lineno}"
            text = ast.unparse(node)
            raise NotLiteralError(f"{what} must be a literal, got {text} in {place}") from None


@cache
def read(name: str) -> Module | None:
    """The module of that name; None if the package has no such file."""
    package, *parts = name.split(".")
    if package != PACKAGE.name:
        return None
    folder = PACKAGE.joinpath(*parts)
    for path in (folder / "__init__.py", folder.with_name(f"{folder.name}.py")):
        if path.is_file():
            body = ast.parse(path.read_bytes(), str(path)).body
            for statement in body:
                if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                    del statement.body[1:]  # docstrings are all that is read; memory costs time
            return Module(name, path, body)
    return None


def definition(name: str, module: Module) -> tuple[ast.FunctionDef, Module] | None:
    """The function a name stands for in a module, and the module that defines it."""
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == name:
            return statement, module
        for imported in module.imports(statement):
            source = read(imported.module)
            if imported.name == name and source is not None:
                return definition(imported.attribute, source)
    return None
