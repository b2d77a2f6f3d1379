"""The settings that several claims and figures of the paper share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from innerloop import theory
from innerloop.analysis import Estimate
from innerloop.models import DictionaryAttention
from innerloop.papers.common import DTYPE, generator, normal
from innerloop.papers.quantity import INEQUALITY, at_most, checks
from innerloop.papers.verdict import Check
from innerloop.papers.yang2024.half_loss import ExactHalfLoss, two_rates
from innerloop.tasks import DictionaryRegression, GaussianCoefficients
from innerloop.training import History, Metric, train

SQUARED_ROUNDING = at_most(
    1e-20, "equal to float64 rounding, 1e-16 a number, where squares are compared"
)
FALLS = at_most(0.0, "the mean logarithm of a ratio of paired starts: a fall is below 0")


@dataclass(frozen=True)
class Sizes:
    """The paper's d, m, N, K, tau and H."""

    d: int
    features: int
    shown: int
    tokens: int
    tau: float
    heads: int = 0

    def __str__(self) -> str:
        return (
            f"d = {self.d}, m = {self.features}, N = {self.shown}, K = {self.tokens}, "
            f"tau = {self.tau}" + (f", H = {self.heads}" if self.heads else "")
        )

    def with_heads(self, heads: int) -> Sizes:
        return replace(self, heads=heads)


SMALL = Sizes(8, 6, 5, 20, 0.05, 16)
"""Where training takes a second; the paper leaves sizes open outside its figures."""
TINY = (Sizes(2, 2, 2, 4, 0.5, 4), Sizes(2, 2, 2, 4, 0.5, 16), Sizes(3, 3, 3, 6, 0.5, 12))
"""Where the rate of Theorem 1 is large enough to be seen: it falls quickly with N."""
FULL = Sizes(100, 20, 30, 200, 0.01, 64)
"""Section 4, Figures 2 and 4; tau is that of Figure 3, since it is not given for these."""
OUT_OF_DOMAIN = GaussianCoefficients(1.0, 2.0)
"""N(1, 4 I), the second test set of section 4."""
Cell = float | int | str
Rows = dict[str, list[Cell]]
"""A table as it grows."""


def add(rows: Rows, row: Mapping[str, Cell]) -> None:
    for name, value in row.items():
        rows.setdefault(name, []).append(value)


def tensor(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=DTYPE)


def bounds(
    equation: str, over: Sequence[Any], ratio: Callable[..., float], near: Mapping[str, list[float]]
) -> list[Check]:
    """The largest ratio of the two sides, as printed and, for near misses, with factors."""

    def largest(factors: list[float]) -> float:
        return max(ratio(each, *factors) for each in over)

    name, printed = "largest ratio of the two sides", {equation: list[float]()}
    return checks(name, INEQUALITY, printed, unlike=near, measure=largest)


def mean_log(ratios: ArrayLike | Tensor) -> Estimate:
    """The mean logarithm of ratios that are independent of each other, with its error."""
    return Estimate.of(torch.as_tensor(ratios, dtype=DTYPE).log())


@dataclass(frozen=True)
class Instance:
    """A dictionary, a transformer at its random start, and the exact loss."""

    task: DictionaryRegression
    model: DictionaryAttention

    @cached_property
    def objective(self) -> ExactHalfLoss:
        return ExactHalfLoss(self.task)

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

    def with_weights(self, w: Tensor | float, q: Tensor | None = None) -> Instance:
        """Other weights, one number for all if it is one, and other query matrices if given."""
        w = w.clone() if isinstance(w, Tensor) else torch.full_like(self.model.w.detach(), w)
        q = self.model.q if q is None else q
        return Instance(self.task, DictionaryAttention(q.detach().clone(), w))

    def with_fitted_weights(self) -> Instance:
        """w by least squares with Q as it is: the infimum, if the heads have full row rank."""
        targets = (self.risk.root @ self.risk.optimum).mT  # [tokens, shown]
        solution = torch.linalg.pinv(self.outputs()) @ targets.unsqueeze(-1)
        return self.with_weights(solution.squeeze(-1).mT)

    def descend(
        self, steps: int, query_rate: float, weight_rate: float, every: int = 1, **metrics: Metric
    ) -> History:
        """Gradient descent (Eq. 10) on the exact loss; the history has the gap of every record."""
        return train(
            self.model,
            self.objective,
            two_rates(self.model, query_rate=query_rate, weight_rate=weight_rate),
            steps=steps,
            generator=generator(0),  # nothing is sampled
            every=every,
            metrics={"gap": lambda model: self.objective.gap(model).item(), **metrics},
        )


def instance(sizes: Sizes, seed: int, *, unit: bool = True) -> Instance:
    """Gaussian features, tokens of norm 1 (or Gaussian), Q standard normal, w = 0."""
    source, s = generator(seed), sizes
    task = DictionaryRegression.gaussian(
        s.d, s.features, s.tokens, s.shown, s.tau, generator=source, unit=unit
    )
    return Instance(task, DictionaryAttention.gaussian(s.heads, s.d, s.tokens, generator=source))


def antipodal(heads: int, *, tau: float = 1e-8) -> Instance:
    """Two opposite tokens with opposite features, attended to alike: where softmaxes are steepest.

    For small tau, Z-bar is nearly a multiple of the projection on (1, -1).
    """
    v = torch.nn.functional.normalize(tensor(1.0, 2.0, -2.0), dim=0)
    task = DictionaryRegression(torch.stack([v, -v]), tensor([1.0], [-1.0]), 2, tau)
    return _of(task, torch.zeros(heads, 3, 3, dtype=DTYPE))


def one_hot(*attended: int) -> Instance:
    """Every head attends to one of the two shown tokens alone, whose features are orthogonal.

    One query's label is far larger than all others, so that the residuals have one direction.
    """
    tokens = torch.nn.functional.normalize(normal(0, 4, 3) + 3, dim=1)
    features = tensor([0.1, 0.0], [0.0, 0.1], [1e4, 0.0], [1.0, -2.0])
    towards = 1e4 * torch.outer(tokens[0] - tokens[1], torch.ones(3, dtype=DTYPE))
    q = torch.stack([(-1) ** token * towards for token in attended])
    return _of(DictionaryRegression(tokens, features, 2, 0.5), q)


def _of(task: DictionaryRegression, q: Tensor) -> Instance:
    w = torch.zeros(len(q), len(task.tokens), dtype=DTYPE)
    return Instance(task, DictionaryAttention(q, w))
