"""Candidates: learners whose every number is known, and the families that they are fitted from.

A family is fitted to what the learner under study answered on one half of the prompts, by the
distance to those answers; labels of queries play no part. What comes out is an ordinary learner,
and everything that is reported of it is measured on the other half, on shifted tasks, and so on.
"""

from __future__ import annotations

import itertools
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
from innerloop.analysis.identify.spectrum import Filter, Spectrum
from innerloop.prompt import Prompt

FEW, SOME = 500, 2000
"""Prompts on which a family looks for a start, and on which it settles the number of steps."""


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
    parameters: Mapping[str, float] = field(default_factory=dict)
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

    @cached_property
    def spectrum(self) -> Spectrum:
        return Spectrum.of(self.prompt)

    def __len__(self) -> int:
        return len(self.answers)

    def first(self, prompts: int) -> Observed:
        if prompts >= len(self):
            return self
        return Observed(self.prompt.part(slice(prompts)), self.answers[:prompts])

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
        return answers(self.model, batch.to(dtype=self.dtype)).detach().to(batch.targets.dtype)


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
class Free:
    """A number that is left open.

    Attributes:
        starts: where to look, in increasing order; the first and last are bounds as well.
        unit: of the starts, from the prompts: "penalty" is n times the mean eigenvalue of S, "step"
            its inverse, "one" is 1.
    """

    name: str
    starts: tuple[float, ...]
    unit: str = "one"

    @property
    def logarithmic(self) -> bool:
        return self.starts[0] > 0

    def size(self, spectrum: Spectrum) -> float:
        return {"penalty": spectrum.n * spectrum.scale, "step": 1 / spectrum.scale, "one": 1.0}[
            self.unit
        ]

    def coordinate(self, start: float) -> float:
        return log(start) if self.logarithmic else start

    def value(self, coordinate: float, spectrum: Spectrum) -> float:
        low, high = (self.coordinate(bound) for bound in (self.starts[0], self.starts[-1]))
        bounded = min(max(coordinate, low), high)
        return self.size(spectrum) * (exp(bounded) if self.logarithmic else bounded)


@dataclass(frozen=True)
class Filtered:
    """Functions of S after a number of steps, some numbers of them open.

    Attributes:
        phi: the function of the eigenvalues.
        make: the same as an ordinary learner, from the steps and the open numbers.
        steps: the numbers of steps to try; (0,) and `counts=False` for what takes none.
        before: what is done to covariates first, such as whitening them; None: nothing.
    """

    name: str
    phi: Filter
    make: Callable[[int, Sequence[float]], Learner]
    free: tuple[Free, ...] = ()
    steps: Sequence[int] = (0,)
    counts: bool = True
    before: Callable[[Tensor], Tensor] | None = None

    def spectrum_of(self, prompt: Prompt) -> Spectrum:
        if self.before is None:
            return Spectrum.of(prompt)
        x, x_query = self.before(prompt.x), self.before(prompt.x_query)
        return Spectrum.of(replace(prompt, x=x, x_query=x_query))

    def fit(self, observed: Observed) -> Candidate:
        spectrum = observed.spectrum if self.before is None else self.spectrum_of(observed.prompt)
        some = [self._settled(spectrum, observed, steps) for steps in self.steps]
        _, steps, point = min(some, key=lambda tried: tried[0])
        if self.free:
            _, point = self._descended(spectrum, observed.answers, steps, point)
        numbers = self.numbers(point, spectrum)
        parameters: dict[str, float] = {"steps": steps} if self.counts else {}
        parameters |= dict(zip((number.name for number in self.free), numbers, strict=True))
        return Candidate(self.name, self.make(steps, numbers), parameters, len(parameters))

    def _settled(
        self, spectrum: Spectrum, observed: Observed, steps: int
    ) -> tuple[float, int, np.ndarray]:
        """The best numbers for so many steps, and how far they are, on some of the prompts."""
        few, wanted = spectrum.first(FEW), observed.answers[:FEW]
        grids = [[number.coordinate(start) for start in number.starts] for number in self.free]
        points = map(np.array, itertools.product(*grids))
        start = min(points, key=lambda p: self._mean_square(few, wanted, steps, p))
        some, wanted = spectrum.first(SOME), observed.answers[:SOME]
        if not self.free:
            return self._mean_square(some, wanted, steps, start), steps, start
        distance, point = self._descended(some, wanted, steps, start)
        return distance, steps, point

    def _descended(
        self, spectrum: Spectrum, wanted: Tensor, steps: int, start: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """Levenberg and Marquardt's least squares: where the distance can be 0, to rounding."""

        def residuals(point: np.ndarray) -> np.ndarray:
            return self._residuals(spectrum, wanted, steps, point).flatten().numpy()

        tolerance = 4 * np.finfo(float).eps
        found = least_squares(
            residuals, start, method="lm", ftol=tolerance, xtol=tolerance, gtol=tolerance
        )
        return 2 * found.cost / wanted.numel(), found.x

    def _mean_square(
        self, spectrum: Spectrum, wanted: Tensor, steps: int, point: np.ndarray
    ) -> float:
        return self._residuals(spectrum, wanted, steps, point).square().mean().item()

    def _residuals(
        self, spectrum: Spectrum, wanted: Tensor, steps: int, point: np.ndarray
    ) -> Tensor:
        phi = self.phi(spectrum, steps, self.numbers(point, spectrum))
        difference = spectrum.predict(phi) - wanted
        return difference.nan_to_num(FAR, FAR, -FAR).clamp(-FAR, FAR)

    def numbers(self, point: np.ndarray, spectrum: Spectrum) -> list[float]:
        """The open numbers at a point of the space that is searched."""
        pairs = zip(self.free, point, strict=True)
        return [number.value(float(coordinate), spectrum) for number, coordinate in pairs]


FAR = 1e100
"""A residual of steps that leave all bounds: its square is still a number."""


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
    tolerance a thousand times smaller: two Lassos cannot be asked to agree to more than that.
    """

    name: str = "lasso"
    most: int = 2000
    starts: tuple[float, ...] = tuple(10**k for k in np.linspace(-4, 1, 16))
    """In units of the mean size of an entry of (1/n) X^T y, above which all weights are 0."""

    def fit(self, observed: Observed) -> Candidate:
        few = observed.first(FEW)
        _, m = few.prompt.moments()
        unit = max(m.abs().mean().item(), torch.finfo(m.dtype).tiny ** 0.5)

        def penalty(point: float) -> float:
            return unit * exp(min(max(point, log(self.starts[0])), log(self.starts[-1])))

        def residuals(point: np.ndarray) -> np.ndarray:
            answered = Lasso(penalty(float(point[0])))(few.prompt)
            return (answered - few.answers).flatten().numpy()

        points = (np.array([log(start)]) for start in self.starts)
        start = min(points, key=lambda point: float(np.square(residuals(point)).mean()))
        found = least_squares(residuals, start, method="lm", diff_step=1e-4)
        best = Lasso(penalty(float(found.x[0])))
        closer = replace(best, tolerance=best.tolerance / 1e3)
        answered, converged = best(few.prompt), closer(few.prompt)
        off = (answered - converged).norm() / converged.norm().clamp_min(1e-300)
        return Candidate(
            self.name, best, {"penalty": best.penalty}, 1, precision=off.item(), most=self.most
        )
