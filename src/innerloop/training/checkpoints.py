"""Checkpoints: everything a run needs to go on exactly where it stopped, in one file.

The file is safetensors: tensors and a JSON header, nothing that is executed on loading. Being one
file, it is replaced atomically, and the parts in it always belong together. What is read is checked
against the model, the optimizer and the generator it is meant for before any of them is changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from innerloop.runs import write_atomic
from innerloop.training.history import History
from innerloop.training.optimizer_state import load_optimizer, optimizer_state, pack_optimizer
from innerloop.training.weights import (
    CheckpointError,
    is_there,
    not_finite,
    read_tensors,
    require_weights,
    state_to_save,
)

FORMAT = "innerloop-checkpoint-2"


def versions_now() -> dict[str, str]:
    """The versions of what computes."""
    try:
        own = version("innerloop")
    except PackageNotFoundError:  # run from a folder of sources
        own = "unknown"
    return {"innerloop": own, "torch": torch.__version__}


class Checkpoint:
    """Where a run is saved, and what it says of itself.

    Args:
        path: of the file; it need not exist.
        every: steps between two saves.
        config: what made the run, in types that JSON knows; a checkpoint of another is refused.
        versions: of the code; a checkpoint of others is used, and said to be.
    """

    def __init__(
        self,
        path: str | Path,
        every: int = 1000,
        config: Mapping[str, Any] | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1 step, got {every}")
        self.path = Path(path)
        self.every = every
        try:
            # As it will come back: tuples as lists.
            self.config: dict[str, Any] = json.loads(json.dumps(dict(config or {})))
        except (TypeError, ValueError) as error:
            raise ValueError(f"config must be of types that JSON knows: {error}") from error
        self.versions = versions_now() if versions is None else dict(versions)

    def save(
        self,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator,
        history: History,
    ) -> None:
        """Replaces the file; a state that is not finite is an error, and the file stays."""
        is_there(self.path)
        packed, scalars, groups = pack_optimizer(optimizer)
        for owner, tensors in (("weights", dict(model.named_parameters())), ("optimizer", packed)):
            if bad := not_finite(tensors):
                raise FloatingPointError(
                    f"after {step} steps the {owner} {', '.join(bad)} are not finite; "
                    "a smaller learning rate or clipping may help"
                )
        tensors = {f"model.{name}": t for name, t in state_to_save(model).items()}
        tensors |= packed
        tensors["generator"] = generator.get_state()
        header = {
            "format": FORMAT,
            "config": self.config,
            "versions": self.versions,
            "step": step,
            "history": history.columns,
            "optimizer": {
                "kind": type(optimizer).__name__,
                "groups": groups,
                "scalars": scalars,
            },
            "tensors": sorted(tensors),
        }
        write_atomic(self.path, save(tensors, {"innerloop": json.dumps(header)}))

    def restore(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator,
        notify: Callable[[str], None] = lambda sentence: None,
    ) -> tuple[int, History]:
        """Puts the saved state into the arguments; returns the step and the history so far.

        Without a file there is nothing to restore: step 0 and an empty history. A file that does
        not fit is refused, and then nothing is changed. What one should know and need not prevent
        anything is told to `notify`.
        """
        if not is_there(self.path):
            return 0, History()
        header, tensors = read_checkpoint(self.path)
        if header["config"] != self.config:
            names = {*header["config"], *self.config}
            differing = sorted(k for k in names if header["config"].get(k) != self.config.get(k))
            raise CheckpointError(
                f"the checkpoint {self.path} belongs to another run (it differs in "
                f"{', '.join(differing)}); choose another folder or remove it"
            )
        weights = checkpoint_weights(tensors)
        require_weights(model, weights, self.path)
        state = optimizer_state(optimizer, header["optimizer"], tensors, self.path)
        try:
            torch.Generator(generator.device).set_state(tensors["generator"])
        except (RuntimeError, TypeError) as error:
            raise CheckpointError(
                f"the checkpoint {self.path} holds no state of a generator on "
                f"{generator.device}: {error}"
            ) from error
        if header["versions"] != self.versions:
            theirs, ours = _spelled(header["versions"]), _spelled(self.versions)
            notify(
                f"{self.path} was written with {theirs}; this is {ours}. Going on: from here, "
                "numbers may differ from those of a run made with one of them"
            )
        model.load_state_dict(weights)
        load_optimizer(optimizer, state)
        generator.set_state(tensors["generator"])
        return header["step"], History(header["history"])


def read_checkpoint(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and the tensors of a checkpoint file, after checks of their form.

    The header holds `config`, `versions`, `step`, `history` and `optimizer`.
    """
    path = Path(path)
    metadata, tensors = read_tensors(path)
    try:
        header = json.loads(metadata["innerloop"])
    except (KeyError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} was not written by innerloop") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"the header of {path} must be an object, got {_kind(header)}")
    if header.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has the format {header.get('format')!r}, this version reads {FORMAT!r}"
        )
    for key, kind in HEADER.items():
        if key not in header:
            raise CheckpointError(f"the header of {path} has no {key!r}")
        if type(header[key]) is not kind:
            raise CheckpointError(
                f"the header of {path} must have {key!r} of type {kind.__name__}, "
                f"got {_kind(header[key])}"
            )
    if header["step"] < 0:
        raise CheckpointError(f"the header of {path} has the step {header['step']}")
    _require_history(header["history"], header["step"], path)
    if header["tensors"] != sorted(tensors):
        differing = sorted({str(name) for name in header["tensors"]} ^ set(tensors))
        raise CheckpointError(
            f"the tensors in {path} are not those of its header; they differ in "
            f"{', '.join(differing) or 'their order'}"
        )
    if "generator" not in tensors:
        raise CheckpointError(f"{path} holds no state of a generator")
    return header, tensors


