"""L-BFGS with a strong Wolfe line search, for losses that are the same function at every call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import jacrev, vmap

from innerloop.training.functional import functional
from innerloop.training.history import History, Metric, measure


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
    value, or the line search finds nothing lower.

    Args:
        loss: of no arguments; the expected loss, or the loss on one fixed sample.
        memory: how many past steps approximate the Hessian.
        coordinates: a matrix T; the search runs over z in parameters = start + T z. With T of
            `gauss_newton_coordinates` the loss is nearly round in z.
        metrics: read off the model every `every` iterations, before the iteration, and at the end.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    start = torch.cat([p.detach().flatten() for p in parameters])
    z = torch.zeros_like(start, requires_grad=True)
    # One iteration per call keeps the state between calls, so that every iterate can be recorded.
    optimizer = torch.optim.LBFGS(
        [z],
        lr=1.0,
        max_iter=1,
        max_eval=50,  # of the line search; the default would follow max_iter and cut it short
        history_size=memory,
        tolerance_grad=gradient_tolerance,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )

    @torch.no_grad()
    def place() -> None:
        moved = start + (z if coordinates is None else coordinates @ z)
        sizes = [p.numel() for p in parameters]
        for parameter, values in zip(parameters, moved.split(sizes), strict=True):
            parameter.copy_(values.view_as(parameter))

    seen: list[tuple[Tensor, Tensor, Tensor]] = []  # (z, loss, gradient) of this step's search

    def closure() -> Tensor:
        # Every step begins where the last line search ended: no need to evaluate there again.
        for point, value, gradient in seen:
            if torch.equal(point, z):
                z.grad = gradient.clone()
                return value
        place()
        value = loss()
        if not value.isfinite():
            raise FloatingPointError(f"the loss became {value.item()} in step {step}")
        gradient = torch.cat([g.flatten() for g in _gradients(value, parameters)])
        gradient = gradient if coordinates is None else coordinates.mT @ gradient
        z.grad = gradient.clone()
        seen.append((z.detach().clone(), value.detach(), gradient))
        return value.detach()

    history, metrics = History(), metrics or {}
    step, last = 0, float("inf")
    for step in range(1, steps + 1):
        before = z.detach().clone()
        seen = [entry for entry in seen if torch.equal(entry[0], before)]
        recorded = (step - 1) % every == 0
        measured = measure(metrics, model) if recorded else {}
        value = optimizer.step(closure)  # the loss before the step
        place()
        if recorded:
            history.record(step - 1, value, measured)
        watch(step, value.item())
        if torch.equal(z, before) or last - value.item() < loss_tolerance * abs(value.item()):
            break
        last = value.item()
    history.record(step, loss(), measure(metrics, model))
    return history


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
