"""A learner that is told the representation, and sees the features in place of the covariates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.learner import Learner
from innerloop.prompt import Prompt
from innerloop.sequence import TokenSequence


@dataclass(frozen=True)
class OnFeatures:
    """Another learner on phi(x): what a model that learned the representation could do at best."""

    learner: Learner
    phi: Callable[[Tensor], Tensor]

    def __call__(self, prompt: Prompt) -> Float[Tensor, "batch queries"]:
        return self.learner(replace(prompt, x=self.phi(prompt.x), x_query=self.phi(prompt.x_query)))


def unchanged(values: Tensor) -> Tensor:
    return values


@dataclass(frozen=True)
class SequenceRidge:
    """Ridge regression along a sequence: the answer at a position from those before it.

        answer_p = response(f_p W),   W = argmin sum_{i < p} |f_i W - inverse(target_i)|^2
                                          + penalty |W|^2

    The targets before p are tokens of the sequence, so that any model of it sees them too.

    Attributes:
        features: of every position that is asked about, [batch, positions, k].
        groups: position i learns from i - groups, i - 2 groups, ...: 1 where all follow one law,
            the layers of a network in a chain of thought.
        response: the known function from f W to the target, with its inverse.
        penalty: 0 is least squares, of minimum norm.
    """

    features: Callable[[TokenSequence], Float[Tensor, "batch positions k"]]
    penalty: float = 0.0
    groups: int = 1
    response: Callable[[Tensor], Tensor] = unchanged
    inverse: Callable[[Tensor], Tensor] = unchanged

    def __post_init__(self) -> None:
        if not 0 <= self.penalty < float("inf"):
            raise ValueError(f"penalty must be finite and at least 0, got {self.penalty}")
        if self.groups < 1:
            raise ValueError(f"groups must be at least 1, got {self.groups}")

    def __call__(self, sequence: TokenSequence) -> Float[Tensor, "batch positions outputs"]:
        features, wanted = self.features(sequence), self.inverse(sequence.targets)
        fit = partial(_ridge, penalty=self.penalty)
        return self.response(_along(features, wanted, self.groups, fit))


@dataclass(frozen=True)
class SequenceDescent:
    """Gradient descent along a sequence: the answer at a position from those before it.

        answer_p = response(f_p W),   W <- W - rate sum_{i < p} f_i^T (f_i W - inverse(target_i))

    from W = 0, `steps` times. The rate is the same whatever the number of examples, so that steps
    which are stable with all of them are stable with fewer. The rest is as in `SequenceRidge`.
    """

    features: Callable[[TokenSequence], Float[Tensor, "batch positions k"]]
    steps: int
    rate: float
    groups: int = 1
    response: Callable[[Tensor], Tensor] = unchanged
    inverse: Callable[[Tensor], Tensor] = unchanged

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1, got {self.steps}")
        if not 0 < self.rate < float("inf"):
            raise ValueError(f"rate must be positive and finite, got {self.rate}")
        if self.groups < 1:
            raise ValueError(f"groups must be at least 1, got {self.groups}")

    def __call__(self, sequence: TokenSequence) -> Float[Tensor, "batch positions outputs"]:
        features, wanted = self.features(sequence), self.inverse(sequence.targets)
        return self.response(_along(features, wanted, self.groups, self._fit))

    def _fit(self, f: Tensor, y: Tensor) -> Float[Tensor, "batch k outputs"]:
        weights = f.new_zeros(len(f), f.shape[-1], y.shape[-1])
        for _ in range(self.steps):
            weights = weights - self.rate * f.mT @ (f @ weights - y)
        return weights


def _along(
    features: Float[Tensor, "batch positions k"],
    wanted: Float[Tensor, "batch positions outputs"],
    groups: int,
    fit: Callable[[Tensor, Tensor], Tensor],
) -> Float[Tensor, "batch positions outputs"]:
    """f_p W at every position, W fitted to those of its group before it; 0 at the first."""
    answers = torch.zeros_like(wanted)
    for p in range(groups, wanted.shape[1]):
        before = slice(p % groups, p, groups)
        weights = fit(features[:, before], wanted[:, before])
        answers[:, p] = (features[:, p : p + 1] @ weights).squeeze(1)
    return answers


def _ridge(f: Tensor, y: Tensor, penalty: float) -> Float[Tensor, "batch k outputs"]:
    if penalty == 0:
        return torch.linalg.pinv(f) @ y
    gram = f.mT @ f + penalty * torch.eye(f.shape[-1]).to(f)
    return torch.linalg.solve(gram, f.mT @ y)
