"""A step length along a descent direction that satisfies the strong Wolfe conditions.

The search of minFunc (Schmidt, 2005) as torch.optim.LBFGS has it, operation by operation, with one
addition: where the loss or its gradient is not finite, the step was too long. Such a trial counts
as infinitely high, and since no cubic goes through infinity, the bracket is halved.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

DECREASE = 1e-4
"""The share of the decrease that the slope at the start promises which a step must achieve."""
CURVATURE = 0.9
"""The share of the slope at the start to which a step must flatten it."""
SMALLEST = 1e-9
"""A bracket that moves no parameter by more than this is not divided further."""

Length = Any
"""A number, or a tensor of one."""


class Point(NamedTuple):
    """Where the loss was evaluated, and what was found there."""

    z: Float[Tensor, " p"]
    loss: float
    gradient: Float[Tensor, " p"]

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and bool(self.gradient.isfinite().all())


class Trial(NamedTuple):
    """A step along the line."""

    length: Length
    loss: float
    """Infinity where the point is not finite."""
    slope: Float[Tensor, ""]
    """The derivative of the loss along the line."""
    point: Point


def strong_wolfe(
    evaluate: Callable[[Tensor], Point],
    start: Point,
    direction: Float[Tensor, " p"],
    length: Length,
    *,
    evaluations: int,
) -> Trial:
    """The step at which the search ends; of length 0 if nothing lower was found.

    Args:
        start: a finite point.
        length: the first step to try, in units of the direction.
        evaluations: after how many further ones the lowest so far is taken. Points that are not
            finite do not count: halving always comes back to the finite start.
    """

    def along(length: Length) -> Trial:
        point = evaluate(torch.add(start.z, direction, alpha=length))
        loss = point.loss if point.finite else math.inf
        return Trial(length, loss, point.gradient.dot(direction), point)

    origin = Trial(0.0, start.loss, start.gradient.dot(direction), start)
    if origin.slope > 0:
        return origin
    reach = direction.abs().max()

    def too_high(trial: Trial) -> bool:
        return bool(trial.loss > origin.loss + DECREASE * trial.length * origin.slope)

    def flat(trial: Trial) -> bool:
        return bool(abs(trial.slope) <= -CURVATURE * origin.slope)

    # Lengthen the step until it is good, or until a good one must lie before it.
    previous, trial, count = origin, along(length), 0
    while True:
        if count == evaluations:
            return min(origin, trial, key=lambda t: t.loss)
        if too_high(trial) or (count > 1 and trial.loss >= previous.loss):
            break
        if flat(trial):
            return trial
        if trial.slope >= 0:
            break
        shortest = trial.length + 0.01 * (trial.length - previous.length)
        length = _cubic_minimum(previous, trial, shortest, trial.length * 10)
        previous, trial, count = trial, along(length), count + 1

    # Narrow the bracket. Equal losses are told apart by position: the first counts as the lower.
    bracket, hesitated = [previous, trial], False
    low, high = _by_loss(bracket)
    while count < evaluations:
        near, far = sorted((bracket[0].length, bracket[1].length))
        if (far - near) * reach < SMALLEST:
            break
        length = _cubic_minimum(bracket[0], bracket[1], near, far)
        margin = 0.1 * (far - near)
        if not math.isfinite(bracket[high].loss):
            length, hesitated = (near + far) / 2, False
            if length in (near, far):
                break  # there is no number between them
        elif min(far - length, length - near) >= margin:
            hesitated = False
        elif hesitated or length >= far or length <= near:
            # Twice close to an end of the bracket, or on it: not again.
            length = far - margin if abs(length - far) < abs(length - near) else near + margin
            hesitated = False
        else:
            hesitated = True
        trial = along(length)
        count += math.isfinite(trial.loss)
        if too_high(trial) or trial.loss >= bracket[low].loss:
            bracket[high] = trial
            low, high = _by_loss(bracket)
            continue
        if flat(trial):
            return trial
        if trial.slope * (bracket[high].length - bracket[low].length) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = trial
    return bracket[low]


def _by_loss(bracket: list[Trial]) -> tuple[int, int]:
    return (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)


def _cubic_minimum(one: Trial, other: Trial, shortest: Length, longest: Length) -> Length:
    """Where the cubic through both losses and slopes is least, kept within the bounds."""
    left, right = (one, other) if one.length <= other.length else (other, one)
    width = right.length - left.length
    a = left.slope + right.slope - 3 * (left.loss - right.loss) / (left.length - right.length)
    square = a**2 - left.slope * right.slope
    root = square.clamp_min(0).sqrt()
    part = (right.slope + root - a) / (right.slope - left.slope + 2 * root)
    least = right.length - width * part
    if not square >= 0 or math.isnan(least):  # it has no minimum, or its coefficients overflow
        return (shortest + longest) / 2
    return min(max(least, shortest), longest)
