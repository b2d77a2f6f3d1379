"""Algorithms by name: the learners that models are compared with, each made for a task."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop import theory
from innerloop.algorithms import (
    GradientDescent,
    LabelMap,
    Lasso,
    Learner,
    LeastSquares,
    Newton,
    Ridge,
    StableGradientDescent,
    Zero,
)
from innerloop.tasks import DictionaryRegression, Task, gaussian_linear

MOST_STEPS = 100_000
"""Steps of an iteration; more would take minutes for every batch of prompts."""


def zero(task: Task) -> Learner:
    """always predicts 0"""
    return Zero()


def ols(task: Task) -> Learner:
    """ordinary least squares, of minimum norm"""
    return LeastSquares()


def ridge(task: Task, *, penalty: float = 1.0) -> Learner:
    """ridge regression"""
    return Ridge(penalty)


def lasso(task: Task, *, penalty: float = 0.1) -> Learner:
    """the Lasso: least squares with penalty times |w|_1"""
    return Lasso(penalty)


def gradient_descent(task: Task, *, steps: int = 3, step_size: float | None = None) -> Learner:
    """gradient descent; without step_size, the longest step that is stable on every prompt"""
    _require_steps(steps)
    if step_size is None:
        return StableGradientDescent(steps)
    return GradientDescent.repeated(step_size, steps)


def newton(task: Task, *, steps: int = 5) -> Learner:
    """Newton's iteration for the inverse"""
    _require_steps(steps, least=0)
    return Newton(steps)


def one_step(task: Task) -> Learner:
    """one gradient step with the best preconditioner (Ahn 2023, Theorem 1)"""
    known = gaussian_linear(task)
    best = theory.linear.one_step_preconditioner(
        known.covariance, known.n, known.prior, known.noise_std
    )
    return GradientDescent([best])


def ray(task: Task, *, steps: int = 3) -> Learner:
    """preconditioned descent with the best steps for prior=inverse (Ahn 2023, Theorem 4)"""
    known = gaussian_linear(task)
    best = theory.linear.untied_optimum(steps, known.n, known.d).steps
    return GradientDescent([step * known.covariance.inverse() for step in best])


def looped_step(task: Task, *, loops: int = 5) -> Learner:
    """the best single step for prior=inverse, looped (Gatmiry 2024, Theorem 3.2, exactly)"""
    known = gaussian_linear(task)
    best = theory.linear.looped_optimum(loops, known.n, known.d).steps[0]
    return GradientDescent([best * known.covariance.inverse()] * loops)


def feature_ridge(task: Task, *, penalty: float | None = None) -> Learner:
    """ridge regression on a dictionary's features; the best penalty is that of Yang 2024, (22)"""
    known = _dictionary(task, "feature-ridge")
    chosen = known.features.shape[1] * known.tau if penalty is None else penalty

    def matrix(shown: int) -> Tensor:
        if penalty is None and known.tau == 0:  # the limit of small penalties, at any length
            return theory.softmax.DictionaryRisk.of(known.features, shown, 0.0).optimum
        return theory.softmax.ridge_matrix(known.features, shown, chosen)

    return LabelMap(matrix(known.shown), matrix)


def shown_labels(task: Task) -> Learner:
    """a dictionary's shown labels where they are asked for, 0 for the others"""
    known = _dictionary(task, "shown-labels")

    def matrix(shown: int) -> Tensor:
        return torch.eye(shown, len(known.tokens)).to(known.features)

    return LabelMap(matrix(known.shown), matrix)


ALGORITHMS: dict[str, Callable[..., Learner]] = {
    "zero": zero,
    "ols": ols,
    "ridge": ridge,
    "lasso": lasso,
    "gd": gradient_descent,
    "newton": newton,
    "one-step": one_step,
    "ray": ray,
    "looped": looped_step,
    "feature-ridge": feature_ridge,
    "shown-labels": shown_labels,
}


def _require_steps(steps: int, least: int = 1) -> None:
    if not least <= steps <= MOST_STEPS:
        raise ValueError(f"steps must be between {least} and {MOST_STEPS}, got {steps}")


def _dictionary(task: Task, name: str) -> DictionaryRegression:
    if not isinstance(task, DictionaryRegression):
        raise ValueError(
            f"{name} is known for the task dictionary only, got a {type(task).__name__}"
        )
    return task
