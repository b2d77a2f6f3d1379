"""Tasks by name. Arguments are the options of a spec, the docstring is its line in `list`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

from innerloop.memory import FLOAT64, require_memory
from innerloop.tasks import (
    DictionaryRegression,
    GaussianCovariates,
    LinearRegression,
    Regression,
    SparseLinearFunctions,
    Task,
)
from innerloop.tasks.checks import require_at_least

DType = Literal["float64", "float32"]


def linear(
    d: int = 5,
    n: int = 20,
    noise_std: float = 0.0,
    prior: Literal["identity", "inverse"] = "identity",
    spectrum: tuple[float, ...] | None = None,
    dtype: DType = "float64",
) -> LinearRegression:
    """linear regression with Gaussian covariates; spectrum=1/0.5/0.25 sets their d variances"""
    require_at_least("d", d, 1)
    if spectrum is not None and len(spectrum) != d:
        raise ValueError(
            f"spectrum must give d = {d} variances, got {len(spectrum)}; set d={len(spectrum)}"
        )
    require_memory(f"a covariance of d = {d}", FLOAT64 * d**2)
    covariance = torch.diag(torch.tensor(spectrum or [1.0] * d, dtype=getattr(torch, dtype)))
    if prior == "inverse":
        return LinearRegression.with_inverse_prior(covariance, n, noise_std)
    return LinearRegression(covariance, n, noise_std=noise_std)


def sparse(
    d: int = 20, n: int = 20, nonzero: int = 3, noise_std: float = 0.0, dtype: DType = "float64"
) -> Regression:
    """linear regression in which only `nonzero` of the d coordinates matter (Garg 2022)"""
    require_at_least("d", d, 1)
    require_memory(f"a covariance of d = {d}", FLOAT64 * d**2)
    kind = getattr(torch, dtype)
    functions = SparseLinearFunctions(d, nonzero, kind)
    return Regression(
        GaussianCovariates(torch.eye(d, dtype=kind)), functions, n, noise_std=noise_std
    )


def dictionary(
    tokens: int = 20,
    shown: int = 6,
    d: int = 8,
    features: int = 4,
    tau: float = 0.01,
    seed: int = 0,
    dtype: DType = "float64",
) -> DictionaryRegression:
    """a dictionary of `tokens` unit tokens, `shown` of their labels given (Yang 2024)"""
    require_memory(f"{tokens} tokens of d = {d}", FLOAT64 * tokens * (d + features))
    generator = torch.Generator().manual_seed(_seed(seed))
    task = DictionaryRegression.gaussian(d, features, tokens, shown, tau, generator=generator)
    kind = getattr(torch, dtype)
    return DictionaryRegression(
        task.tokens.to(kind), task.features.to(kind), shown, tau, task.coefficients
    )


TASKS: dict[str, Callable[..., Task]] = {
    "linear": linear,
    "sparse": sparse,
    "dictionary": dictionary,
}
REFERENCES: dict[str, tuple[str, ...]] = {
    "linear": ("zero", "ols", "one-step"),
    "sparse": ("zero", "ols", "lasso"),
    "dictionary": ("zero", "shown-labels", "feature-ridge"),
}
"""What each task is compared with unless asked otherwise."""


def _seed(seed: int) -> int:
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must be between 0 and 2^63 - 1, got {seed}")
    return seed
