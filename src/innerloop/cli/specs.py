"""Names on the command line become objects here, and nowhere else.

A spec is `name` or `name:key=value,key=value`, such as `linear:d=5,n=20` or `ridge:penalty=0.1`.
The keys are the arguments of the function the name stands for.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

import torch

from innerloop import theory
from innerloop.algorithms import GradientDescent, Learner, LeastSquares, Newton, Ridge, Zero
from innerloop.models import (
    DenseWeights,
    GDPlusPlusWeights,
    GradientDescentWeights,
    LinearAttention,
    ShiftedGradientDescentWeights,
    SingleLayerWeights,
)
from innerloop.tasks import LinearRegression

T = TypeVar("T")


def linear(
    d: int = 5,
    n: int = 20,
    noise_std: float = 0.0,
    prior: Literal["identity", "inverse"] = "identity",
    spectrum: list[float] | None = None,
) -> LinearRegression:
    """linear regression with Gaussian covariates; spectrum=1/0.5/0.25 sets their variances"""
    variances = torch.tensor(spectrum or [1.0] * d, dtype=torch.float64)
    covariance = torch.diag(variances)
    if prior == "inverse":
        return LinearRegression.with_inverse_prior(covariance, n, noise_std)
    return LinearRegression(covariance, n, noise_std=noise_std)


TASKS: dict[str, Callable[..., LinearRegression]] = {"linear": linear}


def gd(
    d: int, generator: torch.Generator, *, layers: int = 3, loops: int = 1, std: float = 0.05
) -> LinearAttention:
    """linear attention with one preconditioner per layer (Ahn 2023, Eq. 9)"""
    return LinearAttention(
        GradientDescentWeights.gaussian(d, layers, std, generator=generator), loops
    )


def looped(
    d: int, generator: torch.Generator, *, loops: int = 5, std: float = 0.05
) -> LinearAttention:
    """one layer applied `loops` times, with the shift u (Gatmiry 2024, section 3.5)"""
    weights = ShiftedGradientDescentWeights.gaussian(d, 1, std, generator=generator)
    return LinearAttention(weights, loops)


def gd_plus_plus(
    d: int, generator: torch.Generator, *, layers: int = 2, loops: int = 1, std: float = 0.05
) -> LinearAttention:
    """the same with covariate transforms (Ahn 2023, Eq. 13)"""
    return LinearAttention(GDPlusPlusWeights.gaussian(d, layers, std, generator=generator), loops)


def dense(
    d: int, generator: torch.Generator, *, layers: int = 2, loops: int = 1, std: float = 0.05
) -> LinearAttention:
    """linear attention with full matrices P and Q (Ahn 2023, Eq. 4)"""
    return LinearAttention(DenseWeights.gaussian(d, layers, std, generator=generator), loops)


def single_layer(d: int, generator: torch.Generator, *, std: float = 0.3) -> LinearAttention:
    """one layer with everything in it that matters (Ahn 2023, Eq. 7)"""
    return LinearAttention(SingleLayerWeights.gaussian(d, std, generator=generator))


MODELS: dict[str, Callable[..., LinearAttention]] = {
    "gd": gd,
    "looped": looped,
    "gd++": gd_plus_plus,
    "dense": dense,
    "single-layer": single_layer,
}


def zero(task: LinearRegression) -> Learner:
    """always predicts 0"""
    return Zero()


def ols(task: LinearRegression) -> Learner:
    """ordinary least squares, of minimum norm"""
    return LeastSquares()


def ridge(task: LinearRegression, *, penalty: float = 1.0) -> Learner:
    """ridge regression"""
    return Ridge(penalty)


def gradient_descent(
    task: LinearRegression, *, steps: int = 3, step_size: float | None = None
) -> Learner:
    """gradient descent; without step_size, 1 over the largest variance of x"""
    if step_size is None:
        step_size = 1 / torch.linalg.eigvalsh(task.covariance)[-1].item()
    return GradientDescent.repeated(step_size, steps)


def newton(task: LinearRegression, *, steps: int = 5) -> Learner:
    """Newton's iteration for the inverse"""
    return Newton(steps)


def one_step(task: LinearRegression) -> Learner:
    """one gradient step with the best preconditioner (Ahn 2023, Theorem 1)"""
    best = theory.linear.one_step_preconditioner(
        task.covariance, task.n, task.prior, task.noise_std
    )
    return GradientDescent([best])


def ray(task: LinearRegression, *, steps: int = 3) -> Learner:
    """preconditioned descent with the best steps for prior=inverse (Ahn 2023, Theorem 4)"""
    inverse = task.covariance.inverse()
    best = theory.linear.untied_optimum(steps, task.n, task.d).steps
    return GradientDescent([step * inverse for step in best])


def looped_step(task: LinearRegression, *, loops: int = 5) -> Learner:
    """the best single step for prior=inverse, looped (Gatmiry 2024, Theorem 3.2, exactly)"""
    best = theory.linear.looped_optimum(loops, task.n, task.d).steps[0]
    return GradientDescent([best * task.covariance.inverse()] * loops)


ALGORITHMS: dict[str, Callable[..., Learner]] = {
    "zero": zero,
    "ols": ols,
    "ridge": ridge,
    "gd": gradient_descent,
    "newton": newton,
    "one-step": one_step,
    "ray": ray,
    "looped": looped_step,
}


def build(kind: str, spec: str, table: Mapping[str, Callable[..., T]], *given: Any) -> T:
    """The object that a spec names, with the arguments the program itself supplies put first."""
    name, _, rest = spec.partition(":")
    if name not in table:
        near = difflib.get_close_matches(name, table, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"no {kind} is called {name!r}; {hint}Known: {', '.join(table)}")
    function = table[name]
    options = _parse(f"{kind} {name}", rest, settable(function, len(given)))
    return function(*given, **options)


def settable(function: Callable[..., Any], given: int = 0) -> dict[str, inspect.Parameter]:
    """The arguments of a table entry that a spec may set."""
    return dict(list(inspect.signature(function, eval_str=True).parameters.items())[given:])


def _parse(what: str, text: str, accepted: dict[str, inspect.Parameter]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        key, separator, value = part.partition("=")
        if not separator or key not in accepted:
            known = ", ".join(accepted) or "none"
            raise ValueError(f"{what} does not understand {part!r}; it takes key=value of: {known}")
        options[key] = _convert(f"{key} of {what}", value, accepted[key].annotation)
    return options


def _convert(what: str, value: str, annotation: Any) -> Any:
    kinds = [a for a in get_args(annotation) or (annotation,) if a is not type(None)]
    if get_origin(annotation) is Literal:
        if value not in kinds:
            raise ValueError(f"{what} must be one of {', '.join(kinds)}, got {value!r}")
        return value
    kind = kinds[0]
    if get_origin(kind) is list:
        return numbers(what, value)
    try:
        return kind(value)
    except ValueError as error:
        raise ValueError(f"{what} must be {kind.__name__}, got {value!r}") from error


def numbers(what: str, text: str) -> list[float]:
    """Numbers separated by slashes, such as 1.5/0.8/0.4."""
    try:
        return [float(v) for v in text.split("/")]
    except ValueError as error:
        raise ValueError(f"{what} must be numbers separated by /, got {text!r}") from error
