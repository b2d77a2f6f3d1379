"""Algorithms by name: the learners that models are compared with, each made for a task."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from innerloop import theory
from innerloop.algorithms import (
    Averaging,
    GradientDescent,
    LabelMap,
    Lasso,
    Learner,
    LeastSquares,
    NearestNeighbours,
    NetworkDescent,
    Newton,
    OnFeatures,
    PoolPosterior,
    Ridge,
    Scikit,
    SequenceDescent,
    SequenceRidge,
    StableGradientDescent,
    Unigram,
    Zero,
)
from innerloop.experiments.kinds import of_prompts
from innerloop.memory import FLOAT64, require_memory
from innerloop.sequence import TokenSequence
from innerloop.tasks import (
    Autoregression,
    ChainOfThought,
    DictionaryRegression,
    LinearFunctions,
    NoClosedForm,
    PooledLinearFunctions,
    Regression,
    RepresentedFunctions,
    Task,
    Translation,
    gaussian_linear,
    law_of,
)
from innerloop.tasks.covariates import square_root

MOST_STEPS = 100_000
"""Steps of an iteration; more would take minutes for every batch of prompts."""


def zero(task: Task) -> Learner:
    """always predicts 0"""
    return Zero()


@of_prompts
def ols(task: Task) -> Learner:
    """ordinary least squares, of minimum norm"""
    return LeastSquares()


@of_prompts
def ridge(task: Task, *, penalty: float = 1.0) -> Learner:
    """ridge regression"""
    return Ridge(penalty)


@of_prompts
def lasso(task: Task, *, penalty: float = 0.1) -> Learner:
    """the Lasso: least squares with penalty times |w|_1"""
    return Lasso(penalty)


@of_prompts
def gradient_descent(
    task: Task, *, steps: int = 3, step_size: float | None = None, penalty: float = 0.0
) -> Learner:
    """gradient descent; without step_size, the longest step that is stable on every prompt"""
    _require_steps(steps)
    if step_size is not None:
        return GradientDescent.repeated(step_size, steps, penalty)
    if penalty:
        raise ValueError("gd with a penalty needs a step_size")
    return StableGradientDescent(steps)


@of_prompts
def newton(task: Task, *, steps: int = 5, alpha: float | None = None) -> Learner:
    """Newton's iteration for the inverse; alpha, times 1/n^2, is its start if it is one for all"""
    _require_steps(steps, least=0)
    return Newton(steps, alpha=alpha)


@of_prompts
def one_step(task: Task) -> Learner:
    """one gradient step with the best preconditioner (Ahn 2023, Theorem 1)"""
    known = gaussian_linear(task)
    best = theory.linear.one_step_preconditioner(
        known.covariance, known.n, known.prior, known.noise_std
    )
    return GradientDescent([best])


@of_prompts
def ray(task: Task, *, steps: int = 3) -> Learner:
    """preconditioned descent with the best steps for prior=inverse (Ahn 2023, Theorem 4)"""
    known = gaussian_linear(task)
    best = theory.linear.untied_optimum(steps, known.n, known.d).steps
    return GradientDescent([step * known.covariance.inverse() for step in best])


@of_prompts
def looped_step(task: Task, *, loops: int = 5) -> Learner:
    """the best single step for prior=inverse, looped (Gatmiry 2024, Theorem 3.2, exactly)"""
    known = gaussian_linear(task)
    best = theory.linear.looped_optimum(loops, known.n, known.d).steps[0]
    return GradientDescent([best * known.covariance.inverse()] * loops)


@of_prompts
def averaging(task: Task) -> Learner:
    """the mean of y_i x_i for w (Garg 2022)"""
    return Averaging()


@of_prompts
def neighbours(task: Task, *, k: int = 3) -> Learner:
    """the mean label of the k nearest examples"""
    return NearestNeighbours(k)


@of_prompts
def network(task: Task, *, hidden: int = 100, steps: int = 200, lr: float = 0.05) -> Learner:
    """a two-layer ReLU network, fitted to each prompt by Adam (Garg 2022)"""
    _require_steps(steps)
    require_memory(f"networks of {hidden} units", FLOAT64 * hidden * (task.d + 1))
    return NetworkDescent(hidden, steps, lr)


@of_prompts
def tree(task: Task, *, depth: int = 4) -> Learner:
    """a greedy decision tree of scikit-learn, fitted to each prompt"""
    trees = _scikit().tree
    return Scikit(lambda: trees.DecisionTreeRegressor(max_depth=depth, random_state=0))


@of_prompts
def boosted_trees(task: Task, *, trees: int = 50, depth: int = 4) -> Learner:
    """boosted trees of scikit-learn, fitted to each prompt"""
    ensemble = _scikit().ensemble
    return Scikit(
        lambda: ensemble.GradientBoostingRegressor(
            n_estimators=trees, max_depth=depth, random_state=0
        )
    )


@of_prompts
def pool_posterior(task: Task) -> Learner:
    """the posterior mean over the weight vectors of a pool"""
    if not isinstance(task, Regression) or not isinstance(task.functions, PooledLinearFunctions):
        raise ValueError("pool-posterior is known for the task pool only, " + _got(task))
    return PoolPosterior(task.functions.pool, task.noise_std)


