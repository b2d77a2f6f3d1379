"""Checkpoints: everything a run needs to go on exactly where it stopped, in one file.

The file is safetensors: tensors and a JSON header, nothing that is executed on loading. Being one
file, it is replaced atomically, and the parts in it always belong together.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from innerloop.runs import write_atomic
from innerloop.training.history import History

FORMAT = "innerloop-checkpoint-1"


class CheckpointError(ValueError):
    """A checkpoint that cannot be used here."""


@dataclass(frozen=True)
class Checkpoint:
    """Where a run is saved, and what it says of itself."""

    path: Path
    every: int = 1000
    """Steps between two saves."""
    config: dict[str, Any] = field(default_factory=dict)
    """What made the run, in types that JSON knows; a checkpoint of another config is refused."""

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every must be at least 1 step, got {self.every}")

    def save(
        self,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator,
        history: History,
    ) -> None:
        state = optimizer.state_dict()
        tensors = {f"model.{name}": t.contiguous() for name, t in model.state_dict().items()}
        scalars: dict[str, Any] = {}
        for index, entries in state["state"].items():
            for name, value in entries.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer.{index}.{name}"] = value.contiguous()
                else:
                    scalars[f"{index}.{name}"] = value
        tensors["generator"] = generator.get_state()
        header = {
            "format": FORMAT,
            "config": self.config,
            "step": step,
            "history": history.columns,
            "optimizer": {
                "kind": type(optimizer).__name__,
                "groups": state["param_groups"],
                "scalars": scalars,
            },
        }
        write_atomic(self.path, save(tensors, {"innerloop": json.dumps(header)}))

    def restore(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, generator: torch.Generator
    ) -> tuple[int, History]:
        """Puts the saved state into the arguments; returns the step and the history so far.

        Without a file there is nothing to restore: step 0 and an empty history.
        """
        if not self.path.exists():
            return 0, History()
        header, tensors = read_checkpoint(self.path)
        own = json.loads(json.dumps(self.config))  # as it would come back: tuples as lists
        if header["config"] != own:
            names = {*header["config"], *own}
            differing = sorted(k for k in names if header["config"].get(k) != own.get(k))
            raise CheckpointError(
                f"the checkpoint {self.path} belongs to another run (it differs in "
                f"{', '.join(differing)}); choose another folder or remove it"
            )
        if header["optimizer"]["kind"] != type(optimizer).__name__:
            raise CheckpointError(
                f"the checkpoint {self.path} was written with the optimizer "
                f"{header['optimizer']['kind']}, got {type(optimizer).__name__}"
            )
        load_weights(model, tensors, self.path)
        state: dict[int, dict[str, Any]] = {}
        for key, tensor in tensors.items():
            if key.startswith("optimizer."):
                _, index, name = key.split(".", 2)
                state.setdefault(int(index), {})[name] = tensor
        for key, value in header["optimizer"]["scalars"].items():
            index, name = key.split(".", 1)
            state.setdefault(int(index), {})[name] = value
        optimizer.load_state_dict({"state": state, "param_groups": header["optimizer"]["groups"]})
        generator.set_state(tensors["generator"])
        return header["step"], History(header["history"])


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and the tensors of a checkpoint file."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise CheckpointError(f"there is no checkpoint at {path}") from error
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is damaged or is not a checkpoint: {error}") from error
    try:
        header = json.loads(metadata["innerloop"])
    except (KeyError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path} was not written by innerloop") from error
    if header.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has the format {header.get('format')!r}, this version reads {FORMAT!r}"
        )
    return header, tensors


def load_weights(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Puts a checkpoint's weights into a model of the same shape."""
    saved = {k.removeprefix("model."): t for k, t in tensors.items() if k.startswith("model.")}
    expected = {name: list(t.shape) for name, t in model.state_dict().items()}
    found = {name: list(t.shape) for name, t in saved.items()}
    if expected != found:
        raise CheckpointError(
            f"the checkpoint {path} holds weights of shapes {found}, the model has {expected}"
        )
    model.load_state_dict(saved)
