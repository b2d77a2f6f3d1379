"""Sentence pairs as numbers: what a translator reads, and what it is to say."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from innerloop.tensor_tree import register


@dataclass(frozen=True)
class SentencePairs:
    """A sentence, a mark, its translation and the end; rows are filled up on their right.

        s_1 ... s_k  TO  t_1 ... t_m  END  PAD ...

    From TO on, every token is asked for its successor. The targets of all rows stand one after
    another, so that nothing is computed for filling: a learner returns [targets, vocabulary], the
    logarithms of probabilities but for a constant in each row. Its loss is the cross-entropy, in
    nats for a target.

    Attributes:
        middle: the position of TO.
        lengths: tokens of a row with END, and without filling.
        vocabulary: tokens are numbers below it.
        dtype: in which a learner answers.
    """

    tokens: Int[Tensor, "batch length"]
    middle: Int[Tensor, " batch"]
    lengths: Int[Tensor, " batch"]
    vocabulary: int
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        if self.tokens.ndim != 2:
            raise ValueError(
                f"tokens must have shape [batch, length], got {list(self.tokens.shape)}"
            )
        batch, length = self.tokens.shape
        for name in ("middle", "lengths"):
            if list(getattr(self, name).shape) != [batch]:
                raise ValueError(
                    f"{name} must have shape [{batch}] to go with tokens of shape "
                    f"{[batch, length]}, got {list(getattr(self, name).shape)}"
                )
        if self.tokens.numel() and not 0 <= self.tokens.min() <= self.tokens.max() < (
            self.vocabulary
        ):
            raise ValueError(
                f"tokens must be between 0 and {self.vocabulary - 1}, got some from "
                f"{self.tokens.min()} to {self.tokens.max()}"
            )
        if not ((self.middle >= 1) & (self.middle + 2 <= self.lengths)).all():
            raise ValueError("every row must have a sentence before its mark, and an end after it")
        if self.lengths.max() > length:
            raise ValueError(
                f"lengths must be at most the {length} tokens of a row, got {self.lengths.max()}"
            )

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def asked(self) -> Bool[Tensor, "batch length"]:
        """Where the successor is to be said: from TO to the last token before END."""
        position = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        return (position >= self.middle[:, None]) & (position < self.lengths[:, None] - 1)

    @property
    def targets(self) -> Int[Tensor, " targets"]:
        """The translations with their ends, one row after another."""
        return self.tokens.roll(-1, dims=1)[self.asked]

    @property
    def answer_shape(self) -> list[int]:
        return [int((self.lengths - self.middle - 1).sum()), self.vocabulary]

    def loss(self, answers: Float[Tensor, "*more targets vocabulary"]) -> Float[Tensor, ""]:
        """The cross-entropy, averaged over all targets: a long sentence counts for more."""
        return self._nats(answers, "mean")

    def errors(
        self, answers: Float[Tensor, "*more targets vocabulary"]
    ) -> Float[Tensor, "*more batch"]:
        """The cross-entropy of every pair, averaged over its own targets."""
        return self.total_nats(answers) / (self.lengths - self.middle - 1)

    def total_nats(
        self, answers: Float[Tensor, "*more targets vocabulary"]
    ) -> Float[Tensor, "*more batch"]:
        """The same without the average: minus the log-probability of every translation."""
        nats = self._nats(answers, "none").view(answers.shape[:-1])
        row = self.asked.nonzero()[:, 0]
        return nats.new_zeros(*nats.shape[:-1], len(self)).index_add(-1, row, nats)

    def _nats(self, answers: Tensor, reduction: str) -> Tensor:
        targets = self.targets.expand(answers.shape[:-1]).flatten()
        return functional.cross_entropy(answers.flatten(0, -2), targets, reduction=reduction)

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> SentencePairs:
        return replace(
            self,
            tokens=self.tokens.to(device),
            middle=self.middle.to(device),
            lengths=self.lengths.to(device),
            dtype=self.dtype if dtype is None else dtype,
        )


register(SentencePairs, ["tokens", "middle", "lengths"], fixed=["vocabulary", "dtype"])
