"""Prompts in the eigenbasis of their second moments, where most algorithms are one number each.

With S = (1/n) X^T X = V diag(s) V^T and m = (1/n) X^T y, every algorithm that is a function of S
alone predicts

    x_q^T phi(S) m  =  sum_j a_j phi(s_j),     a_j = <x_q, v_j> <v_j, m>.

One decomposition for each prompt, and then any number of penalties, steps and step sizes costs as
much as a sum over d numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.prompt import Prompt


@dataclass(frozen=True)
class Spectrum:
    """The eigenvalues of S, and the coefficients a_j of every query."""

    values: Float[Tensor, "#batch d"]
    coefficients: Float[Tensor, "batch queries d"]
    n: int
    scale: float
    """The mean eigenvalue, the unit of penalties and of the inverse of steps."""

    @classmethod
    def of(cls, prompt: Prompt) -> Spectrum:
        s, m = prompt.moments()
        values, vectors = torch.linalg.eigh(s)
        # Directions that no example spans have the eigenvalue 0 up to rounding, and so has m there.
        rounding = max(prompt.n, prompt.d) * torch.finfo(values.dtype).eps * values[:, -1:]
        spanned = values > rounding
        moment = torch.where(spanned, (m.unsqueeze(1) @ vectors).squeeze(1), 0)
        coefficients = (prompt.x_query @ vectors) * moment.unsqueeze(1)
        values = torch.where(spanned, values, 0)
        scale = max(values.mean().item(), torch.finfo(values.dtype).tiny ** 0.5)
        return cls(values, coefficients, max(prompt.n, 1), scale)

    def __len__(self) -> int:
        return len(self.coefficients)

    def first(self, prompts: int) -> Spectrum:
        values = self.values if len(self.values) == 1 else self.values[:prompts]
        return Spectrum(values, self.coefficients[:prompts], self.n, self.scale)

    def predict(self, phi: Float[Tensor, "*grid #batch d"]) -> Float[Tensor, "*grid batch queries"]:
        return (self.coefficients @ phi.unsqueeze(-1)).squeeze(-1)

    @property
    def largest(self) -> Float[Tensor, "#batch 1"]:
        return self.values[:, -1:].clamp_min(torch.finfo(self.values.dtype).tiny ** 0.5)


Number = float | Tensor
"""A number, or many at once along leading axes [..., 1, 1]."""
Filter = Callable[[Spectrum, int, Sequence[Number]], Float[Tensor, "*grid #batch d"]]
"""phi(s) after so many steps, with these numbers open."""


def ridge(spectrum: Spectrum, steps: int, free: Sequence[Number]) -> Tensor:
    """1 / (s + penalty / n)."""
    return 1 / (spectrum.values + free[0] / spectrum.n)


def descent(spectrum: Spectrum, steps: int, free: Sequence[Number]) -> Tensor:
    """(1 - (1 - eta s)^k) / s: k steps of size eta."""
    return _descended(spectrum.values, free[0], steps)


def penalised_descent(spectrum: Spectrum, steps: int, free: Sequence[Number]) -> Tensor:
    """(1 - (1 - eta (s + penalty))^k) / (s + penalty): the same on ridge regression's loss."""
    return _descended(spectrum.values + free[1], free[0], steps)


def stable_descent(spectrum: Spectrum, steps: int, free: Sequence[Number]) -> Tensor:
    """The same with each prompt's own eta = 1 / max s."""
    return _descended(spectrum.values, 1 / spectrum.largest, steps)


def newton(spectrum: Spectrum, steps: int, free: Sequence[Number]) -> Tensor:
    """(1 - (1 - alpha s^2)^(2^k)) / s with alpha = scale / max s^2."""
    s = spectrum.values
    left = (1 - free[0] * (s / spectrum.largest) ** 2) ** (2**steps)
    return torch.where(s > 0, (1 - left) / s.clamp_min(torch.finfo(s.dtype).tiny), 0)


def fixed_newton(spectrum: Spectrum, steps: int, free: Sequence[Number]) -> Tensor:
    """(1 - (1 - alpha s^2)^(2^k)) / s with one alpha for all prompts; on some it may diverge."""
    s = spectrum.values
    moved = torch.as_tensor(free[0] * s**2)
    slow = moved < 0.5  # where 1 - moved would lose digits of moved
    size = torch.where(slow, torch.log1p(-torch.where(slow, moved, 0)), (1 - moved).abs().log())
    # The sign of (1 - moved) is gone in a square; e^200 is far enough away to be no candidate.
    gone = -torch.expm1((2**steps * size).clamp(max=200)) if steps else moved
    return torch.where(s > 0, gone / s.clamp_min(torch.finfo(s.dtype).tiny), 0)


def gd_plus_plus(spectrum: Spectrum, steps: int, free: Sequence[Number]) -> Tensor:
    """Steps of size eta between which covariates are multiplied by 1 - gamma eta s.

    With x the factor by which covariates have shrunk and r what is left of the labels, both begin
    at 1: phi += eta x^2 r, r *= 1 - eta s x^2, x *= 1 - gamma eta s x^2.
    """
    eta, gamma = free
    s = spectrum.values
    phi, left, shrunk = torch.zeros_like(s), torch.ones_like(s), torch.ones_like(s)
    for _ in range(steps):
        square = shrunk**2
        phi = phi + eta * square * left
        left = left * (1 - eta * s * square)
        shrunk = shrunk * (1 - gamma * eta * s * square)
    return phi


def _descended(s: Tensor, eta: Number, steps: int) -> Tensor:
    """(1 - (1 - eta s)^k) / s without cancellation where eta s is small; k eta at s = 0."""
    moved = eta * s
    small = moved.abs() < 0.5
    near = -torch.expm1(steps * torch.log1p(-torch.where(small, moved, 0)))
    spanned = s > 0
    phi = torch.where(small, near, 1 - (1 - moved) ** steps) / torch.where(spanned, s, 1)
    return torch.where(spanned, phi, steps * eta)
