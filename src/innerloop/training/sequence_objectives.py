"""What sequence models are trained on: every position of a prompt, and a window of loop counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.algorithms import answers, curve_answers
from innerloop.models import InContext, Looped, Translator
from innerloop.prompt import Prompt
from innerloop.tasks import Task
from innerloop.training.objectives import require_batch


@dataclass(frozen=True)
class EveryPosition:
    """Mean squared error of predicting every example from those before it, and the query last.

    In a decoder one pass gives all of them (Garg et al. 2022). Learners of one prediction at a time
    are asked n + 1 times. Sequences and sentences have their own loss at every position.
    """

    task: Task
    batch: int

    def __post_init__(self) -> None:
        require_batch(self.batch)

    def sample(self, generator: torch.Generator) -> Any:
        return self.task.sample(self.batch, generator=generator)

    def loss(self, model: nn.Module, batch: Any) -> Float[Tensor, ""]:
        if isinstance(batch, Prompt):
            return (curve_answers(model, batch) - batch.curve_targets()).square().mean()
        if isinstance(model, Translator):
            return model.loss(batch)
        return batch.loss(answers(model, batch))


@dataclass(frozen=True)
class LoopWindow:
    """The loss at every position, averaged over the last `window` loop counts (AlgoFormer, Eq. 6).

        (1 / window) sum_{t = T - window + 1}^{T} loss after t loops

    The printed sum begins at T0 = T - window, one term more than its weight counts; here it is the
    `window` terms that the weight says.

    Args:
        loops: T.
        window: the dT of the paper, at most T.
        truncate: whether the loops before the window pass no gradient, as in Yang et al. (2023).
    """

    task: Task
    batch: int
    loops: int
    window: int
    truncate: bool = True

    def __post_init__(self) -> None:
        require_batch(self.batch)
        if self.loops < 1:
            raise ValueError(f"loops must be at least 1, got {self.loops}")
        if not 1 <= self.window <= self.loops:
            raise ValueError(
                f"window must be between 1 and the {self.loops} loops, got {self.window}"
            )

    def limited(self, loops: int) -> LoopWindow:
        """The same with at most so many loops, for a curriculum that begins with few."""
        loops = min(loops, self.loops)
        return replace(self, loops=loops, window=min(self.window, loops))

    def sample(self, generator: torch.Generator) -> Any:
        return self.task.sample(self.batch, generator=generator)

    def loss(self, model: nn.Module, batch: Any) -> Float[Tensor, ""]:
        inside = model.model if isinstance(model, InContext | Translator) else model
        if not isinstance(inside, Looped):
            raise ValueError(f"a window of loops needs a looped model, got {type(inside).__name__}")
        before = self.loops - self.window
        counts = range(before + 1, self.loops + 1)
        cut = before if self.truncate else 0
        if isinstance(model, Translator):
            return model.loss(batch, counts, without_gradient=cut)
        sequence = batch.interleave() if isinstance(batch, Prompt) else batch
        return sequence.loss(inside.predictions(sequence, counts, without_gradient=cut))
