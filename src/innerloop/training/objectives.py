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
from innerloop.algorithms import answers
from innerloop.models import LinearAttention
from innerloop.models.linear_attention.closed_forms import require_masked
from innerloop.tasks import NoClosedForm, Task, gaussian_linear


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
    """The loss of what the task samples, by default the squared error, over `batch` of them."""

    task: Task
    batch: int

    def __post_init__(self) -> None:
        require_batch(self.batch)

    def sample(self, generator: torch.Generator) -> Any:
        return self.task.sample(self.batch, generator=generator)

    def loss(self, model: nn.Module, batch: Any) -> Float[Tensor, ""]:
        return batch.loss(answers(model, batch))


@dataclass(frozen=True)
class Wishart:
    """The expected loss given the context's Gram matrix, averaged over `batch` Gram matrices.

    Given w, tokens (x_i, y_i) are Gaussian with factor F = [[R, 0], [w^T R, noise_std]],
    Sigma = R R^T, so their Gram matrix is F W F^T / n, W ~ Wishart_{d+1}(n). The query is always
    integrated out. Where the prediction x_q^T K m is linear in the labels, so are w and the noise:

        tr(J Omega J^T Sigma) + (noise_std^2 / n) tr(K S K^T Sigma),    J = I - K S.
    """

    task: Task
    batch: int

    def __post_init__(self) -> None:
        require_batch(self.batch)
        gaussian_linear(self.task)

    def sample(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Gram matrices [batch, d + 1, d + 1] and weights [batch, d]."""
        task = gaussian_linear(self.task)
        d, root = task.d, torch.linalg.cholesky(task.covariance)
        w = task.sample_weights(self.batch, generator=generator)
        wishart = theory.wishart.sample_wishart(
            self.batch, task.n, d + 1, generator=generator, dtype=root.dtype
        )
        factor = wishart.new_zeros(self.batch, d + 1, d + 1)
        factor[:, :d, :d] = root
        factor[:, d, :d] = w @ root
        factor[:, d, d] = task.noise_std
        return factor @ wishart @ factor.mT / task.n, w

    def loss(self, model: Any, batch: tuple[Tensor, Tensor]) -> Float[Tensor, ""]:
        model = reads_gram_alone(model)
        gram, w = batch
        return model.weights.context_risk(gaussian_linear(self.task), gram, w, model.loops).mean()


@dataclass(frozen=True)
class Exact:
    """The expected loss itself, for models and tasks that know it: `model.risk(task)`."""

    task: Task

    def sample(self, generator: torch.Generator) -> None:
        return None

    def loss(self, model: Any, batch: None = None) -> Float[Tensor, ""]:
        risk = getattr(model, "risk", None)
        if risk is None:
            raise NoClosedForm(
                f"{type(model).__name__} has no method `risk`, so its exact loss is not known; use "
                "the prompts objective"
            )
        return risk(self.task)


def reads_gram_alone(model: Any) -> LinearAttention:
    """The model, if the Gram matrix of the context is all that it reads; NoClosedForm if not."""
    if not isinstance(model, LinearAttention):
        raise NoClosedForm(
            "linear attention alone is a function of the context's Gram matrix, got "
            f"{type(model).__name__}; use the prompts objective"
        )
    require_masked(model.masked)
    return model


def require_batch(batch: int) -> None:
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
