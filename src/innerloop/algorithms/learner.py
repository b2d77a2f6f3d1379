"""What every learner is, and the simplest one."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.prompt import Prompt


@runtime_checkable
class Learner(Protocol):
    """Anything that maps a prompt to a prediction of the query's label."""

    def __call__(self, prompt: Prompt, /) -> Float[Tensor, " batch"]: ...


def prefix_predictions(learner: Learner, prompt: Prompt) -> Float[Tensor, "batch counts"]:
    """The learner's prediction after each number of examples, 0 to n."""
    return torch.stack([learner(prompt.prefix(k)) for k in range(prompt.n + 1)], dim=1)


@dataclass(frozen=True)
class Zero:
    """Always predicts 0: the mean label, and the floor that any learner has to beat."""

    def __call__(self, prompt: Prompt) -> Float[Tensor, " batch"]:
        return prompt.x_query.new_zeros(len(prompt))

    def learning_curve(self, prompt: Prompt) -> Float[Tensor, "batch counts"]:
        return prefix_predictions(self, prompt)
