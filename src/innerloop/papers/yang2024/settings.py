"""What claims and figures share: sizes, the loss, instances with the paper's symbols, tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor, nn

from innerloop import theory
from innerloop.models import DictionaryAttention
from innerloop.papers.common import DTYPE, generator, identity, normal, square_root
from innerloop.papers.quantity import INEQUALITY, at_most, checks
from innerloop.papers.verdict import Check
from innerloop.prompt import Prompt
from innerloop.tasks import DictionaryRegression, GaussianCoefficients
from innerloop.training import History, Metric, Prompts, train

SQUARED_ROUNDING = at_most(1e-20, "float64 rounding, 1e-16 a number, where squares are compared")
FALLS = at_most(0.0, "the mean logarithm of a ratio of paired starts: a fall is below 0")
OUT_OF_DOMAIN = GaussianCoefficients(1.0, 2.0)
"""N(1, 4 I), the second test set of section 4."""


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


def risk(task: DictionaryRegression, moment: Tensor | None = None) -> theory.softmax.DictionaryRisk:
    """With another E lambda lambda^T than the task's own, if one is given."""
    moment = task.second_moment if moment is None else moment
    return theory.softmax.DictionaryRisk.of(task.features, task.shown, task.tau, moment)


@dataclass(frozen=True)
class ExactHalfLoss:
    """L(theta) = E (1/2K) |prediction - targets|^2 (Eq. 9): half of what a risk is elsewhere."""

    task: DictionaryRegression

    @cached_property
    def risk(self) -> theory.softmax.DictionaryRisk:
        return risk(self.task)

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
    """Gradient descent with eta_Q for all Q_h and eta_w for all w_h (Eq. 10)."""
    for name, rate in (("query_rate", query_rate), ("weight_rate", weight_rate)):
        if not 0 <= rate < float("inf"):
            raise ValueError(f"{name} must be finite and not negative, got {rate}")
    groups = [{"params": [model.q], "lr": query_rate}, {"params": [model.w], "lr": weight_rate}]
    return torch.optim.SGD(groups)


class Instance:
    """A dictionary, a transformer at its start, and the paper's symbols of both as they are now.

    The symbols are typed in from section 3.1 and appendix A, columns are tokens as there, and
    `theory` is not asked: claims compare them with the library, gradients and prompts.
    """

    def __init__(self, task: DictionaryRegression, model: DictionaryAttention) -> None:
        self.task, self.model, self.objective = task, model, ExactHalfLoss(task)
        self.h, self.n, (self.k, self.m) = model.heads, task.shown, task.features.shape
        self.noise = self.m * task.tau
        self.all_z = task.features.mT  # Z-hat: [features, tokens]
        self.z = self.all_z[:, : self.n]
        self.gram = self.z.mT @ self.z + self.noise * identity(self.n)
        self.zbar = square_root(self.gram)  # Eq. 12

    @cached_property
    def zbar_norm(self) -> float:
        return norm(self.zbar)

    @cached_property
    def f_max(self) -> float:
        """Eq. 12: the largest norm of a column of Z-bar."""
        return self.zbar.norm(dim=0).max().item()

    @cached_property
    def a(self) -> Tensor:
        """Eq. 34."""
        shown = self.noise * torch.eye(self.n, self.k).to(self.z)
        return torch.linalg.solve(self.gram, self.z.mT @ self.all_z + shown)

    @property
    def s(self) -> Tensor:
        """Eq. 28, softmax(V^T Q_h v_k): [heads, shown, tokens]."""
        v = self.task.tokens.mT
        return (v[:, : self.n].mT @ self.model.q.detach() @ v).softmax(dim=1)

    @property
    def b(self) -> Tensor:
        """Eq. 13: [tokens, shown, heads]."""
        return self.zbar @ self.s.permute(2, 1, 0)

    @property
    def zeta(self) -> float:
        """Eq. 14."""
        b = self.b
        return torch.linalg.eigvalsh(b @ b.mT).min().item()

    @property
    def delta(self) -> Tensor:
        """Eq. 33 and 35, with the Z^T that (33) lacks: [shown, tokens]."""
        return (self.model.w.detach()[:, None] * self.s).sum(0) - self.a

    @property
    def gap(self) -> float:
        """L - L* by Eq. 36."""
        return (self.zbar @ self.delta).square().sum().item() / (2 * self.k)

    @property
    def least_gamma(self) -> float:
        """Eq. 15."""
        factor = 128 * math.sqrt(2) / (math.sqrt(2) - 1) * self.zbar_norm**2
        factor *= math.sqrt(self.h) * self.f_max * self.k**1.5 * self.gap
        return self.zeta ** (-5 / 4) * factor**0.5

    def alpha_bar(self, gamma: float) -> float:
        """Eq. 44."""
        scale = 4 * self.zbar_norm / (gamma * self.zeta)
        return math.sqrt(2 * self.k) * scale * math.sqrt(self.gap)

    @property
    def risk(self) -> theory.softmax.DictionaryRisk:
        return self.objective.risk

    def softmaxes(self) -> Tensor:
        return self.model.softmaxes(self.task.tokens, self.n).detach()

    def attention(self) -> Tensor:
        return self.model.attention(self.task.tokens, self.n).detach()

    def outputs(self) -> Tensor:
        """B_k of Eq. 13 by the library."""
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


