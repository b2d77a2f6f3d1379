"""Gradient descent on a two-layer network: the usual way to learn such a function from a prompt."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.prompt import Prompt


@dataclass(frozen=True)
class NetworkDescent:
    """sqrt(2 / hidden) sum_j a_j max(0, <w_j, x>), fitted to the examples of every prompt by Adam.

    All prompts of a batch descend at once, from the same normal start; the answer is 0 without
    examples (Garg 2022, section 3.3).
    """

    hidden: int = 100
    steps: int = 200
    lr: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("hidden", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.lr < float("inf"):
            raise ValueError(f"lr must be positive and finite, got {self.lr}")

    def __call__(self, prompt: Prompt) -> Float[Tensor, "batch queries"]:
        if prompt.n == 0:
            return torch.zeros_like(prompt.y_query)
        batch, d = len(prompt), prompt.x.shape[-1]
        generator = torch.Generator().manual_seed(self.seed)
        inner = torch.randn(d, self.hidden, generator=generator).to(prompt.x)
        outer = torch.randn(self.hidden, 1, generator=generator).to(prompt.x)
        # Without the start's own function, which would be noise: f(x) minus f(x) at the start.
        start = [inner.expand(batch, -1, -1), outer.expand(batch, -1, -1)]
        weights = [w.clone().requires_grad_() for w in start]

        def function(x: Tensor) -> Tensor:
            moved = torch.relu(x @ weights[0]) @ weights[1] - torch.relu(x @ start[0]) @ start[1]
            return (2 / self.hidden) ** 0.5 * moved.squeeze(-1)

        optimizer = torch.optim.Adam(weights, lr=self.lr)
        with torch.enable_grad():
            for _ in range(self.steps):
                optimizer.zero_grad()
                (function(prompt.x) - prompt.y).square().mean(1).sum().backward()
                optimizer.step()
        with torch.no_grad():
            return function(prompt.x_query)
