"""What a task samples, and entries of the catalogue that are for prompts alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from innerloop.prompt import Prompt
from innerloop.sentences import SentencePairs
from innerloop.sequence import TokenSequence
from innerloop.tasks import Task, moved

P = ParamSpec("P")
T = TypeVar("T")

IN_WORDS = {
    Prompt: "prompts",
    TokenSequence: "token sequences",
    SentencePairs: "pairs of sentences",
}
"""What tasks sample; a task of the user's own may sample anything else with `targets`."""

READERS = {
    TokenSequence: "a transformer such as gpt2 and the algorithms zero, feature-ridge and "
    "feature-gd",
    SentencePairs: "the model translator and the algorithms zero and unigram",
}
"""Who reads what is no prompt."""


def one_sample(task: Task) -> Any:
    """What the task samples, once, always the same."""
    return moved(task, "cpu").sample(1, generator=torch.Generator().manual_seed(0))


def kind_of(task: Task) -> type:
    """The class of what it samples."""
    return type(one_sample(task))


def samples(task: Task) -> str:
    """What it samples, in words."""
    kind = kind_of(task)
    return IN_WORDS.get(kind, f"a {kind.__name__}")


def require_readable(reader: str, own: Task, given: Task) -> None:
    """Refuses a task whose samples a model that was made for its own one cannot read."""
    read, sampled = samples(own), samples(given)
    if read != sampled:
        raise ValueError(f"{reader} reads {read}, and {type(given).__name__} samples {sampled}")
    if own.d != given.d:
        raise ValueError(f"{reader} reads d = {own.d}, the task has d = {given.d}")


def of_prompts(
    factory: Callable[Concatenate[Task, P], T],
) -> Callable[Concatenate[Task, P], T]:
    """The same factory, which refuses a task of anything else with a sentence."""

    @wraps(factory)
    def build(task: Task, /, *given: P.args, **options: P.kwargs) -> T:
        readers = READERS.get(kind_of(task))
        if readers is not None:
            raise ValueError(
                f"{type(task).__name__} samples {samples(task)}, and what is asked for reads "
                f"prompts of examples and queries; {readers} read those"
            )
        return factory(task, *given, **options)

    return build
