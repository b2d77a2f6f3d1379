"""The expected loss of a learner, estimated on fresh prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms import Learner, answers, curve_answers
from innerloop.prompt import Prompt
from innerloop.sequence import TokenSequence
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


MOST_SAMPLES = 10**8
"""Prompts to average over: minutes for the quickest learner, and four digits of the mean."""
CHUNK_BYTES = 2**28
"""Of the covariates that are in memory at one time, about."""


def chunk_for(task: Task) -> int:
    """How many prompts of a task to draw at one time: at most 20,000, fewer if they are long."""
    return max(1, min(20_000, CHUNK_BYTES // (8 * (task.n + 1) * (task.d + 1))))


def require_samples(samples: int) -> None:
    if samples < 2:
        raise ValueError(f"samples must be at least 2 to give a standard error, got {samples}")
    if samples > MOST_SAMPLES:
        raise ValueError(
            f"samples must be at most {MOST_SAMPLES}, got {samples}; more would take hours, and "
            "the standard error falls with their square root only"
        )


@torch.no_grad()
def estimate_risk(
    learner: Learner,
    task: Task,
    *,
    samples: int,
    generator: torch.Generator,
    chunk: int | None = None,
    watch: Callable[[int], None] = lambda done: None,
) -> Estimate:
    """The expected loss over fresh prompts, averaged over the targets of a prompt.

    Drawn in chunks of bounded memory; `watch` is told after each how many prompts are done.
    """

    def errors(batch: Any) -> Tensor:
        return batch.errors(answers(learner, batch)).unsqueeze(1)

    (estimate,) = _in_chunks(errors, task, samples, chunk, generator, watch)
    return estimate


@torch.no_grad()
def learning_curve(
    learner: Learner,
    task: Task,
    *,
    samples: int,
    generator: torch.Generator,
    chunk: int | None = None,
) -> list[Estimate]:
    """The expected squared error of predicting example k + 1 from the first k, k = 0 to n.

    On the same prompts for all k; the last is the last query's. Where the task's queries are
    without noise, so are the labels compared with at every k. Of a token sequence, the error at
    every position that is asked about, averaged over its coordinates. Sentences have no curve:
    their targets differ in number.
    """

    return _in_chunks(partial(position_errors, learner), task, samples, chunk, generator)


@torch.no_grad()
def position_errors(learner: Learner, batch: Any) -> Float[Tensor, "batch positions"]:
    """The squared error of every prompt at every position, as `learning_curve` averages it."""
    if isinstance(batch, TokenSequence):
        return (answers(learner, batch) - batch.targets).square().mean(-1)
    if isinstance(batch, Prompt):
        return (curve_answers(learner, batch) - batch.curve_targets()).square()
    raise ValueError(f"{type(batch).__name__} have no learning curve")


def _in_chunks(
    function: Callable[[Any], Tensor],
    task: Task,
    samples: int,
    chunk: int | None,
    generator: torch.Generator,
    watch: Callable[[int], None] = lambda done: None,
) -> list[Estimate]:
    """The mean over prompts of every column that the function gives, [prompts, columns].

    Means and squares of chunks are put together as they come (Chan, Golub and LeVeque 1979):
    memory does not grow with the number of prompts.
    """
    require_samples(samples)
    chunk = chunk_for(task) if chunk is None else chunk
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    done, mean, squares = 0, torch.zeros(()), torch.zeros(())
    while done < samples:
        size = min(chunk, samples - done)
        values = function(task.sample(size, generator=generator)).double().cpu()
        own = values.mean(0)
        apart = own - mean
        squares = squares + (values - own).square().sum(0) + apart**2 * done * size / (done + size)
        mean = mean + apart * size / (done + size)
        done += size
        watch(done)
    errors = (squares / (samples - 1) / samples).sqrt()
    return [Estimate(m, e, samples) for m, e in zip(mean.tolist(), errors.tolist(), strict=True)]
