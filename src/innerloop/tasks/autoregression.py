"""Autoregression in context: every prompt is one trajectory of a system of its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.sequence import TokenSequence
from innerloop.tasks.checks import require_at_least, require_not_negative
from innerloop.tasks.covariates import normal
from innerloop.tasks.representation import LeakyNetwork


@dataclass(frozen=True)
class Autoregression:
    """x_{t+1} = A phi(x_{t-q+1}, ..., x_t) + noise_std N(0, I), with A fresh for every prompt.

    Gao 2024, section 3.2, prints A ~ N(0, I), with which trajectories explode. Here A is a random
    rotation and phi is scaled to the norm sqrt(d), so that every x_t has that norm but for noise.
    The first q points are N(0, I). The targets carry the noise: it is what the system does next.

    Attributes:
        representation: phi before its scaling, from q d to d coordinates, the same in all prompts.
        n: points whose successor is asked for, with an increasing number of examples before them.
    """

    representation: LeakyNetwork
    n: int
    noise_std: float = 0.0
    scaled: bool = True
    """Whether phi is scaled to the norm sqrt(d), without which trajectories may grow or vanish."""

    def __post_init__(self) -> None:
        require_at_least("n", self.n, 1)
        require_not_negative("noise_std", self.noise_std)
        if self.representation.d % self.d:
            raise ValueError(
                f"representation must take q points of d = {self.d} coordinates, got "
                f"{self.representation.d} inputs"
            )

    @property
    def d(self) -> int:
        return self.representation.outputs

    @property
    def q(self) -> int:
        """How many points the next one depends on."""
        return self.representation.d // self.d

    def features(self, last: Float[Tensor, "*batch q d"]) -> Float[Tensor, "*batch d"]:
        """phi of the last q points, oldest first, scaled to the norm sqrt(d) unless told not to."""
        phi = self.representation(last.flatten(-2))
        if not self.scaled:
            return phi
        return phi * (self.d**0.5 / phi.norm(dim=-1, keepdim=True).clamp_min(1e-30))

    def sample(self, batch: int, *, generator: torch.Generator) -> TokenSequence:
        """Tokens x_1, ..., x_{q+n-1}; at x_q and after it, the next point is asked for."""
        require_at_least("batch", batch, 1)
        dtype = self.representation.weights[0].dtype
        system = torch.linalg.qr(normal(generator, batch, self.d, self.d, dtype=dtype)).Q
        points = list(normal(generator, self.q, batch, self.d, dtype=dtype))
        for _ in range(self.n):
            phi = self.features(torch.stack(points[-self.q :], dim=1))
            after = (system @ phi.unsqueeze(-1)).squeeze(-1)
            if self.noise_std:
                after = after + self.noise_std * normal(generator, batch, self.d, dtype=dtype)
            points.append(after)
        path = torch.stack(points, dim=1)
        asked = torch.arange(self.q - 1, self.q - 1 + self.n, device=path.device)
        return TokenSequence(path[:, :-1], asked, path[:, self.q :])
