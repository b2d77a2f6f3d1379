"""Candidates by name: families of learners that `innerloop identify` compares a learner with.

An entry is a function of the task. Its docstring is the line in `innerloop list`; numbers that it
leaves open are fitted to the learner's answers, and have no options here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from innerloop.algorithms import (
    GDPlusPlus,
    GradientDescent,
    Learner,
    LeastSquares,
    NearestNeighbours,
    Newton,
    OnFeatures,
    Ridge,
    StableGradientDescent,
)
from innerloop.analysis.distances import distance_to_identity
from innerloop.analysis.identification import spectrum
from innerloop.analysis.identification.candidates import (
    Among,
    Family,
    Fixed,
    FreeStep,
    LassoFamily,
    decades,
)
from innerloop.analysis.identification.filtered import Filtered, Free
from innerloop.experiments import named_algorithms as algorithms
from innerloop.experiments.kinds import of_prompts
from innerloop.tasks import (
    LeakyNetwork,
    Regression,
    RepresentedFunctions,
    Task,
    gaussian_linear,
)

SLOW = 300
"""Prompts for candidates that take milliseconds each."""
STEPS = (*range(1, 65), 128, 256, 512)
"""Numbers of gradient steps that are tried first; between the last ones, where it is nearest."""
LAYERS = range(1, 9)
"""Numbers of steps whose best step sizes theory gives."""
PENALTY = Free("penalty", decades(-12.0, 4.0, 33), "penalty")
CURVATURE = Free("penalty", decades(-4.0, 2.0, 13), "eigenvalue")
STEP_SIZE = Free("step_size", decades(-4.0, 0.7, 30), "step")
TRANSFORM = Free("transform", (-2.0, -1.0, -0.5, -0.1, 0.1, 0.5, 1.0, 1.5, 2.0, 4.0))
ALPHA = Free("alpha", decades(-4.0, 0.3, 20), "square")
SCALE = Free("scale", (0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0))


def zero(task: Task) -> Family:
    """always predicts 0"""
    return Fixed("zero", algorithms.zero(task))


@of_prompts
def averaging(task: Task) -> Family:
    """the mean of y_i x_i for w"""
    return Fixed("averaging", algorithms.averaging(task))


@of_prompts
def neighbours(task: Task) -> Family:
    """the mean label of the k nearest examples, any k"""
    return Among("neighbours", "k", NearestNeighbours, range(1, min(task.n, 64) + 1))


@of_prompts
def ols(task: Task) -> Family:
    """ordinary least squares"""
    return Fixed("ols", LeastSquares())


@of_prompts
def ridge(task: Task) -> Family:
    """ridge regression, any penalty"""
    return Filtered(
        "ridge", spectrum.ridge, lambda _, free: Ridge(free[0]), (PENALTY,), counts=False
    )


@of_prompts
def lasso(task: Task) -> Family:
    """the Lasso, any penalty"""
    return LassoFamily()


@of_prompts
def gd(task: Task) -> Family:
    """gradient descent, any number of steps up to 512 and any step size"""

    def learner(steps: int, free: Sequence[float]) -> Learner:
        return GradientDescent.repeated(free[0], steps)

    return Filtered("gd", spectrum.descent, learner, (STEP_SIZE,), STEPS)


@of_prompts
def penalised_gd(task: Task) -> Family:
    """gradient descent on ridge regression's loss, up to 512 steps; only if named"""

    def learner(steps: int, free: Sequence[float]) -> Learner:
        step_size, penalty = free
        return GradientDescent.repeated(step_size, steps, penalty)

    numbers = (STEP_SIZE, CURVATURE)
    return Filtered("penalised-gd", spectrum.penalised_descent, learner, numbers, STEPS)


@of_prompts
def stable_gd(task: Task) -> Family:
    """gradient descent with each prompt's longest stable step, up to 512 steps"""
    return Filtered(
        "stable-gd", spectrum.stable_descent, lambda k, _: StableGradientDescent(k), steps=STEPS
    )


@of_prompts
def newton(task: Task) -> Family:
    """Newton's iteration for the inverse, up to 16 steps, each prompt's start at any scale"""
    return Filtered(
        "newton",
        spectrum.newton,
        lambda k, free: Newton(k, min(free[0], 2.0)),
        (SCALE,),
        range(17),
    )


@of_prompts
def fixed_newton(task: Task) -> Family:
    """Newton's iteration with one start for all prompts, up to 16 steps, any alpha"""
    return Filtered(
        "fixed-newton",
        spectrum.fixed_newton,
        lambda k, free: Newton(k, alpha=free[0]),
        (ALPHA,),
        range(17),
    )


@of_prompts
def gd_plus_plus(task: Task) -> Family:
    """GD++: 2 to 6 steps, any step size, covariates transformed in between"""

    def learner(steps: int, free: Sequence[float]) -> Learner:
        return GDPlusPlus([free[0]] * steps, [free[1]] * steps)

    return Filtered("gd++", spectrum.gd_plus_plus, learner, (STEP_SIZE, TRANSFORM), range(2, 7))


