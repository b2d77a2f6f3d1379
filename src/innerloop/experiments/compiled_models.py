"""Compiled models by name: programs made for a task, and the algorithms that they are.

What a construction must be told of the data, the size of products and the largest eigenvalue of
their Gram matrices, is measured on a sample of the task that is always the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import update_wrapper
from typing import Any

import torch
from torch import Tensor, nn

from innerloop import compiled
from innerloop.algorithms import GDPlusPlus, GradientDescent, Learner, Newton
from innerloop.compiled import Form, Program
from innerloop.experiments.kinds import kind_of, of_prompts, one_sample
from innerloop.experiments.named_algorithms import feature_gd, last_points, own_points
from innerloop.models import EachPosition, InContext, LinearAttention
from innerloop.sequence import TokenSequence
from innerloop.tasks import Autoregression, ChainOfThought, Regression, RepresentedFunctions, Task

PREFIX = "compiled-"
"""Of their names among the models."""
SAMPLE = 256
"""Prompts whose sizes and eigenvalues are measured."""
DIVERGING = 0.01
"""The fraction of those prompts on which a step may be too long."""


@dataclass(frozen=True)
class Construction:
    """A program, or linear attention, which needs none; and the algorithm that it runs."""

    made: Program | LinearAttention
    explicit: Learner
    words: str = ""
    """The algorithm as the catalogue spells it, with its constants; empty if it has no name."""

    @property
    def program(self) -> Program:
        if isinstance(self.made, Program):
            return self.made
        raise ValueError("linear attention is exact: there is no program of softmax heads")

    def model(self, task: Task, *, unroll: bool = False) -> nn.Module:
        """The learner, in the precision of the task."""
        if isinstance(self.made, LinearAttention):
            return self.made
        looped = self.made.model(_dtype(task))
        model = compiled.unrolled(looped) if unroll else looped
        return EachPosition(model) if kind_of(task) is TokenSequence else InContext(model)


@dataclass(frozen=True)
class Products:
    """Of features on a sample of prompts: their sizes and eigenvalues."""

    size: float
    """The mean |f|^2."""
    tail: float
    """sqrt(E |f|^6 / E |f|^2): the Taylor error of a product z is c^2 z^3, so that of tokens with
    long tails, such as a random network's, it is the large ones that c must be small for."""
    eigenvalues: Tensor
    """Of (1/n) sum_i f_i f_i^T, ascending, [prompts, k]."""

    @property
    def largest(self) -> Tensor:
        return self.eigenvalues[:, -1]

    @classmethod
    def of(cls, features: Tensor, examples: int | None = None) -> Products:
        """Of [prompts, n, k]; divided by another n if that is given."""
        gram = features.mT @ features / (features.shape[1] if examples is None else examples)
        squares = features.double().square().sum(-1)
        size = squares.mean().item()
        tail = (squares.pow(3).mean().item() / size) ** 0.5
        return cls(size, tail, torch.linalg.eigvalsh(gram.double()))

    def step(self, given: float | None, penalty: float = 0.0) -> float:
        """The step size that is given, or half of the longest that is stable on all prompts."""
        curvature = self.largest + penalty
        if given is None:
            return _three_digits(1 / curvature.max().item())
        too_long = (given * curvature >= 2).double().mean().item()
        if too_long > DIVERGING:
            stable = 2 / curvature.quantile(1 - DIVERGING).item()
            raise ValueError(
                f"step_size = {given:g} makes descent diverge on {too_long:.0%} of the prompts; "
                f"below {stable:.3g} it is stable on {1 - DIVERGING:.0%}"
            )
        return given

    def start(self, given: float | None) -> float:
        """alpha of Newton's iteration, or an eighth of the largest that converges everywhere."""
        if given is None:
            return _three_digits(1 / (2 * self.largest.max().item()) ** 2)
        too_large = (given * self.largest.square() >= 2).double().mean().item()
        if too_large > DIVERGING:
            stable = 2 / self.largest.quantile(1 - DIVERGING).item() ** 2
            raise ValueError(
                f"alpha = {given:g} makes Newton's iteration diverge on {too_large:.0%} of the "
                f"prompts; below {stable:.3g} it converges on {1 - DIVERGING:.0%}"
            )
        return given

    def growth(self, alpha: float, steps: int) -> float:
        """The largest eigenvalue of M after these steps of Newton's iteration, at least 1, on all
        but a few prompts: (1 - (1 - alpha s^2)^(2^steps)) / s for an eigenvalue s of the mean."""
        s = self.eigenvalues.clamp_min(torch.finfo(torch.float64).eps)
        inverse = -torch.expm1(2.0**steps * torch.log1p(-(alpha * s**2).clamp(max=1))) / s
        return max(1.0, inverse.amax(-1).quantile(1 - DIVERGING).item())


