"""The Lasso on the examples of a prompt."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.learner import linear_prediction
from innerloop.prompt import Prompt


@dataclass(frozen=True)
class Lasso:
    """argmin_w (1/2n) sum_i (<w, x_i> - y_i)^2 + penalty |w|_1.

    By accelerated proximal gradient steps of size 1 / |S|_2 on all prompts at once (Beck and
    Teboulle 2009), until no entry of w moves by more than `tolerance` times the largest one, or
    than rounding would move it.
    """

    penalty: float
    tolerance: float = 1e-8
    most_steps: int = 10_000

    def __post_init__(self) -> None:
        if not 0 < self.penalty < float("inf"):
            raise ValueError(
                f"penalty must be positive and finite, got {self.penalty}. "
                "For no penalty, use LeastSquares()."
            )

    def weights(self, prompt: Prompt) -> Float[Tensor, "batch d"]:
        s, m = prompt.moments()
        largest = torch.linalg.eigvalsh(s)[:, -1:].clamp_min(torch.finfo(s.dtype).tiny ** 0.5)
        tolerance = max(self.tolerance, 4 * torch.finfo(s.dtype).eps)
        w = torch.zeros_like(m)
        ahead, momentum, moving = w, 1.0, torch.ones_like(largest, dtype=torch.bool)
        for _ in range(self.most_steps):
            step = ahead + (m - (s @ ahead.unsqueeze(-1)).squeeze(-1)) / largest
            shrunk = step.sign() * (step.abs() - self.penalty / largest).clamp_min(0)
            after = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
            # A prompt that has converged stays as it is, however long its neighbours take.
            moved = torch.where(moving, shrunk, w)
            ahead = moved + (momentum - 1) / after * (moved - w)
            change = (moved - w).abs().amax(1, keepdim=True)
            w, momentum = moved, after
            moving = moving & (change > tolerance * w.abs().amax(1, keepdim=True))
            if not moving.any():
                break
        return w

    def __call__(self, prompt: Prompt) -> Float[Tensor, "batch queries"]:
        return linear_prediction(self.weights(prompt), prompt)