@of_prompts
def preconditioned_gd(task: Task) -> Family:
    """gradient descent with the inverse covariance as preconditioner, any steps and size"""
    covariance = gaussian_linear(task).covariance
    if distance_to_identity(covariance) < 1e-12:
        raise ValueError("preconditioned-gd is gd where the covariance is a multiple of I")
    inverse = torch.linalg.inv(covariance)
    root = torch.linalg.cholesky((inverse + inverse.mT) / 2)

    def learner(steps: int, free: Sequence[float]) -> Learner:
        return GradientDescent.repeated(free[0] * inverse, steps)

    before = partial(torch.matmul, other=root)
    return Filtered(
        "preconditioned-gd", spectrum.descent, learner, (STEP_SIZE,), STEPS, before=before
    )


@of_prompts
def free_step(task: Task) -> Family:
    """one gradient step with any preconditioner"""
    return FreeStep()


@of_prompts
def one_step(task: Task) -> Family:
    """one gradient step with the best preconditioner (Ahn 2023, Theorem 1)"""
    return Fixed("one-step", algorithms.one_step(task))


@of_prompts
def ray(task: Task) -> Family:
    """1 to 8 preconditioned steps with the best sizes for prior=inverse (Ahn 2023, Theorem 4)"""
    return Among("ray", "steps", lambda k: algorithms.ray(task, steps=k), LAYERS)


@of_prompts
def looped(task: Task) -> Family:
    """the best preconditioned step for prior=inverse, looped 1 to 8 times (Gatmiry 2024)"""
    return Among("looped", "loops", lambda k: algorithms.looped_step(task, loops=k), LAYERS)


@of_prompts
def posterior_mean(task: Task) -> Family:
    """the exact posterior mean of the task"""
    return Fixed("posterior-mean", algorithms.posterior_mean(task))


def feature_ridge(task: Task) -> Family:
    """ridge regression on the true features; any penalty where they are a representation"""
    phi = _representation(task)
    if phi is not None:
        return Filtered(
            "feature-ridge",
            spectrum.ridge,
            lambda _, free: OnFeatures(Ridge(free[0]), phi),
            (PENALTY,),
            counts=False,
            before=phi,
        )
    return Fixed("feature-ridge", algorithms.feature_ridge(task))


@of_prompts
def feature_gd(task: Task) -> Family:
    """gradient descent on the features of the task representation, any steps and step size"""
    phi = _representation(task)
    if phi is None:
        raise ValueError(
            f"feature-gd is a family on the task representation only, got a {type(task).__name__}"
        )

    def learner(steps: int, free: Sequence[float]) -> Learner:
        return OnFeatures(GradientDescent.repeated(free[0], steps), phi)

    return Filtered("feature-gd", spectrum.descent, learner, (STEP_SIZE,), STEPS, before=phi)


def _representation(task: Task) -> LeakyNetwork | None:
    """The network whose features the task is linear in, if it has one."""
    if isinstance(task, Regression) and isinstance(task.functions, RepresentedFunctions):
        return task.functions.representation
    return None


@of_prompts
def shown_labels(task: Task) -> Family:
    """a dictionary's shown labels where they are asked for, 0 for the others"""
    return Fixed("shown-labels", algorithms.shown_labels(task))


@of_prompts
def network(task: Task) -> Family:
    """a two-layer ReLU network, fitted to each prompt by Adam; slow"""
    return Fixed("network", algorithms.network(task), most=SLOW)


@of_prompts
def tree(task: Task) -> Family:
    """a greedy decision tree of scikit-learn, any depth up to 8; slow"""
    algorithms.tree(task)  # refused now, if scikit-learn is not there
    return Among(
        "tree", "depth", lambda depth: algorithms.tree(task, depth=depth), range(1, 9), SLOW
    )


@of_prompts
def boosted_trees(task: Task) -> Family:
    """boosted trees of scikit-learn; slow"""
    return Fixed("boosted-trees", algorithms.boosted_trees(task), most=SLOW)


CANDIDATES: dict[str, Callable[[Task], Family]] = {
    "zero": zero,
    "averaging": averaging,
    "neighbours": neighbours,
    "ols": ols,
    "ridge": ridge,
    "lasso": lasso,
    "gd": gd,
    "penalised-gd": penalised_gd,
    "stable-gd": stable_gd,
    "newton": newton,
    "fixed-newton": fixed_newton,
    "gd++": gd_plus_plus,
    "one-step": one_step,
    "ray": ray,
    "looped": looped,
    "preconditioned-gd": preconditioned_gd,
    "free-step": free_step,
    "posterior-mean": posterior_mean,
    "feature-ridge": feature_ridge,
    "feature-gd": feature_gd,
    "shown-labels": shown_labels,
    "network": network,
    "tree": tree,
    "boosted-trees": boosted_trees,
}
ON_REQUEST = ("penalised-gd", "network", "tree", "boosted-trees")
"""Candidates only when they are named: the first contains gd and ridge, and is never behind either;
the others take minutes on many prompts."""
