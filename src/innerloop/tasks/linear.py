"""Linear regression with Gaussian covariates: the composition that theory knows in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.prompt import Prompt
from innerloop.tasks.checks import require_at_least, require_covariance, require_not_negative
from innerloop.tasks.covariates import GaussianCovariates, spelled
from innerloop.tasks.functions import LinearFunctions
from innerloop.tasks.queries import FreshQueries
from innerloop.tasks.regression import Regression, law_of
from innerloop.tasks.task import NoClosedForm


@dataclass(frozen=True)
class LinearRegression:
    """Linear functions of Gaussian covariates, a fresh one for every prompt.

        w ~ N(0, weight_covariance),   x ~ N(0, covariance),   y_i = <w, x_i> + noise_std N(0, 1)

    The query's label carries no noise. Ahn 2023, Theorem 1, and Zhang 2023 are the case of an
    identity `weight_covariance`; Ahn 2023, Theorems 4 and 5, and Gatmiry 2024 take the inverse of
    the covariance (see `with_inverse_prior`).

    Attributes:
        covariance: of x; symmetric, positive definite or, where only sampling needs it, singular.
        n: examples in a prompt, not counting the query.
        weight_covariance: of w; symmetric positive semi-definite. None is the identity.
        noise_std: standard deviation of the label noise, not its variance.
    """

    covariance: Float[Tensor, "d d"]
    n: int
    weight_covariance: Float[Tensor, "d d"] | None = None
    noise_std: float = 0.0

    def __post_init__(self) -> None:
        require_covariance("covariance", self.covariance, singular=True)
        if self.weight_covariance is not None:
            require_covariance("weight_covariance", self.weight_covariance, singular=True)
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
        require_at_least("n", self.n, 1)
        require_not_negative("noise_std", self.noise_std)

    @classmethod
    def isotropic(
        cls, d: int, n: int, noise_std: float = 0.0, *, dtype: torch.dtype = torch.float64
    ) -> LinearRegression:
        """Covariates and weights both from N(0, I_d)."""
        require_at_least("d", d, 1)
        return cls(torch.eye(d, dtype=dtype), n, noise_std=noise_std)

    @classmethod
    def with_inverse_prior(
        cls, covariance: Float[Tensor, "d d"], n: int, noise_std: float = 0.0
    ) -> LinearRegression:
        """w ~ N(0, covariance^-1): every direction of x carries equally much of the label."""
        require_covariance("covariance", covariance)
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

    def __str__(self) -> str:
        """Its sizes and matrices, as a reader would write them down."""
        prior = self.weight_covariance
        if prior is not None and torch.allclose(
            prior @ self.covariance, torch.eye(self.d).to(prior)
        ):
            weights = "Sigma^-1"
        else:
            weights = "I" if prior is None else spelled(prior)
        noise = f", label noise {self.noise_std:g}" if self.noise_std else ""
        return (
            f"d = {self.d}, n = {self.n}, Sigma = {spelled(self.covariance)}, w ~ N(0, {weights})"
            f"{noise}"
        )

    @property
    def d(self) -> int:
        return self.covariance.shape[0]

    @property
    def prior(self) -> Float[Tensor, "d d"]:
        """The covariance of w as a matrix, also where it is the default."""
        if self.weight_covariance is None:
            return torch.eye(self.d).to(self.covariance)
        return self.weight_covariance

    @cached_property
    def definite(self) -> bool:
        """Whether x reaches every direction: the covariance is not singular."""
        _, failed = torch.linalg.cholesky_ex(self.covariance)
        return not failed.item()

    @cached_property
    def law(self) -> Regression:
        """The same as a composition of parts; a subclass states no law unless it says so itself."""
        if type(self) is not LinearRegression:
            raise NoClosedForm(
                f"{type(self).__name__} is a subclass of LinearRegression and may sample anything: "
                "nothing exact is known of it unless it gives itself a property `law`"
            )
        return self._composition

    @cached_property
    def _composition(self) -> Regression:
        return Regression(
            GaussianCovariates(self.covariance),
            LinearFunctions(self.prior),
            self.n,
            FreshQueries(),
            self.noise_std,
        )

    def sample_weights(self, batch: int, *, generator: torch.Generator) -> Float[Tensor, "batch d"]:
        return LinearFunctions(self.prior).draw_weights(batch, generator=generator)

    def sample_covariates(
        self, batch: int, count: int, *, generator: torch.Generator
    ) -> Float[Tensor, "batch count d"]:
        return GaussianCovariates(self.covariance).draw(batch, count, generator=generator)

    def sample(self, batch: int, *, generator: torch.Generator) -> Prompt:
        return self._composition.sample(batch, generator=generator)


def gaussian_linear(task: Any) -> LinearRegression:
    """The task as the Gaussian-linear regression it is by its law; NoClosedForm if it is not one.

    Parts count by their exact type: what merely looks like these may sample something else.
    """
    if type(task) is not LinearRegression:
        task = _as_linear(law_of(task))
    if not task.definite:
        raise NoClosedForm(
            "closed forms need a covariance that is positive definite, got a singular one; "
            "estimate by sampling"
        )
    return task


def _as_linear(law: Regression) -> LinearRegression:
    covariates, functions, queries = law.covariates, law.functions, law.queries
    if type(covariates) is not GaussianCovariates or type(functions) is not LinearFunctions:
        raise NoClosedForm(
            "closed forms are known for GaussianCovariates with LinearFunctions, got "
            f"{type(covariates).__name__} with {type(functions).__name__}; estimate by sampling"
        )
    if type(queries) is not FreshQueries:
        raise NoClosedForm(
            f"this closed form is of a fresh query, got {type(queries).__name__}; estimate by "
            "sampling"
        )
    return LinearRegression(
        covariates.covariance, law.n, functions.weight_covariance, law.noise_std
    )
