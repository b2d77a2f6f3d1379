"""L-BFGS with a strong Wolfe line search, for losses that are the same function at every call."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import jacrev, vmap

from innerloop.training.functional import functional
from innerloop.training.history import History, Metric, measure
from innerloop.training.line_search import Point, strong_wolfe


def minimise(
    model: nn.Module,
    loss: Callable[[], Tensor],
    *,
    steps: int,
    memory: int = 100,
    gradient_tolerance: float = 1e-9,
    loss_tolerance: float = 0.0,
    coordinates: Float[Tensor, "p p"] | None = None,
    metrics: Mapping[str, Metric] | None = None,
    every: int = 1,
    watch: Callable[[int, float], None] = lambda step, loss: None,
) -> History:
    """Minimises a deterministic loss over the model's parameters, in place.

    Stops after `steps` iterations, or earlier when no entry of the gradient exceeds
    `gradient_tolerance`, an iteration lowers the loss by less than `loss_tolerance` times its
    value, or the line search finds nothing lower. A search that meets a value that is not finite
    has gone too far and steps back; only a start that is not finite is an error.

    Args:
        loss: of no arguments; the expected loss, or the loss on one fixed sample.
        memory: how many past steps approximate the Hessian.
        coordinates: a matrix T; the search runs over z in parameters = start + T z. With T of
            `gauss_newton_coordinates` the loss is nearly round in z.
        metrics: read off the model every `every` iterations, before the iteration, and at the end.
    """
    for name, number, least in (("steps", steps, 0), ("memory", memory, 1), ("every", every, 1)):
        if number < least:
            raise ValueError(f"{name} must be at least {least}, got {number}")
    parameters = [p for p in model.parameters() if p.requires_grad]
    start = torch.cat([p.detach().flatten() for p in parameters])

    @torch.no_grad()
    def place(z: Tensor) -> None:
        moved = start + (z if coordinates is None else coordinates @ z)
        sizes = [p.numel() for p in parameters]
        for parameter, values in zip(parameters, moved.split(sizes), strict=True):
            parameter.copy_(values.view_as(parameter))

    def evaluate(z: Tensor) -> Point:
        place(z)
        value = loss()
        gradient = torch.cat([g.flatten() for g in _gradients(value, parameters)])
        gradient = gradient if coordinates is None else coordinates.mT @ gradient
        return Point(z, value.item(), gradient)

    point = evaluate(torch.zeros_like(start))
    if not point.finite:
        what = "gradient" if math.isfinite(point.loss) else "loss"
        raise FloatingPointError(
            f"the {what} is not finite at the start, where the loss is {point.loss}; "
            "start from other weights, such as smaller ones"
        )
    curvature, history, metrics = _Curvature(memory), History(), metrics or {}
    step, last = 0, math.inf
    for step in range(1, steps + 1):
        before = point
        if (step - 1) % every == 0:
            history.record(step - 1, before.loss, measure(metrics, model))
        if before.gradient.abs().max() > gradient_tolerance:
            point = _lower(before, evaluate, curvature)
            place(point.z)
        watch(step, before.loss)
        if torch.equal(point.z, before.z):
            break
        if last - before.loss < loss_tolerance * abs(before.loss):
            break
        last = before.loss
    history.record(step, loss(), measure(metrics, model))
    return history


def _lower(start: Point, evaluate: Callable[[Tensor], Point], curvature: _Curvature) -> Point:
    """Where a search along the next direction ends; the start if nothing lower was found."""
    direction, length = curvature.direction(start.gradient)
    found = strong_wolfe(evaluate, start, direction, length, evaluations=49)
    curvature.add(direction * found.length, found.point.gradient - start.gradient)
    return found.point


class _Curvature:
    """The inverse Hessian as the last steps and changes of the gradient show it.

    The arithmetic is that of torch.optim.LBFGS, so that the iterates are the same.
    """

    def __init__(self, memory: int) -> None:
        self.pairs: deque[tuple[Tensor, Tensor, Tensor]] = deque(maxlen=memory)
        """(step s, change of the gradient y, 1 / <s, y>), oldest first."""
        self.scale: float | Tensor = 1.0
        self.begun = False

    def add(self, step: Float[Tensor, " p"], change: Float[Tensor, " p"]) -> None:
        self.begun = True
        product = change.dot(step)
        if product > 1e-10:  # otherwise the loss is not convex between the two points
            self.pairs.append((step, change, 1.0 / product))
            self.scale = product / change.dot(change)

    def direction(self, gradient: Float[Tensor, " p"]) -> tuple[Tensor, float | Tensor]:
        """The step that would be Newton's, and how much of it to try first."""
        if self.begun:
            direction = self._newton(gradient)
            if direction.isfinite().all():
                return direction, 1.0
            self.pairs.clear()  # they overflowed: begin anew
            self.scale = 1.0
        return -gradient, (1.0 / gradient.abs().sum()).clamp_max(1.0)

    def _newton(self, gradient: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        """The two-loop recursion (Nocedal & Wright, Algorithm 7.4)."""
        q = -gradient
        weights = []
        for step, change, inverse in reversed(self.pairs):
            weights.append(step.dot(q) * inverse)
            q.add_(change, alpha=-weights[-1].item())
        direction = q * self.scale
        for (step, change, inverse), weight in zip(self.pairs, reversed(weights), strict=True):
            weight = weight - change.dot(direction) * inverse
            direction.add_(step, alpha=weight.item())
        return direction


def gauss_newton_coordinates(
    model: nn.Module,
    residuals: Callable[[Any, Tensor], Tensor],
    samples: Float[Tensor, "samples ..."],
    ridge: float = 1e-6,
) -> Float[Tensor, "p p"]:
    """T with T T^T = (G + ridge mean(diag G) I)^-1, G = E J^T J the Gauss-Newton matrix.

    For a loss E |r|^2 with residuals r = residuals(model, samples) and J their Jacobian in the
    parameters, half the Hessian near a good fit is G: in the coordinates parameters = start + T z
    it is nearly the identity.
    """
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    one = functional(model, lambda m, sample: residuals(m, sample.unsqueeze(0)).flatten())
    jacobians = vmap(jacrev(one), in_dims=(None, 0))(parameters, samples)
    # [samples, residuals, *parameter] each -> [samples * residuals, p]
    jacobian = torch.cat([j.flatten(2).flatten(0, 1) for j in jacobians.values()], dim=1)
    g = jacobian.mT @ jacobian / len(samples)
    shift = ridge * g.diagonal().mean() * torch.eye(len(g)).to(g)
    return torch.linalg.inv(torch.linalg.cholesky(g + shift)).mT


def _gradients(value: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    gradients = torch.autograd.grad(value, parameters, allow_unused=True)
    pairs = zip(parameters, gradients, strict=True)
    return [torch.zeros_like(p) if g is None else g for p, g in pairs]
