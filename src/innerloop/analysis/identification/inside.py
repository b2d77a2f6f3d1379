"""Inside a model: what it would answer after every loop or layer, and which step that is.

A model that runs an iterative algorithm has, at every depth, the iterate of some step. Each
read-out is compared with every number of steps of an algorithm, one step size for all depths: the
number of the nearest step against the depth is a line for gradient descent. Against a model that
runs Newton's iteration, the matching steps of gradient descent double with every loop (Fu et al.
2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import least_squares
from torch import Tensor

from innerloop.analysis.identification import measures
from innerloop.analysis.identification.bootstrap import Bootstrap, Interval
from innerloop.analysis.identification.candidates import FEW, bounded
from innerloop.analysis.identification.filtered import Filtered
from innerloop.analysis.identification.spectrum import Number, Spectrum
from innerloop.models import DenseWeights, InContext, LinearAttention
from innerloop.prompt import Prompt
from innerloop.tables import TextTable

By = Literal["loop", "layer"]
CHUNK = 250
"""Prompts at one time: the residuals of every layer are kept."""


@dataclass(frozen=True)
class ReadOut:
    """What a model would answer if it stopped at each depth."""

    names: Sequence[str]
    answers: Float[Tensor, "depths batch queries"]


@torch.no_grad()
def read_out(model: Any, prompt: Prompt, by: By, depths: int | None = None) -> ReadOut:
    """After every loop, or after every layer of every loop.

    Args:
        depths: of loops, how many to run; by default as many as the model was made for.
    """
    parts = []
    for first in range(0, len(prompt), CHUNK):
        part = prompt.part(slice(first, first + CHUNK))
        names, answered = (_by_loop if by == "loop" else _by_layer)(model, part, depths)
        parts.append(answered.double().cpu())
    return ReadOut(names, torch.cat(parts, dim=1))


def _by_loop(model: Any, prompt: Prompt, depths: int | None) -> tuple[list[str], Tensor]:
    inner = model.model if isinstance(model, InContext) else model
    loops = getattr(inner, "loops", None)
    if loops is None or not hasattr(model, "after_loops"):
        raise ValueError(f"only a looped model has loops, got {type(inner).__name__}; try layers")
    counts = range(1, (depths or loops) + 1)
    return [f"loop {count}" for count in counts], model.after_loops(prompt, counts)


def _by_layer(model: Any, prompt: Prompt, depths: int | None) -> tuple[list[str], Tensor]:
    if isinstance(model, LinearAttention):
        p, q = model.weights.matrices()
        counts = range(1, len(p) + 1)
        stacks = (DenseWeights(p[:k].detach(), q[:k].detach()) for k in counts)
        read = [LinearAttention(stack, masked=model.masked)(prompt) for stack in stacks]
        return [f"layer {k}" for k in counts], torch.stack(read)
    inner = model.model if isinstance(model, InContext) else model
    if not hasattr(inner, "trace"):
        raise ValueError(
            f"only a model with `trace` can be read layer by layer, got {type(inner).__name__}"
        )
    trace = inner.trace(prompt.interleave().last())
    return list(trace.names), trace.readout.view(len(trace.names), *prompt.y_query.shape)


@dataclass(frozen=True)
class DepthMatch:
    """An iterative algorithm against every depth of a model.

    Attributes:
        parameters: what all its steps share, fitted.
        steps: the numbers of steps that were tried.
        shares: of the error, by depth and steps; NaN where neither errs.
        best: the nearest number of steps at each depth, with its interval over prompts.
        relative: the distance at the nearest step over the size of the read-out.
    """

    family: str
    parameters: dict[str, float]
    depths: Sequence[str]
    steps: Sequence[int]
    shares: Float[Tensor, "depths steps"]
    best: Sequence[Interval]
    best_shares: Sequence[Interval]
    relative: Sequence[float]

    def as_text(self) -> TextTable:
        words = ", ".join(f"{name}={value:.4g}" for name, value in self.parameters.items())
        table = TextTable(
            f"{self.family}{f' ({words})' if words else ''}: the nearest step at every depth",
            ["depth", "nearest step", "share of the error", "relative distance"],
        )
        rows = zip(self.depths, self.best, self.best_shares, self.relative, strict=True)
        for depth, best, share, relative in rows:
            steps = f"{best.value:.0f} [{best.low:.0f}, {best.high:.0f}]"
            table.add(depth, steps, share.percent(), f"{relative:.2g}")
        return table


@torch.no_grad()
def match_depths(
    read: ReadOut, prompt: Prompt, family: Filtered, *, generator: torch.Generator
) -> DepthMatch:
    """The read-outs against all steps of the family; its open numbers are fitted on one half.

    They are the same for all depths and steps: an algorithm has one step size. The prompts are in
    double precision.
    """
    half = len(prompt) // 2
    numbers = _shared_numbers(
        family, family.spectrum_of(prompt.part(slice(half))), read.answers[:, :half]
    )
    rest = prompt.part(slice(half, None))
    iterates = _iterates(family, family.spectrum_of(rest), numbers)  # [steps, batch, queries]
    answers = read.answers[:, half:]
    columns = torch.stack(
        [
            torch.stack([measures.squares(f, g, rest.y_query) for g in iterates], dim=1)
            for f in answers
        ],
        dim=1,
    )  # [batch, depths, steps, 5]
    nearest = columns[..., measures.DIFFERENCE].mean(0).argmin(-1).tolist()
    steps = torch.tensor(family.steps, dtype=torch.float64)

    def nearest_step(means: Tensor) -> Tensor:
        return steps[means[..., measures.DIFFERENCE].argmin(-1)]

    best, shares = [], []
    for depth, which in enumerate(nearest):
        drawn = Bootstrap.of(columns[:, depth], generator=generator)
        best.append(drawn.interval(nearest_step))
        there = Bootstrap(drawn.mean[which], drawn.resampled[:, which])
        shares.append(there.interval(measures.error_share))
    means = columns.mean(0)
    relative = [
        measures.relative_distance(means[depth, which]).item()
        for depth, which in enumerate(nearest)
    ]
    return DepthMatch(
        family.name,
        dict(zip((number.name for number in family.free), numbers, strict=True)),
        read.names,
        family.steps,
        measures.error_share(means),
        best,
        shares,
        relative,
    )


def _iterates(family: Filtered, spectrum: Spectrum, numbers: Sequence[Number]) -> Tensor:
    predictions = [spectrum.predict(family.phi(spectrum, steps, numbers)) for steps in family.steps]
    return bounded(torch.stack(predictions))


def _shared_numbers(
    family: Filtered, spectrum: Spectrum, answers: Float[Tensor, "depths batch queries"]
) -> list[float]:
    """The number with which the nearest steps of all depths are nearest in sum.

    Half the step size with twice the steps is nearly as good: the sum has many minima. From each of
    them on a fine grid the number descends with its steps kept, and the best of all is taken.
    """
    if not family.free:
        return []
    if len(family.free) > 1:
        raise ValueError(f"steps are matched with one open number at most, got {family.name}")
    few, wanted, number = spectrum.first(FEW // 2), answers[:, : FEW // 2], family.free[0]

    def distances(coordinates: np.ndarray) -> Float[Tensor, "grid steps depths"]:
        grid = torch.tensor(coordinates, dtype=few.values.dtype)[:, None, None]
        found = []
        for steps in family.steps:
            iterate = few.predict(family.phi(few, steps, [number.values(grid, few)]))
            difference = bounded(iterate).unsqueeze(1) - wanted  # [grid, depths, batch, queries]
            found.append(difference.square().mean((-2, -1)))
        return torch.stack(found, dim=1)

    def descended(coordinate: float) -> tuple[float, float]:
        """How far the steps that are nearest at a coordinate can come, and where."""
        nearest = distances(np.array([coordinate]))[0].argmin(0).tolist()

        def residuals(point: np.ndarray) -> np.ndarray:
            value = [number.value(float(point[0]), few)]
            phis = (family.phi(few, family.steps[i], value) for i in nearest)
            predicted = torch.stack([few.predict(phi) for phi in phis])
            return bounded(predicted - wanted).flatten().numpy()

        found = least_squares(residuals, [coordinate], method="lm")
        return float(found.cost), float(found.x[0])

    low, high = (number.coordinate(number.starts[i]) for i in (0, -1))
    fine = np.linspace(low, high, FINER * len(number.starts))
    totals = np.pad(distances(fine).amin(1).sum(-1).numpy(), 1, constant_values=np.inf)
    lowest = (totals[1:-1] <= totals[:-2]) & (totals[1:-1] <= totals[2:])
    _, best = min(descended(coordinate) for coordinate in fine[lowest].tolist())
    return [number.value(best, spectrum)]


FINER = 8
"""Points of the fine grid for every start of a family's own."""
