"""The Wishart objective with its noise taken out, for weights near the ray."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop import theory
from innerloop.models import LinearAttention
from innerloop.models.linear_attention.closed_forms import white_error
from innerloop.models.linear_attention.weights import Ray
from innerloop.tasks import LinearRegression, Task, gaussian_linear
from innerloop.training.objectives import reads_gram_alone, require_batch


@dataclass(frozen=True)
class ControlledWishart:
    """An unbiased estimate of the expected loss whose noise vanishes on the ray.

    The loss of L layers with transforms has degree 3^L - 1 in the sample covariance: a handful of
    rare prompts carries it, and a fixed sample of 20,000 is overfitted by orders of magnitude. Two
    changes leave the expectation as it is:

    * Every Wishart matrix U diag(l) U^T is used with all d cyclic shifts of its eigenvalues. Each
      is again Wishart; together they make the sampled gradient on the ray point along the ray, as
      the true one does (Ahn 2023, Theorem 5).
    * The loss of the model's projection on the ray (a_l = tr(A_l Sigma)/d, b_l = tr(B_l)/d) is
      subtracted on the sample and added exactly.

    Far from the ray the difference of two heavy-tailed numbers can come out negative: there, leave
    `control` off.

    Args:
        task: linear regression with the prior N(0, covariance^-1), without noise.
        batch: how many Wishart matrices, each used d times.
    """

    task: Task
    batch: int
    control: bool = True

    @cached_property
    def linear(self) -> LinearRegression:
        """The task as the regression it is by its law."""
        return gaussian_linear(self.task)

    def __post_init__(self) -> None:
        require_batch(self.batch)
        white = self.linear.covariance @ self.linear.prior
        precision = torch.finfo(white.dtype).eps ** 0.5
        if not torch.allclose(white, torch.eye(self.linear.d).to(white), rtol=0, atol=precision):
            raise ValueError(
                "task must have the inverse of its covariance as prior; "
                "see LinearRegression.with_inverse_prior"
            )
        if self.linear.noise_std > 0:
            raise ValueError(f"task must be without noise, got noise_std {self.linear.noise_std}")

    def sample(
        self, generator: torch.Generator
    ) -> tuple[Float[Tensor, "samples d d"], Float[Tensor, "batch d"]]:
        """Sample covariances, and the eigenvalues of the white ones they came from."""
        task, d = self.linear, self.linear.d
        dtype = task.covariance.dtype
        white = theory.wishart.sample_wishart(
            self.batch, task.n, d, generator=generator, dtype=dtype
        )
        white = white / task.n
        eigenvalues, vectors = torch.linalg.eigh(white)
        shifted = torch.stack([eigenvalues.roll(k, dims=-1) for k in range(d)], dim=1)
        factor = torch.linalg.cholesky(task.covariance) @ vectors  # [batch, d, d]
        s = torch.einsum("bij,bkj,blj->bkil", factor, shifted, factor)
        return s.flatten(0, 1), eigenvalues

    def residuals(
        self, model: LinearAttention, s: Float[Tensor, "samples d d"]
    ) -> Float[Tensor, "samples d d"]:
        """Matrices whose squared norm is the loss given the sample covariance."""
        j, _ = model.weights.operators(s, model.loops)
        return white_error(j, self.linear)

    def loss(self, model: Any, batch: tuple[Tensor, Tensor]) -> Float[Tensor, ""]:
        model, (s, eigenvalues) = reads_gram_alone(model), batch
        sampled = self.residuals(model, s).square().sum((-2, -1)).mean()
        if self.ray(model).shift is not None:
            offset = self._white(model.weights.offset(s, model.loops))
            sampled = sampled + offset.square().sum(-1).mean()
        if not self.control:
            return sampled
        on_ray = self._ray_losses(model, eigenvalues).sum(-1).mean()
        return sampled - on_ray + self.ray_risk(model)

    def ray(self, model: LinearAttention) -> Ray:
        """The model's projection on the ray, loops written out."""
        ray = model.weights.ray(self.linear.covariance)
        transforms = None if ray.transforms is None else ray.transforms.repeat(model.loops)
        return replace(ray, steps=ray.steps.repeat(model.loops), transforms=transforms)

    def ray_risk(self, model: LinearAttention) -> Float[Tensor, ""]:
        """The exact loss of the projection."""
        ray = self.ray(model)
        spectrum = theory.linear.ray_spectrum(
            len(ray.steps), self.linear.n, self.linear.d, transformed=ray.transforms is not None
        )
        return spectrum(self._ray_losses(model, spectrum.nodes))

    def _ray_losses(
        self, model: LinearAttention, eigenvalues: Float[Tensor, "*draws nodes"]
    ) -> Float[Tensor, "*draws nodes"]:
        """What every eigenvalue contributes to the loss of the projection."""
        ray = self.ray(model)
        error = theory.linear.ray_error(ray.steps, eigenvalues, ray.transforms)
        losses = error.square()
        if ray.shift is not None:
            # On the ray the offset is (1 - error) u along each eigenvector, and with the cyclic
            # shifts every eigenvalue meets every direction: |u|^2 counts 1/d for each.
            power = self._white(ray.shift).square().sum() / self.linear.d
            losses = losses + power * (1 - error).square()
        return losses

    def _white(self, vectors: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        return vectors @ torch.linalg.cholesky(self.linear.covariance)
