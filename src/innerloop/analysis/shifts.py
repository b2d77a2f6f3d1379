"""How learners fare on prompts they were not trained for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop import theory
from innerloop.algorithms import Learner
from innerloop.analysis.risk import Estimate, estimate_risk
from innerloop.tasks import (
    Exponential,
    InContextQuery,
    LinearRegression,
    NonlinearLabels,
    OrthogonalQuery,
    OtherQuery,
    RandomCovariance,
    Task,
    with_covariance,
    with_noise,
    with_rotated_covariates,
    with_scaled_covariates,
    with_scaled_weights,
)


@dataclass(frozen=True)
class Shift:
    """A task to test on, and what about it is new."""

    kind: str
    """none, task, query, covariate or random covariance."""
    name: str
    task: Task


def standard_shifts(task: LinearRegression) -> list[Shift]:
    """The shifts of Zhang 2023, section 4.2, of a task, and the task itself first."""
    d = task.d
    label_std = (task.prior @ task.covariance).trace().sqrt().item()
    # From half to one and a half times the variance, coordinate by coordinate.
    graded = torch.linspace(0.5, 1.5, d).to(task.covariance).sqrt()
    other = graded[:, None] * task.covariance * graded
    shifts = [
        Shift("none", "as trained", task),
        Shift("task", "label noise, half of the labels' std", with_noise(task, label_std / 2)),
        Shift("task", "weights × 3", with_scaled_weights(task, 3.0)),
        Shift("task", "labels tanh <w, x>", NonlinearLabels(task, torch.tanh)),
        Shift("task", "labels <w, x>³", NonlinearLabels(task, _cube)),
        Shift("query", "query of another covariance", OtherQuery(task, other)),
        Shift("query", "query × 3", OtherQuery(task, 9 * task.covariance)),
        Shift("query", "query among the examples", InContextQuery(task)),
    ]
    if d > 1:
        short = replace(task, n=min(task.n, d // 2))
        shifts.append(
            Shift("query", f"query orthogonal to {short.n} examples", OrthogonalQuery(short))
        )
    shifts += [
        Shift("covariate", "covariates × 1/2", with_scaled_covariates(task, 0.5)),
        Shift("covariate", "covariates × 2", with_scaled_covariates(task, 2.0)),
        Shift("covariate", "covariates of another covariance", with_covariance(task, other)),
        Shift("covariate", "covariates rotated", with_rotated_covariates(task, _rotation(task))),
        Shift(
            "random covariance",
            "variances × Exp(1), new for every prompt",
            RandomCovariance(task, Exponential(d)),
        ),
    ]
    return shifts


def _cube(s: Tensor) -> Tensor:
    return s**3


def _rotation(task: LinearRegression) -> Float[Tensor, "d d"]:
    """A fixed orthogonal matrix that mixes all coordinates: the discrete cosine transform."""
    d = task.d
    i = torch.arange(d, dtype=torch.float64)
    matrix = torch.cos(torch.pi / d * (i + 0.5) * i[:, None])
    return (matrix / matrix.norm(dim=1, keepdim=True)).to(task.covariance)


@dataclass(frozen=True)
class ShiftRow:
    """The losses of all learners under one shift, on the same prompts."""

    shift: Shift
    losses: Mapping[str, Estimate]


def shift_table(
    learners: Mapping[str, Learner],
    shifts: Iterable[Shift],
    *,
    samples: int,
    seed: int,
) -> list[ShiftRow]:
    """E (prediction - y_q)^2 of every learner under every shift, on fresh prompts."""
    return [
        ShiftRow(
            shift,
            {
                name: estimate_risk(
                    learner,
                    shift.task,
                    samples=samples,
                    generator=torch.Generator().manual_seed(seed),
                )
                for name, learner in learners.items()
            },
        )
        for shift in shifts
    ]


@singledispatch
def one_step_risk(task: Any, preconditioner: Float[Tensor, "d d"]) -> float | None:
    """The exact loss of one step x_q^T A m on a task or shift, or None where none is known."""
    return None


@one_step_risk.register
def _(task: LinearRegression, preconditioner: Tensor) -> float | None:
    return theory.linear.one_step_risk(preconditioner, *_setting(task)).item()


@one_step_risk.register
def _(task: OtherQuery, preconditioner: Tensor) -> float | None:
    return theory.linear.one_step_risk(
        preconditioner, *_setting(task.task), query_covariance=task.covariance
    ).item()


@one_step_risk.register
def _(task: InContextQuery, preconditioner: Tensor) -> float | None:
    return theory.linear.in_context_query_risk(preconditioner, *_setting(task.task)).item()


@one_step_risk.register
def _(task: OrthogonalQuery, preconditioner: Tensor) -> float | None:
    """Without label noise and with A = a I the prediction is 0, and the loss E y_q^2."""
    base = task.task
    variance, prior = _scalar(base.covariance), _scalar(base.prior)
    if variance is None or prior is None or _scalar(preconditioner) is None or base.noise_std:
        return None
    return variance * prior * (base.d - base.n)


@one_step_risk.register
def _(task: NonlinearLabels, preconditioner: Tensor) -> float | None:
    base, step = task.task, _scalar(preconditioner)
    variance, prior = _scalar(base.covariance), _scalar(base.prior)
    if step is None or variance is None or prior is None:
        return None
    return theory.linear.response_risk(
        step,
        task.response,
        variance=variance,
        prior_variance=prior,
        d=base.d,
        length=base.n,
        noise_std=base.noise_std,
    )


@one_step_risk.register
def _(task: RandomCovariance, preconditioner: Tensor) -> float | None:
    base, law = task.task, task.law
    variances = base.covariance.diagonal()
    if not isinstance(law, Exponential) or base.noise_std or _scalar(base.prior) != 1:
        return None
    if not torch.equal(base.covariance, torch.diag(variances)):
        return None
    scaled = theory.linear.CovarianceLaw.exponential(law.mean * variances)
    return theory.linear.random_covariance_risk(preconditioner, scaled, base.n).item()


def _setting(task: LinearRegression) -> tuple[Tensor, int, Tensor, float]:
    return task.covariance, task.n, task.prior, task.noise_std


def _scalar(matrix: Float[Tensor, "d d"]) -> float | None:
    """a, if the matrix is a I to rounding."""
    a = matrix.diagonal().mean()
    identity = torch.eye(len(matrix)).to(matrix)
    return a.item() if torch.allclose(matrix, a * identity, rtol=0, atol=1e-12) else None
