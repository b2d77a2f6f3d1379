"""Linear probes: what can be read, linearly, off the residuals of a model, layer by layer.

A probe is the best linear map, fitted on one half of the prompts, from the residual at the query's
token to a vector: (1/n) X^T y, the least-squares weights w, or an iterate of gradient descent. Its
R^2 is measured on the other half. Wide residuals let probes find much that a model never uses, so
each probe has a *control task* (Hewitt and Liang 2019): the same function of the same prompt with
its labels moved one example on, y_i -> y_{i+1}. It is as complex, it is in the prompt as much, and
no algorithm has a use for it. The difference of the two R^2 is the probe's *selectivity*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms import GradientDescent, LeastSquares
from innerloop.analysis.identification.bootstrap import Bootstrap, Interval
from innerloop.models import InContext
from innerloop.prompt import Prompt
from innerloop.tables import TextTable

CHUNK = 250
Target = Callable[[Prompt], Float[Tensor, "batch k"]]
"""What a probe looks for."""
SHRINKAGE = 1e-6
"""Of the probe's own ridge penalty, relative to the mean variance: against directions in which
residuals do not vary at all."""


def standard_targets(step_size: float, steps: Sequence[int] = (1, 2, 4)) -> dict[str, Target]:
    """X^T y / n, the weights of least squares, and iterates of gradient descent."""

    def iterate(count: int) -> Target:
        descent = GradientDescent.repeated(step_size, count)
        return lambda prompt: descent.iterates(prompt)[:, -1]

    targets: dict[str, Target] = {
        "X^T y / n": lambda prompt: prompt.moments()[1],
        "w of least squares": LeastSquares().weights,
    }
    for count in steps:
        targets[f"w after {count} steps"] = iterate(count)
    return targets


def control(prompt: Prompt) -> Prompt:
    """The prompt with every label moved one example on."""
    return replace(prompt, y=prompt.y.roll(1, dims=1), y_clean=None)


@dataclass(frozen=True)
class Probe:
    """What one probe found at one depth."""

    depth: str
    target: str
    r2: Interval
    control: Interval
    selectivity: Interval


@dataclass(frozen=True)
class ProbeTable:
    probes: Sequence[Probe]
    prompts: int

    def as_text(self) -> TextTable:
        table = TextTable(
            f"linear probes of the residual at the query, {self.prompts} held-out prompts",
            ["depth and target", "R²", "R² of the control", "selectivity"],
        )
        for probe in self.probes:
            cells = (probe.r2, probe.control, probe.selectivity)
            words = (f"{c.value:.3f} [{c.low:.3f}, {c.high:.3f}]" for c in cells)
            table.add(f"{probe.depth}: {probe.target}", *words)
        return table


@torch.no_grad()
def probe(
    model: Any,
    prompt: Prompt,
    targets: Mapping[str, Target],
    *,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> ProbeTable:
    """Every target at every layer of every loop, each with its control.

    Args:
        model: with a `trace` of its residuals.
        prompt: in double precision; the model is asked in `dtype`.
    """
    names, residuals = _residuals(model, prompt, dtype)
    half, width = len(prompt) // 2, residuals.shape[-1]
    if half < 2 * width:
        raise ValueError(
            f"probes of residuals of width {width} need at least {4 * width} prompts, got "
            f"{len(prompt)}"
        )
    moved, probes = control(prompt), []
    wanted = {name: (target(prompt), target(moved)) for name, target in targets.items()}
    for name, residual in zip(names, residuals, strict=True):
        solve = _probe(residual[:half])
        for target, pair in wanted.items():
            columns = [
                _columns(solve(vector[:half])(residual[half:]), vector[half:]) for vector in pair
            ]
            drawn = Bootstrap.of(torch.stack(columns, dim=1), generator=generator)
            r2 = drawn.interval(lambda means: _r2(means[..., 0, :]))
            of_control = drawn.interval(lambda means: _r2(means[..., 1, :]))
            difference = drawn.interval(lambda m: _r2(m[..., 0, :]) - _r2(m[..., 1, :]))
            probes.append(Probe(name, target, r2, of_control, difference))
    return ProbeTable(probes, len(prompt) - half)


def _residuals(model: Any, prompt: Prompt, dtype: torch.dtype) -> tuple[list[str], Tensor]:
    """At the query's token, after every layer: [layers, batch, width]."""
    inner = model.model if isinstance(model, InContext) else model
    if not hasattr(inner, "trace"):
        raise ValueError(f"probes need a model with `trace`, got {type(inner).__name__}")
    parts = []
    for first in range(0, len(prompt), CHUNK):
        sequence = prompt.part(slice(first, first + CHUNK)).to(dtype=dtype).interleave()
        trace = inner.trace(sequence.last())
        parts.append(trace.residuals[:, :, -1].double().cpu())
    return list(trace.names), torch.cat(parts, dim=1)


def _probe(
    residual: Float[Tensor, "batch width"],
) -> Callable[[Tensor], Callable[[Tensor], Tensor]]:
    """From a target to its best affine map; the residual's own matrix is factored once."""
    mean = residual.mean(0)
    centred = residual - mean
    gram = centred.mT @ centred
    penalty = SHRINKAGE * gram.diagonal().mean().clamp_min(torch.finfo(gram.dtype).tiny)
    factor = torch.linalg.cholesky(gram + penalty * torch.eye(len(gram)).to(gram))

    def solve(target: Tensor) -> Callable[[Tensor], Tensor]:
        offset = target.mean(0)
        weights = torch.cholesky_solve(centred.mT @ (target - offset), factor)
        return lambda other: (other - mean) @ weights + offset

    return solve


def _columns(found: Tensor, wanted: Tensor) -> Float[Tensor, "batch two"]:
    """Squared error, and squared deviation from the mean."""
    deviation = wanted - wanted.mean(0)
    return torch.stack([(found - wanted).square().sum(1), deviation.square().sum(1)], dim=1)


def _r2(means: Float[Tensor, "*resamples two"]) -> Float[Tensor, "*resamples"]:
    smallest = torch.finfo(means.dtype).tiny
    return 1 - means[..., 0] / means[..., 1].clamp_min(smallest)
