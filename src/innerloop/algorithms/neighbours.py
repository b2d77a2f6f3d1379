"""Learners without a model: neighbours, and the average that is one step of gradient descent."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.learner import linear_prediction
from innerloop.prompt import Prompt


@dataclass(frozen=True)
class NearestNeighbours:
    """The mean label of the k examples nearest to the query; of all, if there are fewer."""

    k: int = 3

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k must be at least 1, got {self.k}")

    def __call__(self, prompt: Prompt) -> Float[Tensor, "batch queries"]:
        if prompt.n == 0:
            return torch.zeros_like(prompt.y_query)
        distances = torch.cdist(prompt.x_query, prompt.x)  # [#batch, queries, n]
        nearest = distances.topk(min(self.k, prompt.n), largest=False).indices
        nearest = nearest.expand(len(prompt), -1, -1)
        labels = prompt.y.unsqueeze(1).expand(-1, prompt.queries, -1)
        return labels.gather(2, nearest).mean(-1)


@dataclass(frozen=True)
class Averaging:
    """<(1/n) sum_i y_i x_i, x_q>: for white covariates an unbiased guess of w (Garg 2022)."""

    def __call__(self, prompt: Prompt) -> Float[Tensor, "batch queries"]:
        _, m = prompt.moments()
        return linear_prediction(m, prompt)
