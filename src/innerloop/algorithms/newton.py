"""Newton's iteration for the inverse of the examples' second-moment matrix."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.learner import linear_prediction
from innerloop.prompt import Prompt


@dataclass(frozen=True)
class Newton:
    """M_0 = alpha S,   M_{k+1} = 2 M_k - M_k S M_k,   w_k = M_k X^T y,   S = X^T X.

    AlgoFormer 2024, Eq. 4, who allow alpha in (0, 2 / |S S^T|_2]. The error on an eigenvalue s of
    S is 1 - s m_k = (1 - alpha s^2)^(2^k): quadratic convergence to the minimum-norm least-squares
    solution, except at alpha = 2 / |S S^T|_2 itself, where the largest eigenvalue never moves.
    """

    steps: int
    scale: float = 1.0
    """alpha in units of 1 / |S S^T|_2, in (0, 2]."""
    alpha: float | None = None
    """In place of it, one for all prompts, in units of 1/n^2: of S/n in place of S. It converges on
    a prompt if alpha |S/n|^2 is below 2."""

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ValueError(f"steps must be 0 or more, got {self.steps}")
        if not 0 < self.scale <= 2:
            raise ValueError(f"scale must be in (0, 2], got {self.scale}")
        if self.alpha is not None and not 0 < self.alpha < float("inf"):
            raise ValueError(f"alpha must be positive and finite, got {self.alpha}")

    def iterates(self, prompt: Prompt) -> Float[Tensor, "batch iterates d"]:
        """w_0, w_1, ..., the last of which predicts."""
        spectrum = _Spectrum.of(prompt)
        inverse = self._start(spectrum, prompt.n)
        path = [spectrum.weights(inverse)]
        for _ in range(self.steps):
            inverse = inverse * (2 - spectrum.values * inverse)
            path.append(spectrum.weights(inverse))
        return torch.stack(path, dim=1)

    def __call__(self, prompt: Prompt) -> Float[Tensor, "batch queries"]:
        spectrum = _Spectrum.of(prompt)
        inverse = self._start(spectrum, prompt.n)
        earlier = before = inverse
        for step in range(self.steps):
            earlier, before, inverse = before, inverse, inverse * (2 - spectrum.values * inverse)
            # Converged: in the end the last digit of some eigenvalues goes to and fro for ever.
            if step > 0 and torch.equal(earlier, inverse):
                inverse = inverse if (self.steps - step) % 2 else before
                break
        return linear_prediction(spectrum.weights(inverse), prompt)

    def _start(self, spectrum: _Spectrum, n: int) -> Float[Tensor, "#batch d"]:
        if self.alpha is not None:
            return self.alpha / max(n, 1) ** 2 * spectrum.values
        return self.scale * spectrum.values / spectrum.largest**2


@dataclass(frozen=True)
class _Spectrum:
    """S in its eigenbasis, where all M_k are diagonal.

    Directions that no example spans have the eigenvalue 0 up to rounding, and M_k is 0 there for
    ever; as matrices, M_k would double the rounding error in every step.
    """

    values: Float[Tensor, "#batch d"]
    vectors: Float[Tensor, "#batch d d"]
    largest: Float[Tensor, "#batch 1"]
    moment: Float[Tensor, "batch d"]
    """X^T y in the eigenbasis."""

    @classmethod
    def of(cls, prompt: Prompt) -> _Spectrum:
        values, vectors = torch.linalg.eigh(prompt.x.mT @ prompt.x)
        precision = torch.finfo(values.dtype)
        largest = values[:, -1:].clamp_min(precision.tiny**0.5)
        rounding = max(prompt.n, prompt.d) * precision.eps * largest
        values = torch.where(values > rounding, values, 0)
        moment = (prompt.y.unsqueeze(1) @ prompt.x @ vectors).squeeze(1)
        return cls(values, vectors, largest, moment)

    def weights(self, inverse: Float[Tensor, "#batch d"]) -> Float[Tensor, "batch d"]:
        """M X^T y for M with these eigenvalues."""
        return (self.vectors @ (inverse * self.moment).unsqueeze(-1)).squeeze(-1)
