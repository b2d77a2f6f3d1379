"""What prompts, sequences and sentences share: they are trees of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from torch.utils import _pytree as pytree

T = TypeVar("T")


def register(kind: type, names: Sequence[str], *, fixed: Sequence[str] = ()) -> None:
    """Makes a frozen dataclass of tensors a tree: it stacks, maps, and passes through torch.func.

    Taken apart and put together again around placeholders whose values cannot be inspected, so the
    checks of the constructor are not run a second time. What is `fixed` is no tensor, and stays.
    """

    def flatten(made: Any) -> tuple[list[Any], tuple[list[str], dict[str, Any]]]:
        present = [name for name in names if getattr(made, name) is not None]
        kept = {name: getattr(made, name) for name in fixed}
        return [getattr(made, name) for name in present], (present, kept)

    def unflatten(tensors: Any, context: Any) -> Any:
        present, kept = context
        given = dict(zip(present, tensors, strict=True))
        return put_together(kind, {name: given.get(name) for name in names} | kept)

    pytree.register_pytree_node(
        kind, flatten, unflatten, serialized_type_name=f"innerloop.{kind.__name__}"
    )


def put_together(kind: type[T], tensors: Mapping[str, Any]) -> T:
    """A frozen dataclass of these fields, without the checks of its constructor."""
    made = object.__new__(kind)
    for name, tensor in tensors.items():
        object.__setattr__(made, name, tensor)
    return made


def require_floating(made: object, names: Sequence[str]) -> None:
    """All of one real floating dtype: beside integers, labels would lose their fractions."""
    first = getattr(made, names[0])
    for name in names:
        tensor = getattr(made, name)
        if not tensor.is_floating_point():
            raise ValueError(
                f"{name} must be of a real floating dtype such as torch.float32, got {tensor.dtype}"
            )
        if tensor.dtype != first.dtype:
            raise ValueError(
                f"{name} must have the dtype {first.dtype} of {names[0]}, got {tensor.dtype}"
            )
