"""Where to compute."""

from __future__ import annotations

import torch


def usable(device: torch.device | str) -> torch.device:
    """The device, if this machine has it; refused with a sentence if not."""
    try:
        return torch.Generator(device).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"device must be one that this machine computes on, such as cpu, got '{device}': "
            f"{reason}"
        ) from error