def antipodal(heads: int) -> Instance:
    """Two opposite tokens with opposite features, attended to alike: where softmaxes are steepest.

    For so small a tau, Z-bar is nearly a multiple of the projection on (1, -1).
    """
    v = torch.nn.functional.normalize(tensor(1.0, 2.0, -2.0), dim=0)
    task = DictionaryRegression(torch.stack([v, -v]), tensor([1.0], [-1.0]), 2, 1e-8)
    return without_weights(task, torch.zeros(heads, 3, 3, dtype=DTYPE))


def one_hot(*attended: int) -> Instance:
    """Every head attends to one of the two shown tokens alone, whose features are orthogonal.

    One query's label is far larger than all others, so that the residuals have one direction.
    """
    tokens = torch.nn.functional.normalize(normal(0, 4, 3) + 3, dim=1)
    features = tensor([0.1, 0.0], [0.0, 0.1], [1e4, 0.0], [1.0, -2.0])
    towards = 1e4 * torch.outer(tokens[0] - tokens[1], torch.ones(3, dtype=DTYPE))
    q = torch.stack([(-1) ** token * towards for token in attended])
    return without_weights(DictionaryRegression(tokens, features, 2, 0.5), q)


def without_weights(task: DictionaryRegression, q: Tensor) -> Instance:
    return Instance(task, DictionaryAttention(q, torch.zeros(len(q), len(task.tokens)).to(q)))


def tensor(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=DTYPE)


def norm(matrix: Tensor) -> float:
    """The spectral norm."""
    return torch.linalg.matrix_norm(matrix, 2).item()


def ratio_error(pair: tuple[float, float]) -> float:
    """How far the ratio of two numbers is from 1."""
    return abs(pair[0] / pair[1] - 1)


def relative_distance(exact: Tensor, value: Tensor) -> float:
    """In the Euclidean norm."""
    return ((value - exact).norm() / exact.norm()).item()


def bounds(
    equation: str, over: Sequence[Any], ratio: Callable[..., float], near: Mapping[str, list[float]]
) -> list[Check]:
    """The largest ratio of the two sides, as printed and, for near misses, with factors."""

    def largest(factors: list[float]) -> float:
        return max(ratio(each, *factors) for each in over)

    name, printed = "largest ratio of the two sides", {equation: list[float]()}
    return checks(name, INEQUALITY, printed, unlike=near, measure=largest)


def lines(axes: Axes, rows: Mapping[str, np.ndarray], x: str, y: str, **style: Any) -> None:
    """A thin line for every seed, labelled once."""
    for seed in np.unique(rows["seed"]):
        here = rows["seed"] == seed
        axes.plot(rows[x][here], rows[y][here], linewidth=0.9, **style)
        style.pop("label", None)


def dotted(axes: Axes, height: float, label: str) -> None:
    axes.axhline(height, color="black", linewidth=0.8, linestyle=":", label=label)
