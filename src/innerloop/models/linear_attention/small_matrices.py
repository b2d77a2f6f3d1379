"""Products of many tiny matrices, with the batch as the last axis.

A batched matmul of 5 x 5 matrices spends its time on overhead. With the batch last, the product of
two matrices that differ by prompt is d multiply-adds over long contiguous rows, and the product
with a matrix that all prompts share is one ordinary matmul.
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


def multiply(
    x: Float[Tensor, "i j #batch"], y: Float[Tensor, "j k #batch"]
) -> Float[Tensor, "i k #batch"]:
    """`product` without a gradient of its own, for use inside a function that has one."""
    if _transformed():
        return product(x, y)
    columns, rows = x.unsqueeze(2).unbind(1), y.unbind(0)
    return _add_products(columns[0] * rows[0], columns[1:], rows[1:], 1)


def multiply_add(
    total: Float[Tensor, "i k #batch"],
    x: Float[Tensor, "i j #batch"],
    y: Float[Tensor, "j k #batch"],
    factor: int = 1,
) -> Float[Tensor, "i k #batch"]:
    """total + factor x @ y, in as many passes as `multiply` makes."""
    if _transformed():
        return total + factor * product(x, y)
    columns, rows = x.unsqueeze(2).unbind(1), y.unbind(0)
    total = torch.addcmul(total, columns[0], rows[0], value=factor)
    return _add_products(total, columns[1:], rows[1:], factor)


def _transformed() -> bool:
    # vmap has no rule for addcmul_, only `product` has its own. Autograd functions ask the same.
    return torch._C._are_functorch_transforms_active()


def _add_products(
    total: Tensor, columns: tuple[Tensor, ...], rows: tuple[Tensor, ...], factor: int
) -> Tensor:
    for column, row in zip(columns, rows, strict=True):
        total.addcmul_(column, row, value=factor)
    return total


def from_left(
    shared: Float[Tensor, "i j"], x: Float[Tensor, "j k batch"]
) -> Float[Tensor, "i k batch"]:
    """shared @ x for every element of the batch."""
    return (shared @ x.flatten(1)).unflatten(1, x.shape[1:])


def from_right(
    x: Float[Tensor, "i j batch"], shared: Float[Tensor, "j k"]
) -> Float[Tensor, "i k batch"]:
    """x @ shared for every element of the batch."""
    # Not matmul, which copies x into another order where shared requires a gradient.
    return torch.bmm(shared.mT.expand(len(x), *shared.mT.shape), x)


def sum_of_outer_products(
    x: Float[Tensor, "i k batch"], y: Float[Tensor, "j k batch"]
) -> Float[Tensor, "i j"]:
    """The sum over the batch of x @ y^T: the gradient in a matrix that all prompts share."""
    return x.flatten(1) @ y.flatten(1).mT


class _Product(torch.autograd.Function):
    """Its own gradient, because autograd would keep and walk every multiply-add."""

    @staticmethod
    def forward(x: Tensor, y: Tensor) -> Tensor:
        columns, rows = x.unsqueeze(2).unbind(1), y.unbind(0)
        return _add_products(columns[0] * rows[0], columns[1:], rows[1:], 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (gradient,) = gradients
        x, y = ctx.saved_tensors
        of_x, of_y = ctx.needs_input_grad
        return (
            product(gradient, y.transpose(0, 1)).sum_to_size(x.shape) if of_x else None,
            product(x.transpose(0, 1), gradient).sum_to_size(y.shape) if of_y else None,
        )

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
