"""Three ways to the same expected loss of a model on linear regression, and the loss on prompts.

* `Exact`: no sampling; the expectation over prompts is a polynomial in the weights.
* `Wishart`: only the Gram matrix of the context is sampled, at a cost that does not grow with n;
  the query, and where possible the labels, are integrated out.
* `Prompts`: prompts are sampled, as the papers did. The one that works for every task and model.

They agree within their error bars.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop import theory
from innerloop.models import (
    GDPlusPlusWeights,
    GradientDescentWeights,
    LinearAttention,
    ShiftedGradientDescentWeights,
    SingleLayerWeights,
)
from innerloop.prompt import Prompt
from innerloop.tasks import LinearRegression, Task


@runtime_checkable
class Objective(Protocol):
    """A loss to minimise, in two halves: what is random, and what is differentiated."""

    def sample(self, generator: torch.Generator) -> Any:
        """The data of one step: tensors, a prompt, or None."""
        ...

    def loss(self, model: Any, batch: Any) -> Float[Tensor, ""]:
        """The loss on that data; a pure function of the weights and the data."""
        ...


@dataclass(frozen=True)
class Prompts:
    """Mean squared error of the query's label, over `batch` fresh prompts."""

    task: Task
    batch: int

    def __post_init__(self) -> None:
        _require_batch(self.batch)

    def sample(self, generator: torch.Generator) -> Prompt:
        return self.task.sample(self.batch, generator=generator)

    def loss(self, model: nn.Module, batch: Prompt) -> Float[Tensor, ""]:
        return (model(batch) - batch.y_query).square().mean()


@dataclass(frozen=True)
class Wishart:
    """The expected loss given the context's Gram matrix, averaged over `batch` Gram matrices.

    Given w, tokens (x_i, y_i) are Gaussian with factor F = [[R, 0], [w^T R, noise_std]],
    Sigma = R R^T, so their Gram matrix is F W F^T / n, W ~ Wishart_{d+1}(n). The query is always
    integrated out. Where the prediction x_q^T K m is linear in the labels, so are w and the noise:

        tr(J Omega J^T Sigma) + (noise_std^2 / n) tr(K S K^T Sigma),    J = I - K S.
    """

    task: LinearRegression
    batch: int

    def __post_init__(self) -> None:
        _require_batch(self.batch)

    def sample(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Gram matrices [batch, d + 1, d + 1] and weights [batch, d]."""
        task, d = self.task, self.task.d
        root = torch.linalg.cholesky(task.covariance)
        w = task.sample_weights(self.batch, generator=generator)
        wishart = theory.wishart.sample_wishart(
            self.batch, task.n, d + 1, generator=generator, dtype=root.dtype
        )
        factor = wishart.new_zeros(self.batch, d + 1, d + 1)
        factor[:, :d, :d] = root
        factor[:, d, :d] = w @ root
        factor[:, d, d] = task.noise_std
        return factor @ wishart @ factor.mT / task.n, w

    def loss(self, model: LinearAttention, batch: tuple[Tensor, Tensor]) -> Float[Tensor, ""]:
        _require_masked(model)
        gram, w = batch
        sigma, d = self.task.covariance, self.task.d
        if not isinstance(model.weights, GradientDescentWeights | GDPlusPlusWeights):
            identity = torch.eye(d).to(gram).expand(len(gram), d, d)
            error = model.answer(gram, identity) - w  # [batch, d]: the prediction is <., x_q>
            return ((error @ sigma) * error).sum(-1).mean()
        s = gram[:, :d, :d]
        j, k = model.weights.operators(s, model.loops)
        risk = white_error(j, self.task).square().sum((-2, -1))
        if isinstance(model.weights, ShiftedGradientDescentWeights):
            offset = model.weights.offset(s, model.loops)  # uncorrelated with w, which is symmetric
            risk = risk + ((offset @ sigma) * offset).sum(-1)
        if self.task.noise_std > 0:
            noise = (torch.einsum("ij,bjk->bik", sigma, k) * (k @ s)).sum((-2, -1))
            risk = risk + self.task.noise_std**2 / self.task.n * noise
        return risk.mean()


@dataclass(frozen=True)
class Exact:
    """The expected loss itself, for one layer of any weights or a few layers of sparse weights."""

    task: LinearRegression

    def sample(self, generator: torch.Generator) -> None:
        return None

    def loss(self, model: LinearAttention, batch: None = None) -> Float[Tensor, ""]:
        task, weights = self.task, model.weights
        setting = (task.covariance, task.n, task.prior, task.noise_std)
        if isinstance(weights, SingleLayerWeights) and model.loops == 1:
            return theory.linear.single_layer_risk(
                weights.b, weights.a, *setting, masked=model.masked
            )
        _require_masked(model)
        if isinstance(weights, ShiftedGradientDescentWeights):
            return self._shifted_loss(weights, model.loops)
        if isinstance(weights, GradientDescentWeights):
            return theory.linear.layered_risk(weights.preconditioners, *setting, loops=model.loops)
        if isinstance(weights, GDPlusPlusWeights):
            return theory.linear.layered_risk(
                weights.preconditioners, *setting, transforms=weights.transforms, loops=model.loops
            )
        raise ValueError(
            f"the exact objective knows no closed form for {type(weights).__name__}; "
            "use the wishart or the prompts objective"
        )

    def _shifted_loss(
        self, weights: ShiftedGradientDescentWeights, loops: int
    ) -> Float[Tensor, ""]:
        task = self.task
        if weights.layers > 1 or task.noise_std > 0:
            raise ValueError(
                "the exact objective knows shifted weights of one layer without label noise, got "
                f"layers = {weights.layers}, noise_std = {task.noise_std}; use the wishart one"
            )
        return theory.linear.tied_risk(
            weights.preconditioners[0],
            task.covariance,
            task.n,
            task.prior,
            loops=loops,
            shift=weights.shifts[0],
        )


def white_error(
    j: Float[Tensor, "samples d d"], task: LinearRegression
) -> Float[Tensor, "samples d d"]:
    """Sigma^T/2 J Omega^1/2, whose squared Frobenius norm is tr(J Omega J^T Sigma)."""
    root, prior_root = torch.linalg.cholesky(task.covariance), torch.linalg.cholesky(task.prior)
    return torch.einsum("ji,bjk,kl->bil", root, j, prior_root)


def _require_batch(batch: int) -> None:
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")


def _require_masked(model: LinearAttention) -> None:
    if not model.masked:
        raise ValueError(
            "this objective integrates the query out, which needs a model with masked=True; "
            "use the prompts objective"
        )
