"""Distribution shifts: a learner trained on a task is tested on one of these.

Each replaces one part of the task that the learner was trained on. The kinds are those of Zhang
2023, section 4.2 (after Garg 2022): a *task shift* changes how labels depend on covariates, a
*query shift* the query alone, a *covariate shift* all covariates; a random covariance is drawn anew
for every prompt.

They take any composed regression, and `LinearRegression`, which stays one wherever it can. What a
shift needs of the task, such as Gaussian covariates, it says if that is not there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.tasks.checks import require_positive
from innerloop.tasks.covariates import (
    Exponential,
    FirstCoordinates,
    GaussianCovariates,
    Law,
    ScaledCovariates,
)
from innerloop.tasks.functions import Functions, LinearFunctions, TransformedFunctions
from innerloop.tasks.linear import LinearRegression
from innerloop.tasks.queries import ContextQueries, OrthogonalQueries, OtherQueries
from innerloop.tasks.regression import Regression, law_of
from innerloop.tasks.task import NoClosedForm, Task

Shiftable = Regression | LinearRegression
T = TypeVar("T", bound=Shiftable)


def with_noise(task: T, noise_std: float) -> T:
    """Task shift: labels of the examples carry noise of this standard deviation."""
    return replace(task, noise_std=noise_std)


def with_scaled_weights(task: T, factor: float) -> T:
    """Task shift: w, or any function's value, is multiplied by the factor."""
    require_positive("factor", factor)
    if isinstance(task, LinearRegression):
        return cast(T, replace(task, weight_covariance=factor**2 * task.prior))
    functions: Functions = task.functions
    if type(functions) is LinearFunctions:
        return cast(
            T,
            replace(task, functions=LinearFunctions(factor**2 * functions.weight_covariance)),
        )
    scaled = TransformedFunctions(functions, partial(torch.mul, other=factor))
    return cast(T, replace(task, functions=scaled))


def with_response(task: Shiftable, response: Callable[[Tensor], Tensor]) -> Regression:
    """Task shift: labels response(f(x)), such as tanh <w, x>."""
    law = law_of(task)
    return replace(law, functions=TransformedFunctions(law.functions, response))


def with_query_covariance(task: Shiftable, covariance: Float[Tensor, "d d"]) -> Regression:
    """Query shift: x_q ~ N(0, covariance), independent of the examples."""
    _require_matrix("covariance", covariance, task.d)
    return replace(law_of(task), queries=OtherQueries(GaussianCovariates(covariance)))


def with_orthogonal_query(task: Shiftable) -> Regression:
    """Query shift: x_q is what the examples do not span of a fresh covariate. Needs n < d."""
    if task.n >= task.d:
        raise ValueError(
            f"n must be below d = {task.d} to leave a direction that no example spans, got {task.n}"
        )
    return replace(law_of(task), queries=OrthogonalQueries())


def with_query_in_context(task: Shiftable) -> Regression:
    """Query shift: the query is one of the examples, and its clean label is asked for."""
    return replace(law_of(task), queries=ContextQueries())


def with_scaled_covariates(task: T, factor: float) -> T:
    """Covariate shift: all x, the query too, are multiplied by the factor; f is as before."""
    require_positive("factor", factor)
    return with_covariance(task, factor**2 * _covariance(task))


def with_covariance(task: T, covariance: Float[Tensor, "d d"]) -> T:
    """Covariate shift: x has this covariance, f the distribution of before."""
    _require_matrix("covariance", covariance, task.d)
    if isinstance(task, LinearRegression):
        return cast(T, replace(task, covariance=covariance, weight_covariance=task.prior))
    return cast(T, replace(task, covariates=GaussianCovariates(covariance)))


def with_rotated_covariates(task: T, rotation: Float[Tensor, "d d"]) -> T:
    """Covariate shift: all x, the query too, are multiplied by a rotation; f is as before."""
    _require_matrix("rotation", rotation, task.d)
    error = (rotation @ rotation.mT - torch.eye(task.d).to(rotation)).abs().max().item()
    if error > 1e-6:
        raise ValueError(f"rotation must be orthogonal, got |R R^T - I| up to {error:.3g}")
    covariance = rotation @ _covariance(task) @ rotation.mT
    return with_covariance(task, (covariance + covariance.mT) / 2)


def narrowed(task: Task, active: int, n: int) -> Task:
    """The task with only its first `active` coordinates alive, and prompts of n examples."""
    if (active, n) == (task.d, task.n):
        return task
    try:
        law = law_of(task)
    except NoClosedForm as reason:
        raise ValueError(
            "a curriculum over coordinates and examples is for tasks of prompts with a law, got "
            f"{type(task).__name__}"
        ) from reason
    covariates = law.covariates
    if active < law.d:
        covariates = FirstCoordinates(covariates, active)
    return replace(law, covariates=covariates, n=n)


def with_random_covariance(task: Shiftable, law: Law | None = None) -> Regression:
    """A covariance of its own for every prompt: variances times what the law draws.

    Without a law, independent exponential factors of mean 1 (Zhang 2023, section 4.3).
    """
    parts = law_of(task)
    return replace(parts, covariates=ScaledCovariates(parts.covariates, law or Exponential(task.d)))


def _covariance(task: Shiftable) -> Float[Tensor, "d d"]:
    if isinstance(task, LinearRegression):
        return task.covariance
    covariates = task.covariates
    if not isinstance(covariates, GaussianCovariates):
        raise ValueError(
            "this shift changes the covariance of Gaussian covariates, got "
            f"{type(covariates).__name__}"
        )
    return covariates.covariance


def _require_matrix(name: str, matrix: Tensor, d: int) -> None:
    if list(matrix.shape) != [d, d]:
        raise ValueError(
            f"{name} must have shape [{d}, {d}], as the task's covariance, got {list(matrix.shape)}"
        )
