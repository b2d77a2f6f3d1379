"""Weights in safetensors files: read, checked, put into a model; nothing in them is executed."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from innerloop.runs import write_atomic


class CheckpointError(ValueError):
    """A file of weights that cannot be used here."""


def save_weights(model: nn.Module, path: str | Path) -> None:
    """Writes the weights, named as in the state dict, for `read_weights` or any other program."""
    path = Path(path)
    is_there(path)
    write_atomic(path, save(state_to_save(model)))


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, for `load_weights`."""
    return read_tensors(Path(path))[1]


def read_tensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The metadata and the tensors of a safetensors file."""
    if not is_there(path):
        raise CheckpointError(f"there is no checkpoint at {path}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RuntimeError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged or is not a checkpoint: {error}") from error
    return metadata, tensors


def is_there(path: Path) -> bool:
    """Whether there is a file. What is no regular file is refused.

    A pipe would be waited on for ever, and a device or a folder is not ours to replace.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise CheckpointError(f"cannot look at {path}: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
        what = kinds.get(stat.S_IFMT(mode), "a device")
        raise CheckpointError(f"{path} is {what}, not a file that can hold a checkpoint")
    return True


def require_weights(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """The same names, shapes and dtypes as the model's, and finite parameters."""
    own = model.state_dict()
    expected = {name: list(t.shape) for name, t in own.items()}
    found = {name: list(t.shape) for name, t in weights.items()}
    if expected != found:
        raise CheckpointError(
            f"the checkpoint {path} holds weights of shapes {found}, the model has {expected}"
        )
    for name, tensor in own.items():
        if weights[name].dtype != tensor.dtype:
            raise CheckpointError(
                f"the checkpoint {path} holds {name} in {weights[name].dtype}, "
                f"the model has {tensor.dtype}"
            )
    # Buffers may be infinite, as in the mask of an attention.
    names = {name for name, _ in model.named_parameters()}
    if bad := not_finite({name: t for name, t in weights.items() if name in names}):
        raise CheckpointError(f"the checkpoint {path} holds weights that are not finite: {bad}")


def not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of those with an entry that is infinite or NaN."""
    return [name for name, t in tensors.items() if not t.detach().isfinite().all()]


def state_to_save(model: nn.Module) -> dict[str, Tensor]:
    """The state dict in memory of its own, since safetensors takes no tied weights."""
    return {name: t.detach().clone().contiguous() for name, t in model.state_dict().items()}
