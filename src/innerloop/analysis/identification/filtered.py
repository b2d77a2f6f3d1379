"""Families of functions of S, which cover most algorithms; searched in the eigenbasis of S."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import least_squares
from torch import Tensor

from innerloop.algorithms import Learner
from innerloop.analysis.identification.candidates import (
    FEW,
    SOME,
    Candidate,
    Observed,
    bounded,
)
from innerloop.analysis.identification.spectrum import Filter, Spectrum
from innerloop.prompt import Prompt


@dataclass(frozen=True)
class Free:
    """A number that is left open.

    Attributes:
        starts: where to look, in increasing order; the first and last are bounds as well.
        unit: of the starts, from the prompts: "penalty" is n times the mean eigenvalue of S, "step"
            its inverse, "square" the square of that, "eigenvalue" that eigenvalue, "one" is 1.
    """

    name: str
    starts: tuple[float, ...]
    unit: str = "one"

    @property
    def logarithmic(self) -> bool:
        return self.starts[0] > 0

    def size(self, spectrum: Spectrum) -> float:
        units = {
            "penalty": spectrum.n * spectrum.scale,
            "step": 1 / spectrum.scale,
            "square": spectrum.scale**-2,
            "eigenvalue": spectrum.scale,
            "one": 1.0,
        }
        return units[self.unit]

    def coordinate(self, start: float) -> float:
        return log(start) if self.logarithmic else start

    def value(self, coordinate: float, spectrum: Spectrum) -> float:
        return self.values(torch.tensor(coordinate, dtype=torch.float64), spectrum).item()

    def values(self, coordinates: Float[Tensor, "*grid"], spectrum: Spectrum) -> Tensor:
        """The numbers at these coordinates, within the bounds."""
        low, high = (self.coordinate(bound) for bound in (self.starts[0], self.starts[-1]))
        bounded = coordinates.clamp(low, high)
        return self.size(spectrum) * (bounded.exp() if self.logarithmic else bounded)


@dataclass(frozen=True)
class Filtered:
    """Functions of S after a number of steps, some numbers of them open.

    Attributes:
        phi: the function of the eigenvalues.
        make: the same as an ordinary learner, from the steps and the open numbers.
        steps: the numbers of steps to try, in increasing order; where they leave gaps beside the
            best of them, `fit` looks between. (0,) and `counts=False` for what takes none.
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
        tried = self._tried(spectrum, observed)
        # Of numbers of steps that are as good up to rounding, as all are once they have converged,
        # the fewest.
        rounding = (64 * torch.finfo(observed.dtype).eps) ** 2 * observed.answers.square().mean()
        enough = max(4 * min(distance for distance, _, _ in tried), rounding.item())
        steps, point = next(each[1:] for each in tried if each[0] <= enough)
        if self.free:
            _, point = self._descended(spectrum, observed.answers, steps, point)
        numbers = self.numbers(point, spectrum)
        parameters: dict[str, float | int] = {"steps": steps} if self.counts else {}
        parameters |= dict(zip((number.name for number in self.free), numbers, strict=True))
        return Candidate(self.name, self.make(steps, numbers), parameters, len(parameters))

    def _tried(self, spectrum: Spectrum, observed: Observed) -> list[tuple[float, int, np.ndarray]]:
        """Every number of steps that was tried, in increasing order: `steps`, and then halves of
        the gaps on both sides of the nearest, until there are none.

        It finds the nearest of all: with step sizes at their best, k' steps miss k steps of descent
        by a multiple of |1/k - 1/k'|, which falls on one side of k and rises on the other.
        """
        tried = {steps: self._settled(spectrum, observed, steps) for steps in self.steps}
        while True:
            ordered = sorted(tried)
            place = ordered.index(min(tried.values(), key=lambda each: each[0])[1])
            beside = itertools.pairwise(ordered[max(place - 1, 0) : place + 2])
            between = {(low + high) // 2 for low, high in beside} - tried.keys()
            if not between:
                return [tried[steps] for steps in ordered]
            tried |= {steps: self._settled(spectrum, observed, steps) for steps in between}

    def _settled(
        self, spectrum: Spectrum, observed: Observed, steps: int
    ) -> tuple[float, int, np.ndarray]:
        """The best numbers for so many steps, and how far they are, on some of the prompts."""
        start = self.start(spectrum.first(FEW), observed.answers[:FEW], steps)
        some, wanted = spectrum.first(SOME), observed.answers[:SOME]
        if not self.free:
            return self._mean_square(some, wanted, steps, start), steps, start
        distance, point = self._descended(some, wanted, steps, start, tolerance=1e-6)
        return distance, steps, point

    def points(self) -> np.ndarray:
        """All starts, as points of the space that is searched [points, open]."""
        axes = [[number.coordinate(start) for start in number.starts] for number in self.free]
        return np.array(list(itertools.product(*axes)))

    def start(self, spectrum: Spectrum, wanted: Tensor, steps: int) -> np.ndarray:
        """The point of the grid that is nearest."""
        if not self.free:
            return np.array([])
        points = self.points()
        columns = torch.tensor(points, dtype=spectrum.values.dtype).T[..., None, None]
        pairs = zip(self.free, columns, strict=True)
        numbers = [number.values(column, spectrum) for number, column in pairs]
        difference = spectrum.predict(self.phi(spectrum, steps, numbers)) - wanted
        return points[int(bounded(difference).square().mean((-2, -1)).argmin())]

    def _descended(
        self,
        spectrum: Spectrum,
        wanted: Tensor,
        steps: int,
        start: np.ndarray,
        *,
        tolerance: float = 4 * float(np.finfo(float).eps),
    ) -> tuple[float, np.ndarray]:
        """Levenberg and Marquardt's least squares: where the distance can be 0, to rounding."""

        def residuals(point: np.ndarray) -> np.ndarray:
            return self._residuals(spectrum, wanted, steps, point).flatten().numpy()

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
        return bounded(spectrum.predict(phi) - wanted)

    def numbers(self, point: np.ndarray, spectrum: Spectrum) -> list[float]:
        """The open numbers at a point of the space that is searched."""
        pairs = zip(self.free, point, strict=True)
        return [number.value(float(coordinate), spectrum) for number, coordinate in pairs]
