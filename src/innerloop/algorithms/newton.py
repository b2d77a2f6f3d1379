"""Newton's iteration for the inverse of the examples' second-moment matrix."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.learner import prefix_predictions
from innerloop.prompt import Prompt


@dataclass(frozen=True)
class Newton:
    """M_0 = alpha S,   M_{k+1} = 2 M_k - M_k S M_k,   w_k = M_k X^T y,   S = X^T X.

    AlgoFormer 2024, Eq. 4, who allow alpha in (0, 2 / |S S^T|_2]. The error on an eigenvalue s of
    S is 1 - s m_k = (1 - alpha s^2)^(2^k): quadratic convergence to the minimum-norm least-squares
    solution, except at alpha = 2 / |S S^T|_2 itself, where the largest eigenvalue never moves.
    """

    steps: int
    scale: float = 1.0
    """alpha in units of 1 / |S S^T|_2, in (0, 2]."""

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ValueError(f"steps must be 0 or more, got {self.steps}")
        if not 0 < self.scale <= 2:
            raise ValueError(f"scale must be in (0, 2], got {self.scale}")

    def iterates(self, prompt: Prompt) -> Float[Tensor, "batch iterates d"]:
        s = prompt.x.mT @ prompt.x  # [batch, d, d]
        moment = prompt.x.mT @ prompt.y.unsqueeze(-1)  # [batch, d, 1]
        largest = torch.linalg.eigvalsh(s)[:, -1].clamp_min(torch.finfo(s.dtype).tiny ** 0.5)
        inverse = self.scale * s / largest[:, None, None] ** 2
        path = [inverse @ moment]
        for _ in range(self.steps):
            inverse = 2 * inverse - inverse @ s @ inverse
            path.append(inverse @ moment)
        return torch.stack(path, dim=1).squeeze(-1)

    def __call__(self, prompt: Prompt) -> Float[Tensor, " batch"]:
        return (self.iterates(prompt)[:, -1] * prompt.x_query).sum(-1)

    def learning_curve(self, prompt: Prompt) -> Float[Tensor, "batch counts"]:
        return prefix_predictions(self, prompt)
