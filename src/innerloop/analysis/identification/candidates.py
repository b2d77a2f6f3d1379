"""Candidates: learners whose every number is known, and the families that they are fitted from.

A family is fitted to what the learner under study answered on one half of the prompts, by the
distance to those answers; labels of queries play no part. What comes out is an ordinary learner,
and everything that is reported of it is measured on the other half, on shifted tasks, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp, log
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import least_squares
from torch import Tensor

from innerloop.algorithms import GradientDescent, Lasso, Learner, answers
from innerloop.analysis.identification.spectrum import Spectrum
from innerloop.prompt import Prompt

FEW, SOME = 500, 2000
"""Prompts on which a family looks for a start, and on which it settles the number of steps."""


CHUNK = 1000
"""Prompts that a model is asked at one time."""
FAR = 1e100


def bounded(values: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """What steps that are too long make of a prediction, as numbers that can still be squared."""
    return values.nan_to_num(FAR, FAR, -FAR).clamp(-FAR, FAR)


def decades(low: float, high: float, count: int) -> tuple[float, ...]:
    """Numbers from 10^low to 10^high, in equal ratios."""
    return tuple(10**exponent for exponent in np.linspace(low, high, count).tolist())


@dataclass(frozen=True, eq=False)
class Candidate:
    """A learner that is one of its family, and how it was chosen.

    Attributes:
        fitted: how many numbers were chosen by the distance to the learner under study.
        precision: the relative error of its own answers where it stops at a tolerance; else 0.
        most: on how many prompts at most to ask it, if it is slow.
    """

    name: str
    learner: Learner
    parameters: Mapping[str, float | int] = field(default_factory=dict)
    fitted: int = 0
    precision: float = 0.0
    most: int | None = None

    def __str__(self) -> str:
        words = ", ".join(f"{key}={value:.4g}" for key, value in self.parameters.items())
        return f"{self.name}({words})" if words else self.name


@dataclass(frozen=True)
class Observed:
    """Prompts, or whatever else the task samples, and the learner's answers to them."""

    prompt: Any
    answers: Float[Tensor, "batch ..."]
    dtype: torch.dtype = torch.float64
    """In which the learner computed them."""

    @cached_property
    def spectrum(self) -> Spectrum:
        return Spectrum.of(self.prompt)

    def __len__(self) -> int:
        return len(self.answers)

    def first(self, prompts: int) -> Observed:
        if prompts >= len(self):
            return self
        return Observed(self.prompt.part(slice(prompts)), self.answers[:prompts], self.dtype)

    def mean_square(self, learner: Learner) -> float:
        """The squared prediction difference; a learner that leaves all bounds is infinitely far."""
        difference = (answers(learner, self.prompt) - self.answers).square().mean().item()
        return difference if difference == difference else float("inf")


@runtime_checkable
class Family(Protocol):
    """Learners with numbers left open."""

    @property
    def name(self) -> str: ...

    def fit(self, observed: Observed) -> Candidate:
        """The member nearest to the answers."""
        ...


@dataclass(frozen=True)
class Fixed:
    """A family of one: nothing is open."""

    name: str
    learner: Learner
    most: int | None = None

    def fit(self, observed: Observed) -> Candidate:
        return Candidate(self.name, self.learner, most=self.most)


@dataclass(frozen=True)
class InItsPrecision:
    """A model as a candidate: it is asked in the precision of its weights, on the CPU."""

    model: Learner
    dtype: torch.dtype

    def __call__(self, batch: Any) -> Float[Tensor, "batch ..."]:
        starts = range(0, len(batch), CHUNK)
        parts = (batch.part(slice(i, i + CHUNK)).to(dtype=self.dtype) for i in starts)
        found = torch.cat([answers(self.model, part).detach() for part in parts])
        return found.to(batch.targets.dtype)


