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


def _shared_numbers(family: Filtered, spectrum: Spectrum, answers: Tensor) -> list[float]:
    """Those with which the nearest steps of all depths are nearest in sum.

    From a grid; then the steps are kept, and the numbers descend with them.
    """
    if not family.free:
        return []
    few, wanted = spectrum.first(FEW), answers[:, :FEW]

    def distances(numbers: Sequence[Number]) -> Float[Tensor, "*grid steps depths"]:
        """Of every step from every depth."""
        found = []
        for steps in family.steps:
            iterate = bounded(few.predict(family.phi(few, steps, numbers)))
            difference = iterate.unsqueeze(-3) - wanted  # [*grid, depths, batch, queries]
            found.append(difference.square().mean((-2, -1)))
        return torch.stack(found, dim=-2)

    def best_of(points: np.ndarray) -> np.ndarray:
        columns = torch.tensor(points, dtype=few.values.dtype).T[..., None, None]
        numbers = [n.values(column, few) for n, column in zip(family.free, columns, strict=True)]
        return points[int(distances(numbers).amin(-2).sum(-1).argmin())]

    points = family.points()
    point, width = best_of(points), np.ptp(points, axis=0) / len(points) * len(family.free)
    for _ in range(4):  # a step size that is a little off has the wrong number of deep steps
        point = best_of(point + np.linspace(-1.5, 1.5, 13)[:, None] * width)
        width = width / 4
    for _ in range(3):
        nearest = distances(family.numbers(point, few)).argmin(-2).tolist()
        chosen = [family.steps[i] for i in nearest]

        def residuals(point: np.ndarray, chosen: Sequence[int] = tuple(chosen)) -> np.ndarray:
            phis = [
                family.phi(spectrum, steps, family.numbers(point, spectrum)) for steps in chosen
            ]
            predicted = torch.stack([spectrum.predict(phi) for phi in phis])
            return bounded(predicted - answers).flatten().numpy()

        point = least_squares(residuals, point, method="lm").x
    return family.numbers(point, spectrum)
