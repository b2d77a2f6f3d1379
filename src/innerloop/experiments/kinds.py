"""What a task samples, and entries of the catalogue that are for prompts alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from innerloop.sequence import TokenSequence
from innerloop.tasks import Task, moved

P = ParamSpec("P")
T = TypeVar("T")


def one_sample(task: Task) -> Any:
    """What the task samples, once, always the same."""
    return moved(task, "cpu").sample(1, generator=torch.Generator().manual_seed(0))


def samples_sequences(task: Task) -> bool:
    """Whether it samples token sequences, and not prompts."""
    return isinstance(one_sample(task), TokenSequence)


def of_prompts(
    factory: Callable[Concatenate[Task, P], T],
) -> Callable[Concatenate[Task, P], T]:
    """The same factory, which refuses a task of token sequences with a sentence."""

    @wraps(factory)
    def build(task: Task, /, *given: P.args, **options: P.kwargs) -> T:
        if samples_sequences(task):
            raise ValueError(
                f"{factory.__name__.replace('_', '-')} reads prompts of examples and queries, and "
                f"{type(task).__name__} samples token sequences; a transformer such as gpt2 and "
                "the algorithms zero and feature-ridge read those"
            )
        return factory(task, *given, **options)

    return build
