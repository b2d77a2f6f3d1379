"""Chain of thought: every prompt shows a network of its own at work, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import leaky_relu

from innerloop.sequence import TokenSequence
from innerloop.tasks.checks import require_at_least
from innerloop.tasks.covariates import normal


@dataclass(frozen=True)
class ChainOfThought:
    """n + 1 chains x, s_1, ..., s_L of a leaky-ReLU network that is fresh for every prompt.

        s_0 = x ~ N(0, I),   s_l = max(v, slope v) with v = W_l s_{l-1},   W_l ~ N(0, g^2 / d)

    where g^2 = 2 / (1 + slope^2) keeps E |s_l|^2 = d. Gao 2024, section 3.3, leaves open whether
    the network is redrawn; if it were not, there would be nothing to learn from the prompt.

    Attributes:
        n: chains before the last one.
        layers: L, the steps of a chain.
    """

    d: int
    n: int
    layers: int = 3
    slope: float = 0.1
    dtype: torch.dtype = torch.float64

    def __post_init__(self) -> None:
        for name in ("d", "n", "layers"):
            require_at_least(name, getattr(self, name), 1)
        if not 0 < self.slope <= 1:
            raise ValueError(f"slope must be above 0 and at most 1, got {self.slope}")

    def sample(self, batch: int, *, generator: torch.Generator) -> TokenSequence:
        """Tokens x, s_1, ..., s_L of one chain after the other; the next step is asked for at each
        but the last of a chain."""
        require_at_least("batch", batch, 1)
        gain = (2 / (1 + self.slope**2) / self.d) ** 0.5
        weights = gain * normal(generator, self.layers, batch, self.d, self.d, dtype=self.dtype)
        steps = [normal(generator, batch, self.n + 1, self.d, dtype=self.dtype)]
        for w in weights:
            steps.append(leaky_relu(steps[-1] @ w.mT, self.slope))
        tokens = torch.stack(steps, dim=2).flatten(1, 2)  # [batch, (n + 1) (L + 1), d]
        places = torch.arange(tokens.shape[1], device=tokens.device)
        asked = places[places % (self.layers + 1) < self.layers]
        return TokenSequence(tokens[:, :-1], asked, tokens[:, asked + 1])
