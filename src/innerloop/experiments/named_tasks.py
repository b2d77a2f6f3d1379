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
from innerloop.tasks.checks import require_at_least, require_seed

DType = Literal["float64", "float32"]
WIDEST = 5_000
"""Coordinates of x; the eigenvalues of a larger covariance take minutes."""


def linear(
    d: int = 5,
    n: int = 20,
    noise_std: float = 0.0,
    prior: Literal["identity", "inverse"] = "identity",
    spectrum: tuple[float, ...] | None = None,
    dtype: DType = "float64",
) -> LinearRegression:
    """linear regression with Gaussian covariates; spectrum=1/0.5/0.25 sets their d variances"""
    _require_sizes(d, n)
    if spectrum is not None and len(spectrum) != d:
        raise ValueError(
            f"spectrum must give d = {d} variances, got {len(spectrum)}; set d={len(spectrum)}"
        )
    covariance = torch.diag(torch.tensor(spectrum or [1.0] * d, dtype=getattr(torch, dtype)))
    if prior == "inverse":
        return LinearRegression.with_inverse_prior(covariance, n, noise_std)
    return LinearRegression(covariance, n, noise_std=noise_std)


def sparse(
    d: int = 20, n: int = 20, nonzero: int = 3, noise_std: float = 0.0, dtype: DType = "float64"
) -> Regression:
    """linear regression in which only `nonzero` of the d coordinates matter (Garg 2022)"""
    _require_sizes(d, n)
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
    require_seed(seed)
    generator = torch.Generator().manual_seed(seed)
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


def _require_sizes(d: int, n: int) -> None:
    require_at_least("d", d, 1)
    require_at_least("n", n, 1)
    if d > WIDEST:
        raise ValueError(
            f"d must be at most {WIDEST}, got {d}; the eigenvalues of a larger covariance take "
            "minutes"
        )
    require_memory(f"a prompt of n = {n} examples", 3 * FLOAT64 * (n + 1) * (d + 1))
