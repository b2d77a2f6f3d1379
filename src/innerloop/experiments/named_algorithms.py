"""Algorithms by name: the learners that models are compared with, each made for a task."""

from __future__ import annotations

from collections.abc import Callable

import torch

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
    if step_size is None:
        return StableGradientDescent(steps)
    if not 1 <= steps <= 1_000_000:
        raise ValueError(f"steps must be between 1 and 1,000,000, got {steps}")
    return GradientDescent.repeated(step_size, steps)


def newton(task: Task, *, steps: int = 5) -> Learner:
    """Newton's iteration for the inverse"""
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
    best = known.features.shape[1] * known.tau
    matrix = theory.softmax.ridge_matrix(
        known.features, known.shown, best if penalty is None else penalty
    )
    return LabelMap(matrix)


def shown_labels(task: Task) -> Learner:
    """a dictionary's shown labels where they are asked for, 0 for the others"""
    known = _dictionary(task, "shown-labels")
    return LabelMap(torch.eye(known.shown, len(known.tokens)).to(known.features))


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


def _dictionary(task: Task, name: str) -> DictionaryRegression:
    if not isinstance(task, DictionaryRegression):
        raise ValueError(
            f"{name} is known for the task dictionary only, got a {type(task).__name__}"
        )
    return task
