"""A mutation: one small wrong formula in place of a right one, everywhere it is used."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import wraps
from typing import Any

import torch

from innerloop.theory.wishart import TracePolynomial


@dataclass(frozen=True)
class Mutation:
    """What is wrong, where, and which claims must lose their verdict."""

    what: str
    """Such as "1/n for 1/(n + 1)"."""
    target: str
    """module:name or module:Class.name, below innerloop, where it is defined."""
    wrong: Callable[[Any], Any]
    """From what is right to what takes its place."""
    ids: tuple[str, ...]


def instead(replacement: Any) -> Callable[[Any], Any]:
    """The replacement, whatever was there."""
    return lambda right: replacement


def after(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function, with its value changed."""

    def wrong(right: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(right)
        def function(*arguments: Any, **named: Any) -> Any:
            return change(right(*arguments, **named))

        return function

    return wrong


def times(factor: float) -> Callable[[Any], Any]:
    """The function, with every number that it returns multiplied by this."""
    return after(lambda value: scaled(value, factor))


def scaled(value: Any, factor: float) -> Any:
    """Every number in it times the factor; whole numbers change by at least one."""
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int):
        return value + max(1, round(abs(value) * abs(factor - 1)))
    if isinstance(value, Fraction):
        return value * Fraction(factor).limit_denominator(1000)
    if isinstance(value, float):
        return value * factor
    if isinstance(value, torch.Tensor):
        return value * factor if value.is_floating_point() else value
    if isinstance(value, TracePolynomial):
        return TracePolynomial({traces: scaled(c, factor) for traces, c in value.terms.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(scaled(v, factor) for v in value))
    if isinstance(value, list | tuple):
        return type(value)(scaled(v, factor) for v in value)
    if isinstance(value, Mapping):
        return {key: scaled(v, factor) for key, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        return dataclasses.replace(
            value, **{name: scaled(getattr(value, name), factor) for name in names}
        )
    return value


@contextmanager
def applied(target: str, wrong: Callable[[Any], Any]) -> Iterator[None]:
    """Replaces the target in every module and class of innerloop that holds it."""
    module_name, _, path = target.partition(":")
    holder: Any = importlib.import_module(f"innerloop.{module_name}")
    *outer, name = path.split(".")
    for part in outer:
        holder = getattr(holder, part)
    right = vars(holder)[name]
    plain = right.__func__ if isinstance(right, classmethod | staticmethod) else right
    replacement = wrong(plain)
    if isinstance(right, classmethod | staticmethod):
        replacement = type(right)(replacement)
    places = [(holder, name)]
    if not outer:
        modules = [m for k, m in sys.modules.items() if k.split(".")[0] == "innerloop" and m]
        places += [(m, k) for m in modules for k, v in vars(m).items() if v is right]
    for place, key in places:
        setattr(place, key, replacement)
    try:
        yield
    finally:
        for place, key in places:
            setattr(place, key, right)
