"""A task on another device or in another precision."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

T = TypeVar("T")


def moved(
    thing: T, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> T:
    """The same task with all of its tensors there; parts that hold none are as they were.

    Sample it with a generator of the same device.
    """
    if isinstance(thing, Tensor):
        return cast(T, thing.to(device, dtype if thing.is_floating_point() else None))
    if isinstance(thing, torch.dtype):
        return thing if dtype is None else cast(T, dtype)
    if isinstance(thing, tuple):
        return cast(T, tuple(moved(part, device, dtype) for part in thing))
    if not is_dataclass(thing) or isinstance(thing, type):
        return thing
    changes: dict[str, Any] = {}
    for field in fields(thing):
        before = getattr(thing, field.name)
        after = moved(before, device, dtype)
        if after is not before:
            changes[field.name] = after
    return replace(thing, **changes) if changes else thing
