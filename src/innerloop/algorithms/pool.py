"""The Bayesian answer where the prompt's task is one of a known list."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.learner import linear_prediction
from innerloop.prompt import Prompt


@dataclass(frozen=True)
class PoolPosterior:
    """The posterior mean of <w, x_q> if w is a row of `pool`, all equally likely.

    Rows weigh exp(-sum_i (<w, x_i> - y_i)^2 / (2 noise_std^2)). Without noise it is the row that
    fits best, the mean of all that fit equally well.
    """

    pool: Float[Tensor, "tasks d"]
    noise_std: float = 0.0

    def weights(self, prompt: Prompt) -> Float[Tensor, "batch d"]:
        residuals = prompt.x @ self.pool.mT - prompt.y.unsqueeze(-1)  # [batch, n, tasks]
        misfit = residuals.square().sum(1)
        if self.noise_std > 0:
            share = (-misfit / (2 * self.noise_std**2)).softmax(-1)
        else:
            rounding = 1e3 * torch.finfo(misfit.dtype).eps * prompt.y.square().sum(1, keepdim=True)
            best = (misfit <= misfit.amin(-1, keepdim=True) + rounding).to(misfit)
            share = best / best.sum(-1, keepdim=True)
        return share @ self.pool

    def __call__(self, prompt: Prompt) -> Float[Tensor, "batch queries"]:
        return linear_prediction(self.weights(prompt), prompt)
