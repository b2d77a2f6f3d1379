"""What every task is, and how it says what is known of it."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch


@runtime_checkable
class Task(Protocol):
    """A distribution over prompts, or over anything else that has `targets`."""

    @property
    def d(self) -> int:
        """The dimension of covariates."""
        ...

    @property
    def n(self) -> int:
        """Examples in a prompt, not counting queries."""
        ...

    def sample(self, batch: int, *, generator: torch.Generator) -> Any:
        """`batch` independent prompts; the generator is the only source of randomness."""
        ...


class NoClosedForm(ValueError):
    """No exact value is known here; the message says why, and what to do instead."""
