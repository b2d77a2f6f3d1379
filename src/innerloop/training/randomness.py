"""Dropout from a run's own generator: torch's layers draw from the global one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def global_generator_of_step(
    generator: torch.Generator, step: int, device: torch.device
) -> Iterator[None]:
    """Within, the global generators follow from the generator's seed and the step alone.

    Nothing is drawn from the generator: a model without dropout sees the same data with and
    without this, and a resumed run sees the same dropout. Afterwards the global generators are as
    they were before.
    """
    text = f"{generator.initial_seed()} {step}"
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
    if device.type == "cpu":
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            yield
        return
    devices = range(torch.get_device_module(device).device_count())
    with torch.random.fork_rng(devices=devices, device_type=device.type):
        torch.manual_seed(seed)
        yield