class CompiledFactory:
    """A factory of the catalogue, from a construction: the model, and how it was made."""

    def __init__(self, construct: Callable[..., Construction]) -> None:
        update_wrapper(self, construct)
        self._construct = construct

    def construction(self, task: Task, **options: Any) -> Construction:
        """The program and its algorithm; refused if their distance would be above `error`."""
        found = self._construct(task, **options)
        if isinstance(found.made, Program):
            expected, loops = found.made.expected_error, found.made.loops
            compiled.require_error(expected, _dtype(task), options.get("error"), loops)
        return found

    def __call__(self, task: Task, generator: torch.Generator, **options: Any) -> nn.Module:
        """The model; nothing is drawn from the generator."""
        unroll = options.get("unroll", False)
        return self.construction(task, **options).model(task, unroll=unroll)


@CompiledFactory
@of_prompts
def compiled_gd(
    task: Task,
    *,
    loops: int = 20,
    step_size: float | None = None,
    penalty: float = 0.0,
    form: Form = "mirrored",
    c: float | None = None,
    sink: float | None = None,
    error: float | None = None,
    unroll: bool = False,
) -> Construction:
    """compiled: gradient descent, with a ridge penalty if asked for (Gao 2024, Lemma A.2)"""
    seen = Products.of(_sample(task).x)
    step = seen.step(step_size, penalty)
    program = compiled.gradient_descent(
        task.d,
        task.n,
        loops=loops,
        step_size=step,
        penalty=penalty,
        form=form,
        size=seen.size,
        c=c,
        sink=sink,
        dtype=_dtype(task),
    )
    return _descent(program, loops, step, penalty)


@CompiledFactory
@of_prompts
def compiled_representation(
    task: Task,
    *,
    loops: int = 20,
    step_size: float | None = None,
    form: Form = "mirrored",
    c: float | None = None,
    sink: float | None = None,
    error: float | None = None,
    unroll: bool = False,
) -> Construction:
    """compiled: gradient descent on the features of the task representation (Gao 2024, Thm 3.1)"""
    if not isinstance(task, Regression) or not isinstance(task.functions, RepresentedFunctions):
        raise ValueError(
            "compiled-representation needs the network of a task representation, got a "
            f"{type(task).__name__}"
        )
    phi = task.functions.representation
    seen = Products.of(phi(_sample(task).x))
    step = seen.step(step_size)
    program = compiled.gradient_descent(
        task.d,
        task.n,
        loops=loops,
        step_size=step,
        representation=phi,
        form=form,
        size=seen.size,
        c=c,
        sink=sink,
        dtype=_dtype(task),
    )
    return _on_features(program, task, loops, step)


@CompiledFactory
@of_prompts
def compiled_newton(
    task: Task,
    *,
    loops: int = 20,
    alpha: float | None = None,
    form: Form = "mirrored",
    c: float | None = None,
    sink: float | None = None,
    error: float | None = None,
    unroll: bool = False,
) -> Construction:
    """compiled: Newton's iteration (Gao 2024, Theorem 4.1)"""
    seen = Products.of(_sample(task).x)
    start = seen.start(alpha)
    program = compiled.newton(
        task.d,
        task.n,
        loops=loops,
        alpha=start,
        form=form,
        size=seen.size,
        growth=seen.growth(start, loops),
        c=c,
        sink=sink,
        dtype=_dtype(task),
    )
    return _newton(program, loops, start)


@CompiledFactory
@of_prompts
def compiled_causal_gd(
    task: Task,
    *,
    loops: int = 20,
    step_size: float | None = None,
    c: float | None = None,
    error: float | None = None,
    unroll: bool = False,
) -> Construction:
    """compiled: a decoder that descends at every example (Gao 2024, Theorem 4.2)"""
    seen = _of_prefixes(_sample(task).x)
    step = seen.step(step_size)
    program = compiled.causal_gradient_descent(
        task.d, task.n, loops=loops, step_size=step, size=seen.size, c=c, dtype=_dtype(task)
    )
    return _descent(program, loops, step)


@CompiledFactory
@of_prompts
def compiled_causal_newton(
    task: Task,
    *,
    loops: int = 10,
    alpha: float | None = None,
    c: float | None = None,
    error: float | None = None,
    unroll: bool = False,
) -> Construction:
    """compiled: a decoder that runs Newton's iteration at every example, with 2 d^2 heads"""
    seen = _of_prefixes(_sample(task).x)
    start = seen.start(alpha)
    program = compiled.causal_newton(
        task.d, task.n, loops=loops, alpha=start, size=seen.size, c=c, dtype=_dtype(task)
    )
    return _newton(program, loops, start)


