"""A token sequence: what a decoder reads, and what it is to say where."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.tensor_tree import put_together, register, require_floating


@dataclass(frozen=True)
class TokenSequence:
    """Tokens, the positions that are read out, and the vector each of them is to predict.

    Regression with several outputs, autoregression and chain of thought sample these directly; a
    `Prompt` becomes one by `interleave`. A learner of sequences returns the shape of `targets`.
    """

    tokens: Float[Tensor, "batch length width"]
    readout: Int[Tensor, " positions"]
    """Positions whose output is compared with a target."""
    targets: Float[Tensor, "batch positions outputs"]

    def __post_init__(self) -> None:
        require_floating(self, ("tokens", "targets"))
        if self.tokens.ndim != 3:
            raise ValueError(
                f"tokens must have shape [batch, length, width], got {list(self.tokens.shape)}"
            )
        batch, length, _ = self.tokens.shape
        if self.readout.ndim != 1:
            raise ValueError(f"readout must have shape [positions], got {list(self.readout.shape)}")
        if self.targets.ndim != 3 or self.targets.shape[:2] != (batch, len(self.readout)):
            raise ValueError(
                f"targets must have shape [{batch}, {len(self.readout)}, outputs], one vector for "
                f"each position of readout, got {list(self.targets.shape)}"
            )
        outside = [p for p in self.readout.tolist() if not 0 <= p < length]
        if outside:
            raise ValueError(
                f"readout must name positions from 0 to {length - 1}, got {outside[0]}"
            )

    def __len__(self) -> int:
        return self.tokens.shape[0]

    @classmethod
    def whole(cls, tokens: Float[Tensor, "batch length width"]) -> TokenSequence:
        """Every position is read out, and there is nothing to compare it with."""
        everywhere = torch.arange(tokens.shape[1], device=tokens.device)
        return cls(tokens, everywhere, tokens.new_empty(*tokens.shape[:2], 0))

    @property
    def dtype(self) -> torch.dtype:
        return self.tokens.dtype

    @property
    def answer_shape(self) -> list[int]:
        """Of what a learner is to return: that of the targets."""
        return list(self.targets.shape)

    def loss(self, answers: Float[Tensor, "*more batch positions outputs"]) -> Float[Tensor, ""]:
        """The squared error, averaged over everything."""
        return (answers - self.targets).square().mean()

    def errors(
        self, answers: Float[Tensor, "*more batch positions outputs"]
    ) -> Float[Tensor, "*more batch"]:
        """The squared error of every sequence, averaged over its targets."""
        return (answers - self.targets).square().flatten(-2).mean(-1)

    def last(self) -> TokenSequence:
        """The same tokens, with the last of their positions read out alone."""
        return put_together(
            TokenSequence,
            {
                "tokens": self.tokens,
                "readout": self.readout[-1:],
                "targets": self.targets[:, -1:],
            },
        )

    def part(self, which: slice) -> TokenSequence:
        """Some of the sequences of the batch."""
        return put_together(
            TokenSequence,
            {
                "tokens": self.tokens[which],
                "readout": self.readout,
                "targets": self.targets[which],
            },
        )

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> TokenSequence:
        return TokenSequence(
            self.tokens.to(device, dtype), self.readout.to(device), self.targets.to(device, dtype)
        )


register(TokenSequence, [field.name for field in fields(TokenSequence)])
