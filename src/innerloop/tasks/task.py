"""What every task is."""

from typing import Protocol

import torch

from innerloop.prompt import Prompt


class Task(Protocol):
    """A distribution over prompts."""

    def sample(self, batch: int, *, generator: torch.Generator) -> Prompt:
        """`batch` independent prompts; the generator is the only source of randomness."""
        ...
