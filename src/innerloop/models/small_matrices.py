"""Products of many tiny matrices, with the batch as the last axis.

A batched matmul of 5 x 5 matrices spends its time on overhead. With the batch last, the same
product is d multiply-adds over long contiguous rows.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def batch_last(matrices: Float[Tensor, "batch i j"]) -> Float[Tensor, "i j batch"]:
    return matrices.permute(1, 2, 0).contiguous()


def product(
    x: Float[Tensor, "i j #batch"], y: Float[Tensor, "j k #batch"]
) -> Float[Tensor, "i k #batch"]:
    """x @ y for every element of the batch; a batch axis of length 1 is repeated."""
    return _Product.apply(x, y)


def _multiply(x: Tensor, y: Tensor) -> Tensor:
    total = x[:, 0, None] * y[0]
    for j in range(1, len(y)):
        total.addcmul_(x[:, j, None], y[j])
    return total


class _Product(torch.autograd.Function):
    """Its own gradient, because autograd would keep and walk every multiply-add."""

    @staticmethod
    def forward(x: Tensor, y: Tensor) -> Tensor:
        return _multiply(x, y)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (gradient,) = gradients
        x, y = ctx.saved_tensors
        x_gradient = product(gradient, y.transpose(0, 1))
        y_gradient = product(x.transpose(0, 1), gradient)
        return x_gradient.sum_to_size(x.shape), y_gradient.sum_to_size(y.shape)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, int | None], x: Tensor, y: Tensor
    ) -> tuple[Tensor, int]:
        """The mapped axis joins the batch: [i, j, mapped * batch]."""
        batch = max(
            t.shape[-1] if axis != t.ndim - 1 else t.shape[-2]
            for t, axis in zip((x, y), in_dims, strict=True)
        )

        def joined(t: Tensor, axis: int | None) -> Tensor:
            t = t.unsqueeze(2) if axis is None else t.movedim(axis, 2)
            return t.expand(-1, -1, info.batch_size, batch).flatten(2)

        both = [joined(t, axis) for t, axis in zip((x, y), in_dims, strict=True)]
        return _Product.apply(*both).unflatten(2, (info.batch_size, batch)), 2
