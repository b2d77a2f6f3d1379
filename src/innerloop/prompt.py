"""A prompt: labelled examples and a query, always batched."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class TokenSequence:
    """What a decoder reads: tokens, the positions that are read out, and their targets."""

    tokens: Float[Tensor, "batch length width"]
    readout: Int[Tensor, " targets"]
    """Positions whose output is compared with a target."""
    targets: Float[Tensor, "batch targets"]


@dataclass(frozen=True)
class Prompt:
    """n labelled examples (x_i, y_i) and a query x_q whose label is to be predicted.

    The examples' labels may be noisy; `y_query` is the clean label, so that a perfect learner
    has zero loss. Where the query's label is not known, it is NaN; nothing but a loss reads it.
    """

    x: Float[Tensor, "batch n d"]
    y: Float[Tensor, "batch n"]
    x_query: Float[Tensor, "batch d"]
    y_query: Float[Tensor, " batch"]

    def __post_init__(self) -> None:
        if self.x.ndim != 3:
            raise ValueError(f"x must have shape [batch, n, d], got {list(self.x.shape)}")
        batch, n, d = self.x.shape
        expected = {"y": [batch, n], "x_query": [batch, d], "y_query": [batch]}
        for name, shape in expected.items():
            got = list(getattr(self, name).shape)
            if got != shape:
                raise ValueError(
                    f"{name} must have shape {shape} to go with x of shape {[batch, n, d]}, got "
                    f"{got}"
                )
        for name in ("x", "y", "x_query"):
            finite = getattr(self, name).isfinite()
            if not finite.all():
                index = (~finite).nonzero()[0].tolist()
                raise ValueError(
                    f"{name} must be finite, got {getattr(self, name)[tuple(index)]} at index "
                    f"{index}"
                )

    @property
    def n(self) -> int:
        return self.x.shape[1]

    @property
    def d(self) -> int:
        return self.x.shape[2]

    def __len__(self) -> int:
        return self.x.shape[0]

    def gram(self) -> Float[Tensor, "batch token token"]:
        """G = (1/n) sum_i z_i z_i^T of the context tokens z_i = (x_i, y_i); zero if n = 0."""
        differentiated = self.x.requires_grad or self.y.requires_grad
        return self._context_gram() if differentiated else self._kept_gram

    @cached_property
    def _kept_gram(self) -> Tensor:
        # Training on a fixed sample asks for it at every step.
        return self._context_gram()

    def _context_gram(self) -> Tensor:
        # By blocks: putting the tokens together first would copy them all, three times the cost.
        y = self.y.unsqueeze(1)  # [batch, 1, n]
        m = y @ self.x  # [batch, 1, d]
        top = torch.cat([self.x.mT @ self.x, m.mT], dim=2)
        bottom = torch.cat([m, y @ y.mT], dim=2)
        return torch.cat([top, bottom], dim=1) / max(self.n, 1)

    def token_matrix(self) -> Float[Tensor, "batch token tokens"]:
        """Z_0 of Ahn 2023, Eq. 1: tokens are columns, the query's label slot holds 0."""
        x = torch.cat([self.x, self.x_query.unsqueeze(1)], dim=1)
        y = torch.cat([self.y, torch.zeros_like(self.y_query).unsqueeze(1)], dim=1)
        return torch.cat([x.mT, y.unsqueeze(1)], dim=1)

    def interleave(self) -> TokenSequence:
        """x_1, y_1, x_2, y_2, ..., x_q as one sequence; every x is read out against its label.

        A covariate is the token (x, 0) and a label the token (0, y), both of width d + 1.
        """
        batch, n, d = self.x.shape
        tokens = self.x.new_zeros(batch, 2 * n + 1, d + 1)
        tokens[:, 0:-1:2, :d] = self.x
        tokens[:, 1::2, d] = self.y
        tokens[:, -1, :d] = self.x_query
        targets = torch.cat([self.y, self.y_query.unsqueeze(1)], dim=1)
        return TokenSequence(tokens, torch.arange(0, 2 * n + 1, 2, device=tokens.device), targets)

    def prefix(self, k: int) -> Prompt:
        """The same query after only the first k examples."""
        if not 0 <= k <= self.n:
            raise ValueError(f"k must be between 0 and n = {self.n}, got {k}")
        return replace(self, x=self.x[:, :k], y=self.y[:, :k])

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Prompt:
        return Prompt(*(getattr(self, f.name).to(device, dtype) for f in fields(self)))


def _unflatten(tensors: Any, _: Any) -> Prompt:
    # torch.func.vmap takes prompts apart and puts them together again around placeholders whose
    # values cannot be inspected: the checks ran when the prompt was first made.
    prompt = object.__new__(Prompt)
    for field, tensor in zip(fields(Prompt), tensors, strict=True):
        object.__setattr__(prompt, field.name, tensor)
    return prompt


pytree.register_pytree_node(
    Prompt,
    lambda prompt: ([getattr(prompt, f.name) for f in fields(Prompt)], None),
    _unflatten,
    serialized_type_name="innerloop.Prompt",
)
