"""The settings that several claims and figures of the paper share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import DTYPE, generator, rotated
from innerloop.papers.verdict import Scale
from innerloop.theory import CovarianceLaw, SingleLayerFlow

# The paper has no numbers for its theory of convergence: these are ours. Spectra of Lambda by d.
SPECTRA = {2: [1.5, 0.4], 3: [1.5, 0.8, 0.4], 5: [1.5, 1.0, 0.8, 0.4, 0.2]}
LENGTHS = {2: 4, 3: 10, 5: 20}
"""Examples in a training prompt, by d."""
RANDOM_LENGTH = 8
LIMIT = 1e-6
WHY_LIMIT = (
    "the integrator may err by 1e-10 in each of about a thousand steps, and stops at a gradient of "
    "1e-10 where the smallest curvature is above 0.01"
)


def fixed(d: int) -> Tensor:
    """A covariance Lambda that is not diagonal."""
    return rotated(SPECTRA[d], seed=0)


def gamma(covariance: Tensor, n: int) -> Tensor:
    """Gamma = (1 + 1/N) Lambda + tr(Lambda)/N I, as in the paper."""
    identity = torch.eye(len(covariance), dtype=DTYPE)
    return (1 + 1 / n) * covariance + covariance.trace() / n * identity


def random_weights(d: int, seed: int) -> tuple[Tensor, Tensor]:
    """(U, v) with normal entries."""
    values = torch.randn(d * d + 1, generator=generator(seed), dtype=DTYPE)
    return values[1:].view(d, d), values[0]


def exponential_mixture(means: Tensor) -> tuple[Tensor, Tensor]:
    """2^d diagonal covariances with the moments of independent exponentials up to the third.

    Gauss-Laguerre quadrature with two nodes a coordinate; the expected loss is cubic in Lambda.
    """
    nodes, weights = (torch.as_tensor(a, dtype=DTYPE) for a in np.polynomial.laguerre.laggauss(2))
    grid = list(product(range(2), repeat=len(means)))
    covariances = torch.stack([torch.diag(nodes[list(point)] * means) for point in grid])
    return covariances, torch.stack([weights[list(point)].prod() for point in grid])


def correlated_mixture() -> tuple[Tensor, Tensor]:
    """Three diagonal covariances: entries that depend on each other."""
    entries = [[1.5, 0.3, 0.8], [0.4, 1.2, 0.5], [2.0, 1.6, 0.2]]
    covariances = torch.diag_embed(torch.tensor(entries, dtype=DTYPE))
    return covariances, torch.tensor([0.5, 0.3, 0.2], dtype=DTYPE)


def rotated_mixture() -> tuple[Tensor, Tensor]:
    """Three covariances that do not commute."""
    spectra = [[1.5, 0.8, 0.4], [2.0, 0.3, 0.6], [0.7, 1.1, 0.2]]
    covariances = torch.stack([rotated(s, seed) for seed, s in enumerate(spectra)])
    return covariances, torch.tensor([0.5, 0.3, 0.2], dtype=DTYPE)


@dataclass(frozen=True, eq=False)
class Run:
    """A flow from a start of Assumption 3.3, as far as the paper's bounds know it."""

    name: str
    model: SingleLayerFlow
    direction: Tensor
    scale: float
    flow: theory.Flow

    @property
    def end_error(self) -> float:
        """The largest entry of the difference between where the flow ends and the stated limit."""
        return end_error(self.model, self.flow)


def end_error(model: SingleLayerFlow, flow: theory.Flow) -> float:
    (u, v), (u_limit, v_limit) = model.unpacked(flow.end), model.limit()
    return max((u - u_limit).abs().max().item(), abs(float(v - v_limit)))


def follow(model: SingleLayerFlow, fraction: float, seed: int, name: str = "") -> Run:
    """The flow from a random direction, at this fraction of the largest scale allowed."""
    direction = theory.balanced_direction(model.law.d, generator(seed))
    scale = fraction * model.largest_scale(direction)
    return Run(name, model, direction, scale, model.flow(*model.start(direction, scale)))


@cache
def mirrored(run: Run, size: float = 1.0) -> theory.Flow:
    """The control of every flow: U(0) = -size sigma E Lambda^2 / |E Lambda^2|_F, v(0) = sigma.

    For size 1 it is as balanced as the assumption asks, but U(0) is negative, and the flow heads
    for the saddle at the origin; for larger size it passes the saddle on the side of v < 0.
    """
    square = run.model.law.square
    u = -size * run.scale * square / square.norm()
    return run.model.flow(u, torch.tensor(run.scale, dtype=DTYPE))


@cache
def unbalanced(run: Run) -> theory.Flow:
    """Another control: the same start but for U(0) = 2 sigma Theta Theta^T."""
    u, v = run.model.start(run.direction, run.scale)
    return run.model.flow(2 * u, v)


def fixed_model(d: int) -> SingleLayerFlow:
    return SingleLayerFlow(CovarianceLaw.fixed(fixed(d)), LENGTHS[d])


@cache
def whole_loss(d: int) -> Callable[[Tensor], Tensor]:
    """The exact loss of a layer with all weights, for the fixed covariance of this dimension."""
    return theory.whole_layer_loss(fixed(d).unsqueeze(0), torch.ones(1, dtype=DTYPE), LENGTHS[d])


@cache
def fixed_runs(scale: Scale) -> list[Run]:
    """Theorem 4.1: every dimension, and three scales between a tenth and all of what is allowed."""
    chosen: Iterable[tuple[int, float]] = scale.pick(
        smoke=[(3, 0.1), (3, 0.99)],
        quick=list(product((2, 3, 5), (0.1, 0.7, 0.99))),
        paper=list(product((2, 3, 5), (0.1, 0.7, 0.99))),
    )
    return [
        follow(fixed_model(d), fraction, seed=d, name=f"d={d}, N={LENGTHS[d]}, {fraction} max")
        for d, fraction in chosen
    ]


@cache
def exponential_law(means: tuple[float, ...] = (1.0, 1.0, 1.0)) -> CovarianceLaw:
    return CovarianceLaw.exponential(torch.tensor(means, dtype=DTYPE))


@cache
def random_runs(scale: Scale) -> list[Run]:
    """Theorem 4.5: exponential entries, of mean 1 as in section 4.3 and of unequal means."""
    equal, unequal = (1.0, 1.0, 1.0), (1.0, 0.5, 2.0)
    chosen: Iterable[tuple[tuple[float, ...], float]] = scale.pick(
        smoke=[(equal, 0.2), (equal, 0.95)],
        quick=list(product((equal, unequal), (0.2, 0.7, 0.95))),
        paper=list(product((equal, unequal), (0.2, 0.7, 0.95))),
    )
    return [
        follow(
            SingleLayerFlow(exponential_law(means), RANDOM_LENGTH),
            fraction,
            seed=7,
            name=f"means {', '.join(f'{m:g}' for m in means)}, {fraction} max",
        )
        for means, fraction in chosen
    ]