@dataclass(frozen=True)
class Among:
    """Learners under the values of one parameter, such as the k of nearest neighbours."""

    name: str
    parameter: str
    make: Callable[[int], Learner]
    values: Sequence[int]
    most: int | None = None

    def fit(self, observed: Observed) -> Candidate:
        few = observed.first(min(SOME, self.most or SOME))
        distances = [few.mean_square(self.make(value)) for value in self.values]
        value = self.values[int(np.argmin(distances))]
        return Candidate(self.name, self.make(value), {self.parameter: value}, 1, most=self.most)


@dataclass(frozen=True)
class FreeStep:
    """x_q^T A m with the matrix A that is nearest: one step of gradient descent, preconditioned.

    The prediction is linear in A, so the nearest A solves linear equations.
    """

    name: str = "free-step"

    def fit(self, observed: Observed) -> Candidate:
        prompt: Prompt = observed.prompt
        d = prompt.d
        _, m = prompt.moments()
        count = observed.answers.numel()
        if count < 4 * d**2:
            raise ValueError(
                f"{self.name} fits the {d**2} entries of a preconditioner and needs at least "
                f"{4 * d**2} predictions to do so, got {count}"
            )
        queries = prompt.x_query.expand(len(prompt), -1, -1)
        products = torch.einsum("bqi,bj->bqij", queries, m).reshape(-1, d * d)
        flat = observed.answers.reshape(-1, 1)
        matrix = torch.linalg.lstsq(products, flat).solution.view(d, d)
        return Candidate(self.name, GradientDescent([matrix]), fitted=d * d)


@dataclass(frozen=True)
class LassoFamily:
    """The Lasso with the penalty that is nearest.

    Its answers are converged to a tolerance only. By how much they are off is measured, against a
    tolerance a hundred times smaller: two Lassos cannot be asked to agree to more than that.
    """

    name: str = "lasso"
    most: int = 500
    starts: tuple[float, ...] = decades(-3.0, 1.0, 13)
    """In units of the mean size of an entry of (1/n) X^T y, above which all weights are 0. Far
    below, it is least squares, and takes as many steps as the conditioning asks for."""

    def fit(self, observed: Observed) -> Candidate:
        few, fewer = observed.first(FEW // 2), observed.first(FEW // 10)
        _, m = few.prompt.moments()
        unit = max(m.abs().mean().item(), torch.finfo(m.dtype).tiny ** 0.5)

        def lasso(point: np.ndarray, tolerance: float, most_steps: int) -> Lasso:
            low, high = log(self.starts[0]), log(self.starts[-1])
            penalty = unit * exp(min(max(float(point[0]), low), high))
            return Lasso(penalty, tolerance, most_steps)

        def descended(start: np.ndarray, most_steps: int) -> np.ndarray:
            def residuals(point: np.ndarray) -> np.ndarray:
                answered = lasso(point, Lasso.tolerance, most_steps)(few.prompt)
                return (answered - few.answers).flatten().numpy()

            # Where the distance can be 0, a last step of 1e-4 leaves an error of about its square.
            how = {"ftol": 1e-4, "xtol": 1e-4, "gtol": 1e-14, "diff_step": 1e-4}
            return least_squares(residuals, start, method="lm", **how).x

        def roughly(point: np.ndarray) -> float:
            return fewer.mean_square(lasso(point, 1e-3, ROUGH_STEPS))

        start = min((np.array([log(start)]) for start in self.starts), key=roughly)
        point = descended(start, ROUGH_STEPS)
        best = lasso(point, Lasso.tolerance, Lasso.most_steps)
        if few.mean_square(best) < NEARLY**2 * few.answers.square().mean().item():
            best = lasso(descended(point, Lasso.most_steps), Lasso.tolerance, Lasso.most_steps)
        closer = replace(best, tolerance=best.tolerance / 100)
        answered, converged = best(fewer.prompt), closer(fewer.prompt)
        off = (answered - converged).norm() / converged.norm().clamp_min(1e-300)
        return Candidate(
            self.name, best, {"penalty": best.penalty}, 1, precision=off.item(), most=self.most
        )


ROUGH_STEPS = 1000
"""Of the Lasso while its penalty is looked for: with fewer examples than coordinates, its last
digits take ten times as many."""
NEARLY = 0.01
"""The relative distance below which the last digits of a Lasso may matter."""