@of_prompts
def posterior_mean(task: Task) -> Learner:
    """the exact posterior mean of the task: no learner has a smaller mean squared error"""
    try:
        functions = law_of(task).functions
    except NoClosedForm as reason:
        raise ValueError(f"posterior-mean is not known: {reason}") from reason
    if isinstance(functions, PooledLinearFunctions):
        return pool_posterior(task)
    if isinstance(functions, RepresentedFunctions):
        return feature_ridge(task)
    if type(functions) is not LinearFunctions:
        raise ValueError(
            "posterior-mean is known for linear functions of the covariates or of a "
            "representation with Gaussian weights, and for a pool of weights; " + _got(task)
        )
    # w = root v with v ~ N(0, I): ridge regression on root^T x, whatever covariates are drawn from.
    noise, root = law_of(task).noise_std, square_root(functions.weight_covariance)
    learner = Ridge(noise**2) if noise > 0 else LeastSquares()
    return OnFeatures(learner, partial(torch.matmul, other=root))


def feature_ridge(task: Task, *, penalty: float | None = None) -> Learner:
    """ridge regression on the true features; without penalty, with the Bayesian one"""
    if isinstance(task, DictionaryRegression):
        return _dictionary_ridge(task, penalty)
    noise = getattr(task, "noise_std", 0.0)
    chosen = noise**2 if penalty is None else penalty
    if isinstance(task, Regression) and isinstance(task.functions, RepresentedFunctions):
        learner = Ridge(chosen) if chosen > 0 else LeastSquares()
        return OnFeatures(learner, task.functions.representation)
    if isinstance(task, Autoregression):
        return SequenceRidge(partial(last_points, task), chosen)
    if isinstance(task, ChainOfThought):
        return SequenceRidge(own_points, chosen, **_along_chains(task))
    raise ValueError(
        "feature-ridge needs a task with features: representation, autoregression, "
        "chain-of-thought or dictionary, " + _got(task)
    )


def feature_gd(task: Task, *, steps: int = 10, step_size: float = 0.1) -> Learner:
    """gradient descent on the true features; along a sequence, step_size is for its full length"""
    _require_steps(steps)
    if isinstance(task, Regression) and isinstance(task.functions, RepresentedFunctions):
        return OnFeatures(GradientDescent.repeated(step_size, steps), task.functions.representation)
    if isinstance(task, Autoregression):
        return SequenceDescent(partial(last_points, task), steps, step_size / task.n)
    if isinstance(task, ChainOfThought):
        return SequenceDescent(own_points, steps, step_size / task.n, **_along_chains(task))
    raise ValueError(
        "feature-gd needs a task with features: representation, autoregression or "
        "chain-of-thought, " + _got(task)
    )


def last_points(task: Autoregression, sequence: TokenSequence) -> Tensor:
    """phi of the last q points, at every position that is asked about."""
    return task.features(sequence.tokens.unfold(1, task.q, 1).mT)  # of [batch, positions, q, d]


def own_points(sequence: TokenSequence) -> Tensor:
    """The tokens at the positions that are asked about."""
    return sequence.tokens[:, sequence.readout]


def _along_chains(task: ChainOfThought) -> dict[str, Any]:
    """Each layer of the network learns from its own steps, before its activation."""
    return {
        "groups": task.layers,
        "response": partial(leaky_relu, negative_slope=task.slope),
        "inverse": partial(leaky_relu, negative_slope=1 / task.slope),
    }


def _dictionary_ridge(known: DictionaryRegression, penalty: float | None) -> Learner:
    """The best penalty is that of Yang 2024, (22)."""
    chosen = known.features.shape[1] * known.tau if penalty is None else penalty

    def matrix(shown: int) -> Tensor:
        if penalty is None and known.tau == 0:  # the limit of small penalties, at any length
            return theory.softmax.DictionaryRisk.of(known.features, shown, 0.0).optimum
        return theory.softmax.ridge_matrix(known.features, shown, chosen)

    return LabelMap(matrix(known.shown), matrix)


@of_prompts
def shown_labels(task: Task) -> Learner:
    """a dictionary's shown labels where they are asked for, 0 for the others"""
    if not isinstance(task, DictionaryRegression):
        raise ValueError("shown-labels is known for the task dictionary only, " + _got(task))
    known = task

    def matrix(shown: int) -> Tensor:
        return torch.eye(shown, len(known.tokens)).to(known.features)

    return LabelMap(matrix(known.shown), matrix)


def unigram(task: Task) -> Learner:
    """words by their frequency in the task's translations, whatever was said before"""
    if not isinstance(task, Translation):
        raise ValueError("unigram is known for the task translation only, " + _got(task))
    frequencies = task.target_frequencies()
    # A word that was never seen is as likely as one that was seen once in twice as many.
    least = 0.5 * frequencies[frequencies > 0].min()
    smoothed = frequencies.clamp_min(least)
    return Unigram((smoothed / smoothed.sum()).log())


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
    "averaging": averaging,
    "neighbours": neighbours,
    "network": network,
    "tree": tree,
    "boosted-trees": boosted_trees,
    "posterior-mean": posterior_mean,
    "pool-posterior": pool_posterior,
    "feature-ridge": feature_ridge,
    "feature-gd": feature_gd,
    "shown-labels": shown_labels,
    "unigram": unigram,
}


def _require_steps(steps: int, least: int = 1) -> None:
    if not least <= steps <= MOST_STEPS:
        raise ValueError(f"steps must be between {least} and {MOST_STEPS}, got {steps}")


def _got(task: Task) -> str:
    parts = getattr(task, "functions", None)
    return f"got a {type(task).__name__}" + (f" of {type(parts).__name__}" if parts else "")


def _scikit() -> Any:
    try:
        import sklearn.ensemble
        import sklearn.tree
    except ImportError as error:
        raise ValueError(
            "trees need scikit-learn; install it with pip install 'innerloop[references]'"
        ) from error
    return sklearn
