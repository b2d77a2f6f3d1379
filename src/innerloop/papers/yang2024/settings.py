"""The settings that several claims and figures of the paper share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from innerloop import theory
from innerloop.models import DictionaryAttention
from innerloop.papers.common import DTYPE, generator
from innerloop.papers.yang2024.half_loss import ExactHalfLoss, two_rates
from innerloop.tasks import DictionaryRegression, GaussianCoefficients
from innerloop.training import History, train


@dataclass(frozen=True)
class Sizes:
    """The paper's d, m, N, K, tau and H."""

    d: int
    features: int
    shown: int
    tokens: int
    tau: float
    heads: int

    def __str__(self) -> str:
        return (
            f"d = {self.d}, m = {self.features}, N = {self.shown}, K = {self.tokens}, "
            f"tau = {self.tau}, H = {self.heads}"
        )


SMALL = Sizes(8, 6, 5, 20, 0.05, 16)
"""Where training takes a second; the paper leaves sizes open outside its figures."""
TINY = (
    Sizes(2, 2, 2, 4, 0.5, 4),
    Sizes(2, 2, 2, 4, 0.5, 16),
    Sizes(3, 3, 3, 6, 0.5, 12),
)
"""Where the rate of Theorem 1 is large enough to be seen: it falls quickly with N."""
FULL = Sizes(100, 20, 30, 200, 0.01, 64)
"""Section 4, Figures 2 and 4; tau is that of Figure 3, since it is not given for these."""
AXIS_TAU = 4e-5
"""The tau for which the infimum is where the axis of Figure 4 ends, at 0.001."""
RATE = 1e-2
"""Of Adam, in the figures; with the printed 1e-4 training hardly begins, see Figure 2a."""
OUT_OF_DOMAIN = GaussianCoefficients(1.0, 2.0)
"""N(1, 4 I), the second test set of section 4."""


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=DTYPE)


@dataclass(frozen=True)
class Instance:
    """A dictionary, a transformer at its random start, and the exact loss."""

    task: DictionaryRegression
    model: DictionaryAttention
    objective: ExactHalfLoss

    @property
    def risk(self) -> theory.softmax.DictionaryRisk:
        return self.objective.risk

    def softmaxes(self) -> Tensor:
        return self.model.softmaxes(self.task.tokens, self.task.shown).detach()

    def attention(self) -> Tensor:
        return self.model.attention(self.task.tokens, self.task.shown).detach()

    def outputs(self) -> Tensor:
        """B_k = Zbar C_k, whose columns are the heads (Eq. 13): [tokens, shown, heads]."""
        return self.risk.root @ self.softmaxes().permute(2, 1, 0)

    def constants(self) -> theory.softmax.DescentConstants:
        return theory.softmax.DescentConstants.of(self.risk, self.softmaxes())

    def zeta(self) -> float:
        return theory.softmax.smallest_eigenvalue(self.risk, self.softmaxes()).item()

    def zeta_in_words(self) -> str:
        """zeta_0 in digits, or its bound where float64 cannot tell a singular value from 0."""
        rounding = torch.finfo(DTYPE).eps * torch.linalg.matrix_norm(self.outputs(), 2).max().item()
        zeta = self.zeta()
        return f"{zeta:.1e}" if zeta > rounding**2 else f"below (eps |B|)^2 = {rounding**2:.0e}"

    def fit_weights(self) -> None:
        """w by least squares with Q as it is: the infimum, if the heads have full row rank."""
        targets = (self.risk.root @ self.risk.optimum).mT  # [tokens, shown]
        solution = torch.linalg.pinv(self.outputs()) @ targets.unsqueeze(-1)
        with torch.no_grad():
            self.model.w.copy_(solution.squeeze(-1).mT)

    def descend(
        self,
        steps: int,
        *,
        query_rate: float,
        weight_rate: float,
        every: int = 1,
        metrics: dict[str, Callable[[Any], Any]] | None = None,
    ) -> History:
        """Gradient descent (Eq. 10) on the exact loss; the history has the gap of every record."""
        gap = {"gap": lambda model: self.objective.gap(model).item()}
        return train(
            self.model,
            self.objective,
            two_rates(self.model, query_rate=query_rate, weight_rate=weight_rate),
            steps=steps,
            generator=generator(0),  # nothing is sampled
            every=every,
            metrics=gap | (metrics or {}),
        )


def infimum_and_axis(sizes: Sizes) -> str:
    """What the axis of Figure 4 says about tau."""
    here, there = (
        instance(replace(sizes, tau=tau, heads=1), 0).risk.infimum for tau in (sizes.tau, AXIS_TAU)
    )
    return (
        f"{here:.4f}; the axis of Figure 4 goes down to 0.001, where no loss can be with this tau: "
        f"either tau is about {AXIS_TAU:g} there (L* = {there:.4f}) or what is drawn is L - L*"
    )


def instance(sizes: Sizes, seed: int, *, unit: bool = True) -> Instance:
    """Gaussian features, tokens of norm 1 (or Gaussian), Q standard normal, w = 0."""
    source = generator(seed)
    task = DictionaryRegression.gaussian(
        sizes.d,
        sizes.features,
        sizes.tokens,
        sizes.shown,
        sizes.tau,
        generator=source,
        unit=unit,
    )
    model = DictionaryAttention.gaussian(sizes.heads, sizes.d, sizes.tokens, generator=source)
    return Instance(task, model, ExactHalfLoss(task))
