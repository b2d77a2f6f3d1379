"""The state of an optimizer as named tensors and JSON, checked on its way back."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from innerloop.training.weights import CheckpointError, not_finite

State = dict[int, dict[str, Any]]
"""By parameter, in the optimizer's order, and name: tensors and numbers."""


def pack_optimizer(
    optimizer: torch.optim.Optimizer,
) -> tuple[dict[str, Tensor], dict[str, Any], list[dict[str, Any]]]:
    """Tensors named optimizer.<parameter>.<name>, numbers named alike, and the groups."""
    state = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    scalars: dict[str, Any] = {}
    for index, entries in state["state"].items():
        for name, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{name}"] = value.detach().clone().contiguous()
            else:
                scalars[f"{index}.{name}"] = value
    return tensors, scalars, state["param_groups"]


def optimizer_state(
    optimizer: torch.optim.Optimizer,
    header: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    path: Path,
) -> dict[str, Any]:
    """What `optimizer.load_state_dict` takes, if it is a state that this optimizer can have."""
    for key, kind in (("kind", str), ("groups", list), ("scalars", dict)):
        if not isinstance(header.get(key), kind):
            raise CheckpointError(
                f"the header of {path} must give the optimizer's {key!r} as {kind.__name__}, "
                f"got {header.get(key)!r}"
            )
    if header["kind"] != type(optimizer).__name__:
        raise CheckpointError(
            f"the checkpoint {path} was written with the optimizer {header['kind']}, "
            f"got {type(optimizer).__name__}"
        )
    _require_groups(optimizer, header["groups"], path)
    saved = {k.removeprefix("optimizer."): t for k, t in tensors.items() if _is_state(k)}
    state: State = {}
    expected = _after_a_step(optimizer)
    for key, value in {**saved, **header["scalars"]}.items():
        index, _, name = key.partition(".")
        parameter = int(index) if index.isascii() and index.isdigit() else -1
        entries = expected.get(parameter, {})
        if name not in entries or _form(value) != _form(entries[name]):
            likeness = _form(entries[name]) if name in entries else "nothing of this name"
            raise CheckpointError(
                f"the optimizer's state in {path} holds {_form(value)} as {key!r}, "
                f"{type(optimizer).__name__} has {likeness}"
            )
        state.setdefault(parameter, {})[name] = value
    if bad := not_finite(saved):
        raise CheckpointError(f"the optimizer's state in {path} is not finite: {bad}")
    for parameter, entries in state.items():
        if missing := sorted(expected[parameter].keys() - entries.keys()):
            raise CheckpointError(
                f"the optimizer's state in {path} lacks {', '.join(missing)} of parameter "
                f"{parameter}"
            )
    return {"state": state, "param_groups": header["groups"]}


def load_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Puts a state of `optimizer_state` into the optimizer, with every dtype as it was saved.

    `load_state_dict` casts to the parameter's dtype, from which a resumed run would go on
    differently: a running product in float32 beside float64 weights.
    """
    optimizer.load_state_dict({**state})
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for index, entries in state["state"].items():
        own = optimizer.state[parameters[index]]
        for name, value in entries.items():
            if isinstance(value, Tensor):
                own[name] = value.to(own[name].device)


def _is_state(key: str) -> bool:
    return key.startswith("optimizer.")


def _after_a_step(optimizer: torch.optim.Optimizer) -> State:
    """The state that this optimizer has once every parameter had a gradient, on a copy of it."""
    trial = copy.deepcopy(optimizer)
    for group in trial.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    trial.step()
    return trial.state_dict()["state"]


def _require_groups(optimizer: torch.optim.Optimizer, groups: list[Any], path: Path) -> None:
    """As many groups, of the same parameters and settings, each of the same kind as here."""
    own = optimizer.state_dict()["param_groups"]
    if len(groups) != len(own) or not all(isinstance(group, dict) for group in groups):
        raise CheckpointError(
            f"the checkpoint {path} must have {len(own)} groups of parameters, got {groups}"
        )
    for group, like in zip(groups, own, strict=True):
        like = {"base_lr": like["lr"], **like}
        group = {"base_lr": group.get("lr"), **group}  # the trainer notes it in its first step
        if group.keys() != like.keys() or group["params"] != like["params"]:
            raise CheckpointError(
                f"the checkpoint {path} has a group of the optimizer with {group}, expected "
                f"something like {like}"
            )
        for name, value in group.items():
            if _setting(value) != _setting(like[name]):
                raise CheckpointError(
                    f"the checkpoint {path} gives the optimizer {name} = {value!r}, expected "
                    f"something like {like[name]!r}"
                )


def _setting(value: Any) -> Any:
    """What two settings must share: numbers their kind, words like `amsgrad` true or false itself.

    Rates and factors are finite and not negative. What is switched on decides which state there is.
    """
    if isinstance(value, list | tuple):
        return [_setting(v) for v in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number" if 0 <= value < math.inf else value
    return value if isinstance(value, bool) else type(value).__name__


def _form(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {list(value.shape)}"
    return type(value).__name__
