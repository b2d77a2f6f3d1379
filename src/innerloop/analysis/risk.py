"""The expected loss of a learner, estimated on fresh prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms import Learner, prefix_predictions
from innerloop.prompt import Prompt
from innerloop.tasks import Task


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error.

    The standard error is itself estimated, and is too small where rare samples carry the mean:
    for losses of degree 8 or more in the Gram matrix, prefer an exact value.
    """

    mean: float
    standard_error: float
    samples: int

    @classmethod
    def of(cls, values: Float[Tensor, " samples"]) -> Estimate:
        count = len(values)
        return cls(values.mean().item(), values.std().item() / count**0.5, count)

    def z(self, exact: float) -> float:
        """How many standard errors the mean lies above this value."""
        return (self.mean - exact) / self.standard_error

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.standard_error:.1g}"


@torch.no_grad()
def estimate_risk(
    learner: Learner, task: Task, *, samples: int, generator: torch.Generator, chunk: int = 20_000
) -> Estimate:
    """E (prediction - y_q)^2 over fresh prompts, drawn in chunks of bounded memory."""

    def errors(prompt: Prompt) -> Tensor:
        return (learner(prompt) - prompt.y_query).square()

    return Estimate.of(_in_chunks(errors, task, samples, chunk, generator))


@torch.no_grad()
def learning_curve(
    learner: Any, task: Task, *, samples: int, generator: torch.Generator, chunk: int = 20_000
) -> list[Estimate]:
    """The expected loss after 0, 1, ..., n examples, on the same prompts."""
    curve: Callable[[Prompt], Tensor] = getattr(
        learner, "learning_curve", lambda prompt: prefix_predictions(learner, prompt)
    )

    def errors(prompt: Prompt) -> Tensor:
        return (curve(prompt) - prompt.y_query.unsqueeze(1)).square()

    return [Estimate.of(v) for v in _in_chunks(errors, task, samples, chunk, generator).unbind(1)]


def _in_chunks(
    function: Callable[[Prompt], Tensor],
    task: Task,
    samples: int,
    chunk: int,
    generator: torch.Generator,
) -> Tensor:
    if samples < 2:
        raise ValueError(f"samples must be at least 2 to give a standard error, got {samples}")
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    sizes = [chunk] * (samples // chunk) + ([samples % chunk] if samples % chunk else [])
    return torch.cat([function(task.sample(size, generator=generator)) for size in sizes])
