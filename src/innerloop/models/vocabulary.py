"""The cross-entropy over a vocabulary, with its gradient, a few hundred targets at a time.

The logits of a window of loops are the largest tensor of a translator's training by far: ten times
as many as of one read-out, written once, and read again for the softmax and for the gradient. Parts
of them stay in a cache meanwhile, and none has to be kept.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

PART = 256
"""Targets at a time: with a vocabulary of some thousand words, a few megabytes of logits."""


def mean_nats(
    said: Float[Tensor, "targets width"],
    table: Float[Tensor, "vocabulary width"],
    targets: Int[Tensor, " targets"],
) -> Float[Tensor, ""]:
    """The mean of -log softmax(table said_i)[target_i]."""
    value: Tensor = _MeanNats.apply(said, table, targets)[0]
    return value


class _MeanNats(torch.autograd.Function):
    """The gradient of logits is softmax - onehot, known as soon as they are.

    Context and computation are apart, as torch.func asks of a function that it differentiates.
    """

    @staticmethod
    def forward(said: Tensor, table: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        by_said, by_table = torch.zeros_like(said), torch.zeros_like(table)
        total = table.new_zeros(())
        for start in range(0, len(said), PART):
            part = slice(start, start + PART)
            logits = (said[part] @ table.T).to(table.dtype)  # mixed precision has fewer digits
            chosen = targets[part, None]
            top, of_target = logits.amax(-1), logits.gather(-1, chosen)[:, 0]
            share = logits.softmax(-1)
            # The share of the likeliest is at least 1 / vocabulary: its logarithm is exact.
            total += (top - share.amax(-1).log() - of_target).sum()
            share.scatter_add_(-1, chosen, share.new_full((), -1.0).expand_as(chosen))
            by_said[part] = share @ table
            by_table += share.T @ said[part]
        return total / len(said), by_said / len(said), by_table / len(said)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        _, *gradients = output
        ctx.mark_non_differentiable(*gradients)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*gradients)

    @staticmethod
    @once_differentiable  # the saved gradients have no graph of their own
    def backward(ctx: Any, *outside: Tensor | None) -> tuple[Tensor, Tensor, None]:
        factor, *_ = outside
        assert factor is not None
        by_said, by_table = ctx.saved_tensors
        return factor * by_said, factor * by_table, None
