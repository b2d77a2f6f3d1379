"""Specs: a name and its options, written `name` or `name:key=value,key=value`.

`linear:d=5,n=20` and `ridge:penalty=0.1` are specs. The keys are the keyword arguments of the
function that the name stands for in the catalogue, and values have their types; so a spec can be
checked before anything is built, and written as JSON beside what it made.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin

T = TypeVar("T")
Table = Mapping[str, Callable[..., T]]
"""Names and what they stand for. Arguments without a default are given by the program, the others
are options."""


@dataclass(frozen=True)
class Spec:
    """A name of the catalogue and values for all of its options, defaults included."""

    kind: str
    """What it names, such as "task"; for messages."""
    name: str
    options: Mapping[str, Any]

    @classmethod
    def parse(
        cls,
        kind: str,
        text: str | Spec,
        table: Table[Any],
        like: Spec | None = None,
        kept: Collection[str] = (),
    ) -> Spec:
        """From the short form; refuses what the catalogue does not know, with the nearest name.

        Options that are not given have their defaults or, if it has the same name, those of `like`;
        the options `kept` are those of `like` whatever its name.
        """
        if isinstance(text, Spec):
            if text.kind != kind:
                raise ValueError(f"a {kind} is asked for, got the {text.kind} {text}")
            return cls.of(kind, text.name, text.options, table)
        name, colon, rest = text.partition(":")
        given: dict[str, Any] = {}
        for part in rest.split(",") if colon else ():
            key, separator, value = part.partition("=")
            if not separator:
                raise ValueError(f"{kind} {name} takes options as key=value, got {part!r}")
            if key in given:
                raise ValueError(f"{kind} {name} is given {key} twice, in {text!r}")
            given[key] = value
        if like is not None and like.name == name:
            return like.with_options(given, table)
        if like is not None:
            known = settable(_entry(kind, name, table))
            both = [key for key in kept if key in like.options and key in known]
            given = {key: like.options[key] for key in both} | given
        return cls.of(kind, name, given, table)

    @classmethod
    def of(cls, kind: str, name: str, given: Mapping[str, Any], table: Table[Any]) -> Spec:
        """From a name and some of its options, as words or as values."""
        accepted = settable(_entry(kind, name, table))
        options = {key: parameter.default for key, parameter in accepted.items()}
        for key, value in given.items():
            if key not in accepted:
                known = ", ".join(accepted) or "none"
                raise ValueError(f"{kind} {name} has no option {key!r}; it has: {known}")
            what = f"{key} of {kind} {name}"
            options[key] = _checked(what, value, accepted[key].annotation)
        return cls(kind, name, options)

    @classmethod
    def from_json(cls, kind: str, record: Any, table: Table[Any]) -> Spec:
        if not isinstance(record, dict) or not isinstance(record.get("name"), str):
            raise ValueError(f"a {kind} must be an object with a name, got {record!r}")
        options = record.get("options", {})
        if not isinstance(options, dict):
            raise ValueError(f"options of {kind} {record['name']} must be an object, got {options}")
        return cls.of(kind, record["name"], options, table)

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "options": dict(self.options)}

    def with_options(self, given: Mapping[str, Any], table: Table[Any]) -> Spec:
        """The same with some options changed."""
        return Spec.of(self.kind, self.name, {**self.options, **given}, table)

    def build(self, table: Table[T], *given: Any) -> T:
        """What it stands for, made with the arguments that the program gives."""
        return table[self.name](*given, **self.options)

    def __str__(self) -> str:
        words = [f"{k}={_word(v)}" for k, v in self.options.items() if v is not None]
        return f"{self.name}:{','.join(words)}" if words else self.name


def settable(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The options of a catalogue entry: its arguments that have a default."""
    parameters = inspect.signature(function, eval_str=True).parameters
    return {k: p for k, p in parameters.items() if p.default is not inspect.Parameter.empty}


def numbers(what: str, text: str) -> tuple[float, ...]:
    """Numbers separated by slashes, such as 1.5/0.8/0.4."""
    try:
        return tuple(float(v) for v in text.split("/"))
    except ValueError as error:
        raise ValueError(f"{what} must be numbers separated by /, got {text!r}") from error


def _entry(kind: str, name: str, table: Table[Any]) -> Callable[..., Any]:
    if name not in table:
        near = difflib.get_close_matches(name, table, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"no {kind} is called {name!r}; {hint}Known: {', '.join(table)}")
    return table[name]


def _checked(what: str, value: Any, annotation: Any) -> Any:
    """The value as the annotation asks for it; words are converted, anything else must fit."""
    if get_origin(annotation) is Literal:
        choices = get_args(annotation)
        if value not in choices:
            raise ValueError(f"{what} must be one of {', '.join(choices)}, got {value!r}")
        return value
    kinds = [a for a in get_args(annotation) if a is not NoneType] or [annotation]
    if value is None and NoneType in get_args(annotation):
        return None
    kind = kinds[0] if get_origin(annotation) is not tuple else annotation
    if get_origin(kind) is tuple:
        values = numbers(what, value) if isinstance(value, str) else value
        if not isinstance(values, list | tuple):
            raise ValueError(f"{what} must be a list of numbers, got {value!r}")
        return tuple(_checked(what, v, float) for v in values)
    if isinstance(value, str) and kind is not str:
        value = _converted(what, value, kind)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            value = float(value)
        except OverflowError as error:
            raise ValueError(f"{what} must be at most 1e308 in size") from error
    if type(value) is not kind:
        raise ValueError(f"{what} must be {_kind_name(kind)}, got {value!r}")
    if kind is float and not math.isfinite(value):
        raise ValueError(f"{what} must be finite, got {value}")
    return value


def _converted(what: str, word: str, kind: type) -> Any:
    if kind is bool:
        if word not in ("true", "false"):
            raise ValueError(f"{what} must be true or false, got {word!r}")
        return word == "true"
    try:
        return kind(word)
    except ValueError as error:
        raise ValueError(f"{what} must be {_kind_name(kind)}, got {word!r}") from error


def _kind_name(kind: type) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
    return names.get(kind, kind.__name__)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "/".join(map(_word, value))
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
