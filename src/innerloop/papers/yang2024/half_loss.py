"""The paper's loss is half the mean squared error: it, sampled and exact, and two learning rates.

Everywhere else a risk is the mean squared error itself. The factor belongs to the paper's learning
rates and bounds, which are stated for (1/2K) |prediction - targets|^2 (Yang 2024, Eq. 9).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop import theory
from innerloop.models import DictionaryAttention
from innerloop.prompt import Prompt
from innerloop.tasks import DictionaryRegression
from innerloop.training import Prompts


@dataclass(frozen=True)
class ExactHalfLoss:
    """L(theta) = E (1/2K) |prediction - targets|^2 itself (Yang 2024, Eq. 9), without sampling."""

    task: DictionaryRegression

    @cached_property
    def risk(self) -> theory.softmax.DictionaryRisk:
        task = self.task
        return theory.softmax.DictionaryRisk.of(
            task.features, task.shown, task.tau, task.second_moment
        )

    def sample(self, generator: torch.Generator) -> None:
        return None

    def loss(self, model: DictionaryAttention, batch: Any = None) -> Float[Tensor, ""]:
        return self.risk(model.attention(self.task.tokens, self.task.shown))

    def gap(self, model: DictionaryAttention) -> Float[Tensor, ""]:
        """The loss above its infimum, exact also where it is far below rounding of the loss."""
        return self.risk.gap(model.attention(self.task.tokens, self.task.shown))


@dataclass(frozen=True)
class SampledHalfLoss:
    """The same on `batch` fresh prompts; for any model that answers a dictionary's prompt."""

    task: DictionaryRegression
    batch: int

    def sample(self, generator: torch.Generator) -> Prompt:
        return self.task.sample(self.batch, generator=generator)

    def loss(self, model: nn.Module, batch: Prompt) -> Float[Tensor, ""]:
        return Prompts(self.task, self.batch).loss(model, batch) / 2


def two_rates(
    model: DictionaryAttention, *, query_rate: float, weight_rate: float
) -> torch.optim.SGD:
    """Gradient descent with eta_Q for all Q_h and eta_w for all w_h (Yang 2024, Eq. 10)."""
    for name, rate in (("query_rate", query_rate), ("weight_rate", weight_rate)):
        if not 0 <= rate < float("inf"):
            raise ValueError(f"{name} must be finite and not negative, got {rate}")
    groups = [{"params": [model.q], "lr": query_rate}, {"params": [model.w], "lr": weight_rate}]
    return torch.optim.SGD(groups)
