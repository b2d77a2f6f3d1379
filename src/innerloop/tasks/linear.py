"""Linear regression: a fresh linear function for every prompt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.prompt import Prompt


@dataclass(frozen=True)
class LinearRegression:
    """Linear functions of Gaussian covariates, a fresh one for every prompt.

        w ~ N(0, weight_covariance),   x ~ N(0, covariance),   y_i = <w, x_i> + noise_std N(0, 1)

    The query's label carries no noise. Ahn 2023, Theorem 1, and Zhang 2023 are the case of an
    identity `weight_covariance`; Ahn 2023, Theorems 4 and 5, and Gatmiry 2024 take the inverse of
    the covariance (see `with_inverse_prior`).

    Attributes:
        covariance: of x; symmetric positive definite.
        n: examples in a prompt, not counting the query.
        weight_covariance: of w; symmetric positive definite. None is the identity.
        noise_std: standard deviation of the label noise, not its variance.
    """

    covariance: Float[Tensor, "d d"]
    n: int
    weight_covariance: Float[Tensor, "d d"] | None = None
    noise_std: float = 0.0

    def __post_init__(self) -> None:
        _require_covariance("covariance", self.covariance)
        if self.weight_covariance is not None:
            _require_covariance("weight_covariance", self.weight_covariance)
            if self.weight_covariance.shape != self.covariance.shape:
                raise ValueError(
                    f"weight_covariance must have the shape {list(self.covariance.shape)} of "
                    f"covariance, got {list(self.weight_covariance.shape)}"
                )
            if self.weight_covariance.dtype != self.covariance.dtype:
                raise ValueError(
                    f"weight_covariance must have the dtype {self.covariance.dtype} of covariance, "
                    f"got {self.weight_covariance.dtype}"
                )
        if self.n < 1:
            raise ValueError(f"n must be at least 1 example, got {self.n}")
        if not 0 <= self.noise_std < float("inf"):
            raise ValueError(f"noise_std must be finite and not negative, got {self.noise_std}")

    @classmethod
    def isotropic(cls, d: int, n: int, noise_std: float = 0.0) -> LinearRegression:
        """Covariates and weights both from N(0, I_d), in float64."""
        if d < 1:
            raise ValueError(f"d must be at least 1, got {d}")
        return cls(torch.eye(d, dtype=torch.float64), n, noise_std=noise_std)

    @classmethod
    def with_inverse_prior(
        cls, covariance: Float[Tensor, "d d"], n: int, noise_std: float = 0.0
    ) -> LinearRegression:
        """w ~ N(0, covariance^-1): every direction of x carries equally much of the label."""
        _require_covariance("covariance", covariance)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(covariance))
        return cls(covariance, n, (inverse + inverse.mT) / 2, noise_std)

    @classmethod
    def distorted_view(cls, distortion: Float[Tensor, "d d"], n: int) -> LinearRegression:
        """Latent x', w' ~ N(0, I), labels <w', x'>, but only x = distortion x' is seen.

        The label is <w, x> with w = distortion^-T w', so this is the task of covariance
        W W^T and inverse prior (Ahn 2023, section 5.2, which writes w = Sigma^-1/2 w': true only
        of a symmetric distortion, with the same distribution in every case).
        """
        if distortion.ndim != 2 or distortion.shape[0] != distortion.shape[1]:
            raise ValueError(
                f"distortion must be a [d, d] matrix, got shape {list(distortion.shape)}"
            )
        return cls.with_inverse_prior(distortion @ distortion.mT, n)

    @property
    def d(self) -> int:
        return self.covariance.shape[0]

    @property
    def prior(self) -> Float[Tensor, "d d"]:
        """The covariance of w as a matrix, also where it is the default."""
        if self.weight_covariance is None:
            return torch.eye(self.d).to(self.covariance)
        return self.weight_covariance

    def sample_weights(self, batch: int, *, generator: torch.Generator) -> Float[Tensor, "batch d"]:
        normal = self._normal(generator, batch, self.d)
        if self.weight_covariance is None:
            return normal
        return normal @ torch.linalg.cholesky(self.weight_covariance).mT

    def sample_covariates(
        self, batch: int, count: int, *, generator: torch.Generator
    ) -> Float[Tensor, "batch count d"]:
        root = torch.linalg.cholesky(self.covariance)
        return self._normal(generator, batch, count, self.d) @ root.mT

    def sample(self, batch: int, *, generator: torch.Generator) -> Prompt:
        w = self.sample_weights(batch, generator=generator)
        x = self.sample_covariates(batch, self.n + 1, generator=generator)
        return self.prompt(w, x[:, :-1], x[:, -1], generator=generator)

    def prompt(
        self,
        w: Float[Tensor, "batch d"],
        x: Float[Tensor, "batch n d"],
        x_query: Float[Tensor, "batch d"],
        response: Callable[[Tensor], Tensor] = lambda s: s,
        *,
        generator: torch.Generator,
    ) -> Prompt:
        """These covariates with the labels response(<w, x>), noise added to the examples' only."""
        examples = response((x @ w.unsqueeze(-1)).squeeze(-1))
        if self.noise_std > 0:
            noise = self._normal(generator, *examples.shape)
            examples = examples + self.noise_std * noise
        return Prompt(x, examples, x_query=x_query, y_query=response((x_query * w).sum(-1)))

    def _normal(self, generator: torch.Generator, *shape: int) -> Tensor:
        like = self.covariance
        return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)


def _require_covariance(name: str, matrix: Tensor) -> None:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.numel() == 0:
        raise ValueError(
            f"{name} must be a [d, d] matrix, got shape {list(matrix.shape)}. "
            "For independent coordinates, pass torch.diag(variances)."
        )
    if not matrix.isfinite().all():
        raise ValueError(f"{name} must be finite, got an entry that is NaN or infinite")
    asymmetry = (matrix - matrix.mT).abs().max().item()
    if asymmetry > 1e-6 * matrix.abs().max().item():
        raise ValueError(f"{name} must be symmetric, got |M - M^T| up to {asymmetry:.3g}")
    smallest = torch.linalg.eigvalsh(matrix)[0].item()
    if smallest <= 0:
        raise ValueError(
            f"{name} must be positive definite, got a smallest eigenvalue of {smallest:.3g}"
        )
