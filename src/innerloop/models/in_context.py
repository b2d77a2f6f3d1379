"""Models of sequences as learners: of prompts x_1, y_1, ..., x_q, and at every position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.algorithms.learner import example_by_example
from innerloop.models.decoder import SequenceModel
from innerloop.models.looped import Looped
from innerloop.prompt import Prompt
from innerloop.sequence import TokenSequence


class InContext(nn.Module):
    """Interleaves a prompt and reads the model's prediction at the query.

    The learning curve takes a single pass: a causal model's output at x_{k+1} has seen the first k
    examples and no more. A model that is not causal is asked about each example by itself.
    """

    def __init__(self, model: SequenceModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, prompt: Prompt, **how: Any) -> Float[Tensor, "batch queries"]:
        """`how` is passed on to the model, such as loops=20."""
        return self.model(prompt.interleave().last(), **how).view_as(prompt.y_query)

    def after_loops(
        self, prompt: Prompt, counts: Sequence[int]
    ) -> Float[Tensor, "counts batch queries"]:
        """The predictions of a looped model after each of these numbers of loops."""
        if not isinstance(self.model, Looped):
            raise ValueError(f"only a looped model can be looped, got {type(self.model).__name__}")
        answers = self.model.after_loops(prompt.interleave().last(), counts)
        return answers.view(len(counts), *prompt.y_query.shape)

    def learning_curve(self, prompt: Prompt, **how: Any) -> Float[Tensor, "batch counts"]:
        if not self.model.causal:
            return example_by_example(self, prompt)
        one_query = prompt.next_example(prompt.n)
        return self.model(one_query.interleave(), **how).squeeze(-1)


class EachPosition(nn.Module):
    """A model that is not causal, asked about every position by itself, of the tokens up to there.

    What `InContext` does for prompts. A causal model needs no such thing.
    """

    def __init__(self, model: SequenceModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: TokenSequence, **how: Any) -> Float[Tensor, "batch positions outputs"]:
        """`how` is passed on to the model, such as loops=20."""
        return torch.cat([self.model(part, **how) for part in self._parts(batch)], dim=1)

    def after_loops(
        self, batch: TokenSequence, counts: Sequence[int]
    ) -> Float[Tensor, "counts batch positions outputs"]:
        """The predictions of a looped model after each of these numbers of loops."""
        if not isinstance(self.model, Looped):
            raise ValueError(f"only a looped model can be looped, got {type(self.model).__name__}")
        answers = [self.model.after_loops(part, counts) for part in self._parts(batch)]
        return torch.cat(answers, dim=2)

    def _parts(self, batch: TokenSequence) -> list[TokenSequence]:
        return [
            TokenSequence(
                batch.tokens[:, : p + 1], batch.readout[i : i + 1], batch.targets[:, i : i + 1]
            )
            for i, p in enumerate(batch.readout.tolist())
        ]
