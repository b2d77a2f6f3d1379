"""The Wishart objective with its noise taken out, for weights near the ray."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop import theory
from innerloop.models import (
    GDPlusPlusWeights,
    GradientDescentWeights,
    LinearAttention,
    ShiftedGradientDescentWeights,
)
from innerloop.tasks import LinearRegression
from innerloop.training.objectives import white_error


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

    task: LinearRegression
    batch: int
    control: bool = True

    def __post_init__(self) -> None:
        white = self.task.covariance @ self.task.prior
        precision = torch.finfo(white.dtype).eps ** 0.5
        if not torch.allclose(white, torch.eye(self.task.d).to(white), rtol=0, atol=precision):
            raise ValueError(
                "task must have the inverse of its covariance as prior; "
                "see LinearRegression.with_inverse_prior"
            )
        if self.task.noise_std > 0:
            raise ValueError(f"task must be without noise, got noise_std {self.task.noise_std}")

    def sample(
        self, generator: torch.Generator
    ) -> tuple[Float[Tensor, "samples d d"], Float[Tensor, "batch d"]]:
        """Sample covariances, and the eigenvalues of the white ones they came from."""
        task, d = self.task, self.task.d
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
        j, _ = _sparse(model).operators(s, model.loops)
        return white_error(j, self.task)

    def loss(self, model: LinearAttention, batch: tuple[Tensor, Tensor]) -> Float[Tensor, ""]:
        s, eigenvalues = batch
        sampled = self.residuals(model, s).square().sum((-2, -1)).mean()
        sampled = sampled + self._offset_power(model, s)
        if not self.control:
            return sampled
        on_ray = self._ray_losses(model, eigenvalues).sum(-1).mean()
        return sampled - on_ray + self.ray_risk(model)

    def ray(self, model: LinearAttention) -> tuple[Tensor, Tensor | None]:
        """The steps a_l and transforms b_l of the model's projection on the ray."""
        weights = _sparse(model)
        if isinstance(weights, ShiftedGradientDescentWeights) and weights.layers > 1:
            raise ValueError(f"shifts are known for one layer, looped; got {weights.layers} layers")
        steps = torch.einsum("lij,ji->l", weights.preconditioners, self.task.covariance)
        steps = (steps / self.task.d).repeat(model.loops)
        if isinstance(weights, GradientDescentWeights):
            return steps, None
        transforms = weights.transforms.diagonal(dim1=-2, dim2=-1).mean(-1)
        return steps, transforms.repeat(model.loops)

    def ray_risk(self, model: LinearAttention) -> Float[Tensor, ""]:
        """The exact loss of the projection."""
        steps, transforms = self.ray(model)
        spectrum = theory.linear.ray_spectrum(
            len(steps), self.task.n, self.task.d, transformed=transforms is not None
        )
        return spectrum(self._ray_losses(model, spectrum.nodes))

    def _ray_losses(
        self, model: LinearAttention, eigenvalues: Float[Tensor, "*draws nodes"]
    ) -> Float[Tensor, "*draws nodes"]:
        """What every eigenvalue contributes to the loss of the projection."""
        steps, transforms = self.ray(model)
        error = theory.linear.ray_error(steps, eigenvalues, transforms)
        losses = error.square()
        if isinstance(model.weights, ShiftedGradientDescentWeights):
            # On the ray the offset is (1 - error) u along each eigenvector, and with the cyclic
            # shifts every eigenvalue meets every direction: |u|^2 counts 1/d for each.
            power = self._white(model.weights.shifts[0]).square().sum() / self.task.d
            losses = losses + power * (1 - error).square()
        return losses

    def _offset_power(self, model: LinearAttention, s: Float[Tensor, "samples d d"]) -> Tensor:
        """E |offset|^2 in the white coordinates: what shifts add to the loss."""
        if not isinstance(model.weights, ShiftedGradientDescentWeights):
            return s.new_zeros(())
        return self._white(model.weights.offset(s, model.loops)).square().sum(-1).mean()

    def _white(self, vectors: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        return vectors @ torch.linalg.cholesky(self.task.covariance)


def _sparse(model: nn.Module) -> GradientDescentWeights | GDPlusPlusWeights:
    weights = getattr(model, "weights", None)
    if not isinstance(weights, GradientDescentWeights | GDPlusPlusWeights):
        raise ValueError(
            "the ray is defined for GradientDescentWeights and GDPlusPlusWeights, "
            f"got {type(weights).__name__}"
        )
    return weights