@CompiledFactory
def compiled_autoregression(
    task: Task,
    *,
    loops: int = 20,
    step_size: float | None = None,
    c: float | None = None,
    sink: float | None = None,
    error: float | None = None,
    unroll: bool = False,
) -> Construction:
    """compiled: AR(q) by descent on phi of the last q points, as it is (Gao 2024, Theorem 3.2)"""
    if not isinstance(task, Autoregression):
        raise ValueError(
            f"compiled-autoregression is for the task autoregression, got a {type(task).__name__}"
        )
    plain = replace(task, scaled=False)  # feed-forward networks do not divide by a norm
    seen = Products.of(last_points(plain, _sample(task)))
    step = seen.step(step_size)
    program = compiled.autoregression(
        task.representation,
        task.n,
        loops=loops,
        step_size=step,
        size=seen.tail,
        c=c,
        sink=sink,
        dtype=_dtype(task),
    )
    found = _on_features(program, plain, loops, step)
    return replace(found, words="") if task.scaled else found


@CompiledFactory
def compiled_chain_of_thought(
    task: Task,
    *,
    loops: int = 20,
    step_size: float | None = None,
    c: float | None = None,
    sink: float | None = None,
    error: float | None = None,
    unroll: bool = False,
) -> Construction:
    """compiled: the next step of a chain, its network fitted by descent (Gao 2024, Theorem 3.3)"""
    if not isinstance(task, ChainOfThought):
        raise ValueError(
            f"compiled-chain-of-thought is for the task chain-of-thought, got a "
            f"{type(task).__name__}"
        )
    sequence = _sample(task)
    levels = own_points(sequence).unflatten(1, (task.n + 1, task.layers))
    seen = Products.of(levels.transpose(1, 2).flatten(0, 1), task.n)
    step = seen.step(step_size)
    program = compiled.chain_of_thought(
        task.d,
        task.n,
        task.layers,
        task.slope,
        loops=loops,
        step_size=step,
        size=seen.tail,
        c=c,
        sink=sink,
        dtype=_dtype(task),
    )
    return _on_features(program, task, loops, step)


@CompiledFactory
@of_prompts
def compiled_linear_gd(
    task: Task, *, loops: int = 20, step_size: float | None = None
) -> Construction:
    """compiled: gradient descent by linear attention, exactly (Ahn 2023, Lemma 2)"""
    step = Products.of(_sample(task).x).step(step_size)
    model = compiled.linear_gradient_descent(
        task.d, loops=loops, step_size=step, dtype=_dtype(task)
    )
    return _descent(model, loops, step)


@CompiledFactory
@of_prompts
def compiled_linear_gd_plus_plus(
    task: Task, *, loops: int = 5, step_size: float | None = None, transform: float = 0.5
) -> Construction:
    """compiled: GD++ by linear attention, exactly (von Oswald 2022)"""
    step = Products.of(_sample(task).x).step(step_size)
    model = compiled.linear_gd_plus_plus(
        task.d, loops=loops, step_size=step, transform=transform, dtype=_dtype(task)
    )
    return Construction(model, GDPlusPlus([step] * loops, [transform] * loops))


def _descent(
    made: Program | LinearAttention, loops: int, step: float, penalty: float = 0.0
) -> Construction:
    words = f"gd:steps={loops},step_size={step}" + (f",penalty={penalty}" if penalty else "")
    return Construction(made, GradientDescent.repeated(step, loops, penalty), words)


def _on_features(program: Program, task: Task, loops: int, step: float) -> Construction:
    explicit = feature_gd(task, steps=loops, step_size=step)
    return Construction(program, explicit, f"feature-gd:steps={loops},step_size={step}")


def _newton(program: Program, loops: int, alpha: float) -> Construction:
    return Construction(program, Newton(loops, alpha=alpha), f"newton:steps={loops},alpha={alpha}")


def _three_digits(value: float) -> float:
    """So that a constant that was chosen is, digit for digit, the one that is printed."""
    return float(f"{value:.3g}")


def _sample(task: Task) -> Any:
    return task.sample(SAMPLE, generator=torch.Generator().manual_seed(0))


def _dtype(task: Task) -> torch.dtype:
    return one_sample(task).targets.dtype


def _of_prefixes(x: Tensor) -> Products:
    """Of all beginnings of a prompt: short ones have the largest eigenvalues."""
    parts = [Products.of(x[:, : k + 1]) for k in range(x.shape[1])]
    return replace(parts[-1], eigenvalues=torch.cat([part.eigenvalues for part in parts]))
