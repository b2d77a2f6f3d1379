"""The ray A_l = a_l Sigma^-1, B_l = b_l I under the prior w ~ N(0, Sigma^-1).

There every loss is a scalar integral over the mean spectrum of W/n, whatever Sigma is, and is exact
at any depth. Ahn 2023 (Theorems 4 and 5) shows the ray holds critical points of the full problem.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from innerloop.theory.checks import require_count, require_room, require_tensor
from innerloop.theory.flow.minima import least_squares
from innerloop.theory.wishart.moments import (
    MOST_COEFFICIENTS,
    Quadrature,
    mean_spectrum,
    recurrence,
)

MOST_LAYERS = MOST_COEFFICIENTS - 1
MOST_TRANSFORMED = 4
"""Layers with transforms, whose risk has degree 3^L - 1."""


def ray_error(
    steps: Float[Tensor, "*batch layers"],
    spectrum: Float[Tensor, "*draws nodes"],
    transforms: Float[Tensor, "*batch layers"] | None = None,
) -> Float[Tensor, "..."]:
    """What is left of the error along an eigenvector of W/n, after all layers; shapes broadcast.

    Without transforms prod_l (1 - a_l x). With them, g being the covariance as transformed so far,
    e <- e (1 - a g), g <- g (1 - a b g)^2 from e = 1, g = x.
    """
    require_tensor("steps", steps, (None,), batched=True)
    if transforms is not None:
        require_tensor("transforms", transforms, (steps.shape[-1],), like=steps, batched=True)
    error, g = torch.ones_like(spectrum), spectrum
    for layer in range(steps.shape[-1]):
        a = steps[..., layer, None]
        error = error * (1 - a * g)
        if transforms is not None:
            g = g * (1 - a * transforms[..., layer, None] * g) ** 2
    return error


def ray_risk(
    steps: Float[Tensor, "*batch layers"],
    n: int,
    d: int,
    transforms: Float[Tensor, "*batch layers"] | None = None,
) -> Float[Tensor, "*batch"]:
    """E (prediction - y_q)^2 on the ray, differentiable; E y_q^2 = d."""
    require_tensor("steps", steps, (None,), batched=True)
    spectrum = ray_spectrum(steps.shape[-1], n, d, transformed=transforms is not None)
    return spectrum(ray_error(steps, spectrum.nodes, transforms) ** 2)


def ray_spectrum(layers: int, n: int, d: int, *, transformed: bool = False) -> Quadrature:
    """The quadrature that makes `ray_risk` exact: the risk has degree 2L, or 3^L - 1, in W/n.

    For up to 79 layers, or 4 with transforms.
    """
    layers = _require_layers(layers, transformed)
    return mean_spectrum(n, d, 3**layers - 1 if transformed else 2 * layers)


@dataclass(frozen=True)
class RayOptimum:
    """The best steps, the transforms that go with them if there are any, and their risk.

    Without transforms the order of the steps does not matter, and they are given in increasing
    order.
    """

    steps: Float[Tensor, " layers"]
    risk: float
    transforms: Float[Tensor, " layers"] | None = None
    hits: int = 1
    """For a search: how many of its starts ended at this risk."""


def untied_optimum(layers: int, n: int, d: int) -> RayOptimum:
    """The best L different steps.

    The error p(x) = prod (1 - a_l x) may be any polynomial with p(0) = 1 and real roots. The best
    one without regard to its roots is the orthogonal polynomial of degree L of x dmu(x),
    whose roots are real, positive and distinct. So a_l = 1 / root_l, all different: looping one
    step is strictly worse for L >= 2.
    """
    layers = _require_layers(layers)
    roots = recurrence(n, d, layers, weighted=True).gauss().nodes
    risk = recurrence(n, d, layers + 1).least_square_at_zero(layers)
    return RayOptimum((1 / roots).sort().values, float(risk))


def transformed_optimum(
    layers: int, n: int, d: int, *, starts: int, generator: torch.Generator
) -> RayOptimum:
    """The best steps and transforms (GD++) that a search from many starts finds.

    No closed form is known, and the ray has several local minima from L = 2 on: `hits` says how
    often the search found the one it returns. The last transform changes nothing and is 0.
    """
    layers, starts = _require_layers(layers, True), require_count("starts", starts)
    require_room(f"a search from {starts} starts", starts * 3**layers * 2 * layers)
    spectrum = ray_spectrum(layers, n, d, transformed=True)

    def residuals(vector: Tensor) -> Tensor:
        error = ray_error(vector[:layers], spectrum.nodes, pad(vector[layers:], (0, 1)))
        return spectrum.weights.sqrt() * error

    # Good steps grow from layer to layer by an order of magnitude; good transforms are in (0, 2).
    uniform = torch.rand(starts, 2 * layers - 1, generator=generator, dtype=torch.float64)
    steps, transforms = uniform[:, :layers].mul(3).sub(1).exp() / 2, 2.5 * uniform[:, layers:] - 0.2
    risks, points = least_squares(residuals, torch.cat([steps, transforms], dim=1))
    best = points[risks.argmin()]
    hits = int((risks < risks.min() * (1 + 1e-6)).sum())
    return RayOptimum(best[:layers], risks.min().item(), pad(best[layers:], (0, 1)), hits)


def _require_layers(layers: int, transformed: bool = False) -> int:
    most = MOST_TRANSFORMED if transformed else MOST_LAYERS
    return require_count("layers", layers, most=most, why="the exact moments of more take minutes")