HEADER: dict[str, type] = {
    "config": dict,
    "versions": dict,
    "step": int,
    "history": dict,
    "optimizer": dict,
    "tensors": list,
}


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], path: str | Path) -> None:
    """Puts weights into a model of the same names, shapes and dtypes, or changes nothing.

    Args:
        tensors: of `read_weights`, named as in the state dict, or of `read_checkpoint`.
        path: where they come from, for the sentence if they do not fit.
    """
    if tensors.keys() != model.state_dict().keys() and "generator" in tensors:
        tensors = checkpoint_weights(tensors)
    require_weights(model, tensors, Path(path))
    model.load_state_dict(tensors)


def checkpoint_weights(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those of a checkpoint that are the model's, under the model's names."""
    return {k.removeprefix("model."): t for k, t in tensors.items() if k.startswith("model.")}


def _require_history(columns: dict[str, Any], step: int, path: Path) -> None:
    """Lists of one length, with the steps in order and none after the last that was done."""
    if not columns:
        return
    for name, column in columns.items():
        if not isinstance(column, list):
            raise CheckpointError(
                f"the history in {path} must have lists as columns, got {_kind(column)} "
                f"for {name!r}"
            )
    if len({len(column) for column in columns.values()}) > 1 or not {"step", "loss"} <= {*columns}:
        lengths = {name: len(column) for name, column in columns.items()}
        raise CheckpointError(
            f"the history in {path} must have the columns step and loss, all of one length, "
            f"got {lengths}"
        )
    if not all(_numeric(loss) for loss in columns["loss"]):
        raise CheckpointError(f"the history in {path} must have numbers as losses")
    steps = columns["step"]
    if not all(type(s) is int for s in steps) or [0, *steps, step] != sorted([0, *steps, step]):
        raise CheckpointError(
            f"the history in {path} must have steps in order from 0 to {step}, got {steps}"
        )


def _numeric(loss: Any) -> bool:
    """A number, or several of an ensemble."""
    if isinstance(loss, list):
        return all(type(entry) in (int, float) for entry in loss)
    return type(loss) in (int, float)


def _kind(value: Any) -> str:
    return type(value).__name__


def _spelled(versions: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {v}" for name, v in versions.items()) or "unknown versions"
