"""The settings that several claims and figures of the paper share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import DTYPE, generator, rotated
from innerloop.papers.verdict import Check, Scale
from innerloop.theory.flow import SingleLayerFlow
from innerloop.theory.linear import CovarianceLaw

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


def gamma(covariance: Tensor, n: int | float) -> Tensor:
    """Gamma = (1 + 1/N) Lambda + tr(Lambda)/N I of Theorem 4.1, written out."""
    identity = torch.eye(len(covariance), dtype=DTYPE)
    return (1 + 1 / n) * covariance + covariance.trace() / n * identity


def whole(u: Tensor, v: Tensor, outer: float = 0.0) -> Tensor:
    """theta = (p, v, U, r), with every entry of p and r the same."""
    side = torch.full((len(u),), outer, dtype=DTYPE)
    return torch.cat([side, v.view(1), u.flatten(), side])


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
    flow: theory.flow.Flow

    @property
    def end_error(self) -> float:
        """The largest entry of the difference between where the flow ends and the stated limit."""
        return end_error(self.model, self.flow)


def end_error(model: SingleLayerFlow, flow: theory.flow.Flow) -> float:
    (u, v), (u_limit, v_limit) = model.unpacked(flow.end), model.limit()
    return max((u - u_limit).abs().max().item(), abs(float(v - v_limit)))


def follow(model: SingleLayerFlow, fraction: float, seed: int, name: str = "") -> Run:
    """The flow from a random direction, at this fraction of the largest scale allowed."""
    direction = theory.flow.balanced_direction(model.law.d, generator(seed))
    scale = fraction * model.largest_scale(direction)
    return Run(name, model, direction, scale, model.flow(*model.start(direction, scale)))


NEAREST = 1e-3
"""What `into_the_saddle` ends at, relative to its start."""
INTO_THE_SADDLE = (
    "a start as balanced, v(0) = sigma, but with negative U(0), from which the flow runs into the "
    f"saddle at 0; followed until v = {NEAREST:g} sigma"
)


@cache
def into_the_saddle(run: Run) -> theory.flow.Flow:
    """The control of bounds along the flow: a balanced path on the saddle's stable manifold.

    Near the origin U' = v E Lambda^2 and v' = <E Lambda^2, U>, which shrinks U = -v P with
    P = E Lambda^2 / |E Lambda^2|_F. From v = NEAREST sigma there, the flow is followed backwards in
    time, where the manifold attracts, until v = sigma; and forwards again from that start. (A start
    that is not on the manifold passes the saddle at a distance; U(0) = -sigma P is one.)

    Backwards v grows at least like exp(|E Lambda^2|_F t): with y = -U, y' = v (E Lambda^2 + v K y)
    and v' = <E Lambda^2, y> + v <y, K y>; y stays positive, and the terms with K only help.
    """
    model, size = run.model, float(run.model.law.square.norm())
    near = NEAREST * run.scale * torch.cat([torch.ones(1), -(model.law.square / size).flatten()])

    def backwards(_: float, theta: np.ndarray) -> np.ndarray:
        u, v = model.gradient(*model.unpacked(torch.from_numpy(theta)))
        return torch.cat([v.view(1), u.flatten()]).numpy()

    def far_enough(_: float, theta: np.ndarray) -> float:
        return float(theta[0]) - run.scale

    far_enough.terminal = True  # type: ignore[attr-defined]
    latest = 1.01 * math.log(1 / NEAREST) / size
    path = solve_ivp(
        backwards, (0, latest), near.numpy(), "DOP853", events=far_enough, rtol=1e-12, atol=1e-15
    )
    ((start,),), ((duration,),) = path.y_events, path.t_events
    return model.flow(*model.unpacked(torch.from_numpy(start)), until=float(duration))


@cache
def past_the_saddle(run: Run) -> theory.flow.Flow:
    """Another control: U(0) = -3 sigma P is not balanced, and the flow passes to v < 0."""
    square = run.model.law.square
    u = -3 * run.scale * square / square.norm()
    return run.model.flow(u, torch.tensor(run.scale, dtype=DTYPE))


@cache
def unbalanced(run: Run) -> theory.flow.Flow:
    """Another control: the same start but for U(0) = 2 sigma Theta Theta^T."""
    u, v = run.model.start(run.direction, run.scale)
    return run.model.flow(2 * u, v)


def fixed_model(d: int) -> SingleLayerFlow:
    return SingleLayerFlow(CovarianceLaw.fixed(fixed(d)), LENGTHS[d])


@cache
def whole_loss(d: int) -> Callable[[Tensor], Tensor]:
    """The exact loss of a layer with all weights, for the fixed covariance of this dimension."""
    return theory.flow.whole_layer_loss(
        fixed(d).unsqueeze(0), torch.ones(1, dtype=DTYPE), LENGTHS[d]
    )


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


def ends_at_the_minimum(
    errors: list[float],
    without: list[float],
    below: list[float],
    above: list[float],
    equation: str,
) -> list[Check]:
    """Where all weights end is the point of this equation, and no descent finds a lower loss.

    `without` and `above` are the same differences and losses for Lambda in place of Gamma.
    """
    return [
        Check(
            f"largest entry of the difference between where all weights end and {equation}",
            max(errors),
            LIMIT,
            min(without),
            WHY_LIMIT,
            f"the difference from {equation} with Lambda for Gamma",
        ),
        Check(
            "how much the loss at the end exceeds the least loss that descent over all weights "
            "finds, relative to it",
            max(below),
            1e-8,
            min(above),
            "the end is within 1e-6 of a minimum, where the loss is quadratic",
            f"{equation} with Lambda for Gamma",
        ),
    ]
