"""Gradient flow: the path of gradient descent with infinitely small steps.

    theta'(t) = -grad loss(theta(t)),   theta(0) = start

Near a minimum the flow is stiff: its fastest and slowest directions differ by the condition number
of the Hessian, and an explicit method would have to follow the fastest one to the end. LSODA
changes by itself between Adams formulas, of order up to 12 and cheap where the path bends, and
implicit ones where it is stiff. On the flows of this library, at a tolerance of 1e-10, it needs a
fifth of the gradients of Radau's method; explicit formulas do not come to rest at all.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from scipy.integrate import LSODA, DenseOutput, OdeSolution
from torch import Tensor

from innerloop.theory.checks import (
    require_count,
    require_finite,
    require_number,
    require_positive,
    require_tensor,
)

Loss = Callable[[Tensor], Tensor]
Gradient = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Flow:
    """The path of a gradient flow, known at every time between its start and its end.

    What is asked without `times` is answered at the times of the integrator's own steps.
    """

    loss: Loss
    times: Float[Tensor, " steps"]
    """Of the integrator's steps, from 0 to where it stopped."""
    path: Float[Tensor, "steps p"]
    """theta at these times."""
    converged: bool
    """Whether it came to rest: at a stationary point, which need not be a minimum."""
    ended_because: str
    """In words, with numbers."""
    _gradient: Gradient = field(repr=False)
    _between: Callable[[np.ndarray], np.ndarray] = field(repr=False)

    @property
    def end(self) -> Float[Tensor, " p"]:
        return self.path[-1]

    def at(self, times: Float[Tensor, " times"]) -> Float[Tensor, "times p"]:
        """theta at these times; after its end a flow that converged stays where it is."""
        require_tensor("times", times, (len(times),) if times.ndim else (None,))
        last = self.times[-1].item()
        if times.numel() and not times.min().item() >= 0:
            raise ValueError(f"times must not be negative, got {times.min().item():g}")
        if not self.converged and times.numel() and times.max().item() > last:
            raise ValueError(
                f"times must be at most {last:g}, where this flow was stopped before it came to "
                f"rest, got {times.max().item():g}. Give gradient_flow a later `until`."
            )
        values = self._between(times.clamp(max=last).numpy())
        return torch.as_tensor(values.T, dtype=torch.float64)

    def losses(self, times: Float[Tensor, " times"] | None = None) -> Float[Tensor, " times"]:
        points = self.path if times is None else self.at(times)
        return torch.stack([self.loss(point).detach() for point in points])

    def squared_gradients(
        self, times: Float[Tensor, " times"] | None = None
    ) -> Float[Tensor, " times"]:
        """|grad loss|^2, which is the speed at which the loss falls."""
        points = self.path if times is None else self.at(times)
        return torch.stack([self._gradient(point).square().sum() for point in points])

    def pl_ratios(
        self, minimum: float, times: Float[Tensor, " times"] | None = None
    ) -> Float[Tensor, " times"]:
        """|grad loss|^2 / (loss - minimum): a Polyak-Lojasiewicz constant is a lower bound of it.

        NaN where the loss is so close to the minimum that their difference is mostly rounding.
        A loss written as what it exceeds its minimum by, with minimum = 0, has no such place.
        """
        require_number("minimum", minimum)
        gaps = self.losses(times) - minimum
        lost = gaps <= 1e-10 * abs(minimum)
        return torch.where(lost, torch.nan, self.squared_gradients(times) / gaps)


def gradient_flow(
    loss: Loss,
    start: Float[Tensor, " p"],
    *,
    gradient: Gradient | None = None,
    until: float = 1e6,
    rest: float = 1e-10,
    rtol: float = 1e-10,
    atol: float = 1e-12,
    most_steps: int = 100_000,
) -> Flow:
    """Follows theta' = -grad loss(theta) until it comes to rest.

    Args:
        loss: from one vector [p] to a scalar tensor that autograd can differentiate.
        gradient: of the loss at a vector, if there is a quicker way to it than autograd.
        until: the latest time.
        rest: the norm of the gradient below which the flow has converged.
        rtol: relative error that each step may make.
        atol: absolute error that each step may make.
        most_steps: of the integrator; a flow that takes more has not converged.
    """
    require_start(start)
    for name, value in (("until", until), ("rest", rest), ("rtol", rtol), ("atol", atol)):
        require_positive(name, value)
    most_steps = require_count("most_steps", most_steps)

    slope = gradient or partial(_autograd, loss)

    def velocity(time: float, theta: np.ndarray) -> np.ndarray:
        value = slope(torch.tensor(theta, dtype=torch.float64)).numpy()
        if not np.isfinite(value).all():
            raise ValueError(
                f"the gradient of the loss must stay finite; at time {time:g} it is "
                f"{value.tolist()}, at theta = {theta.tolist()}"
            )
        return -value

    solver = LSODA(velocity, 0.0, start.detach().numpy(), until, rtol=rtol, atol=atol)
    times, path = [0.0], [solver.y.copy()]
    pieces: list[DenseOutput] = []
    resting = bool(np.linalg.norm(velocity(0.0, solver.y)) < rest)
    reason = "the gradient is below `rest` at the start"
    while not resting and solver.status == "running":
        if len(pieces) == most_steps:
            reason = f"it took {most_steps} steps (`most_steps`) to come to time {solver.t:g}"
            break
        message = _step(solver)
        elapsed = solver.t - times[-1]
        if solver.status == "failed" or elapsed == 0:
            message = message or "no step is small enough"
            reason = f"the integrator gave up at time {solver.t:g}: {message}"
            break
        pieces.append(solver.dense_output())
        speed = np.linalg.norm(solver.y - path[-1]) / elapsed
        times.append(solver.t)
        path.append(solver.y.copy())
        reason = f"it came to time {until:g} (`until`)"
        # The mean speed over the step costs nothing; the gradient is looked at when it is small.
        if speed < 10 * rest and np.linalg.norm(velocity(solver.t, solver.y)) < rest:
            resting = True
            reason = f"the gradient fell below {rest:g} at time {solver.t:g}"
    between = OdeSolution(np.array(times), pieces) if pieces else _standing(path[0])
    return Flow(
        loss,
        torch.tensor(times, dtype=torch.float64),
        torch.tensor(np.array(path), dtype=torch.float64),
        resting,
        reason,
        slope,
        between,
    )


def _autograd(loss: Loss, point: Tensor) -> Tensor:
    """The gradient of the loss; NaN where the loss itself is not finite."""
    point = point.detach().requires_grad_()
    value = loss(point)
    (gradient,) = torch.autograd.grad(value, point)
    return gradient if math.isfinite(value.item()) else gradient * torch.nan


def _step(solver: LSODA) -> str | None:
    """One step. What LSODA says of a failure comes as a warning; its status says it too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return solver.step()


def _standing(point: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda times: np.repeat(point[:, None], len(times), axis=1)


def require_start(start: Tensor) -> None:
    """Of a descent: one finite vector of float64."""
    if start.ndim != 1 or start.dtype != torch.float64 or not len(start):
        raise ValueError(
            f"start must be one vector of float64, got shape {list(start.shape)} of {start.dtype}. "
            "Flatten the weights, and let the loss take them apart."
        )
    require_finite("start", start)
