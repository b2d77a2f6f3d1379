"""What every task is."""

from typing import Protocol, runtime_checkable

import torch

from innerloop.prompt import Prompt


@runtime_checkable
class Task(Protocol):
    """A distribution over prompts."""

    def sample(self, batch: int, *, generator: torch.Generator) -> Prompt:
        """`batch` independent prompts; the generator is the only source of randomness."""
        ...
