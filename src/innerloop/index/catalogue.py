"""Tasks, models, algorithms and whatever else the catalogue gives a name.

The catalogue is a few modules with tables such as `MODELS = {"gd": gd, ...}`. A table's values are
functions, defined there or imported: the docstring says what the name stands for, and arguments
with a default or after the star are its options. Or they are objects made there, such as a
recipe, whose first argument says it. A dictionary of tuples is no table.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache

from innerloop.index.source import Module, NotLiteralError, definition, read

CATALOGUE = (
    *(
        f"innerloop.experiments.named_{kind}"
        for kind in ("tasks", "models", "algorithms", "candidates", "training")
    ),
    "innerloop.experiments.recipes",
)


@dataclass(frozen=True)
class CatalogueItem:
    """A name of the catalogue; its function stands at file:line.

    Attributes:
        options: with their defaults, such as ("layers=3", "loops=1").
    """

    name: str
    description: str
    options: tuple[str, ...]
    file: str
    line: int


@cache
def catalogue(names: tuple[str, ...] = CATALOGUE) -> dict[str, tuple[CatalogueItem, ...]]:
    """Every table of the catalogue, by its name in small letters: tasks, models, ..."""
    tables: dict[str, tuple[CatalogueItem, ...]] = {}
    for name in names:
        module = read(name)
        assert module is not None, f"there is no {name}"
        tables |= _tables(module)
    return tables


def _tables(module: Module) -> dict[str, tuple[CatalogueItem, ...]]:
    tables = {}
    for statement in module.body:
        match statement:
            case (
                ast.AnnAssign(target=ast.Name(id=table), value=ast.Dict() as content)
                | ast.Assign(targets=[ast.Name(id=table)], value=ast.Dict() as content)
            ) if table.isupper() and not table.startswith("_"):
                if any(isinstance(value, ast.Tuple) for value in content.values):
                    continue
                pairs = zip(content.keys, content.values, strict=True)
                tables[table.lower()] = tuple(_item(key, value, module) for key, value in pairs)
    return tables


def _item(key: ast.expr | None, value: ast.expr, module: Module) -> CatalogueItem:
    if key is not None and isinstance(value, ast.Call):
        name = module.literal(key, "a name in the catalogue")
        about = module.literal(value.args[0], "what a name of the catalogue stands for")
        return CatalogueItem(name, about, (), module.file, value.lineno)
    found = definition(value.id, module) if isinstance(value, ast.Name) else None
    if key is None or found is None:
        place = f"{module.file}:{value.lineno}"
        raise NotLiteralError(f"{place} must name a function, got {ast.unparse(value)}")
    function, home = found
    description = " ".join((ast.get_docstring(function) or "").split("\n\n")[0].split())
    name = module.literal(key, "a name in the catalogue")
    return CatalogueItem(name, description, _options(function), home.file, function.lineno)


def _options(function: ast.FunctionDef) -> tuple[str, ...]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = zip(positional[::-1], arguments.defaults[::-1], strict=False)
    settable: list[tuple[ast.arg, ast.expr | None]] = [
        *reversed(list(defaults)),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return tuple(argument.arg + _shown(default) for argument, default in settable)


def _shown(default: ast.expr | None) -> str:
    """As it is typed on the command line; nothing where None stands for what the task has."""
    match default:
        case None | ast.Constant(value=None):
            return ""
        case ast.Constant(value=bool() as flag):
            return f"={str(flag).lower()}"
        case ast.Constant(value=value):
            return "=" + str(value)
    return f"={ast.unparse(default)}"
