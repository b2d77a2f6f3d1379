"""The recursion of GD++ layers over a batch of prompts, with its gradient written by hand.

With m and the queries as columns, a layer takes the step

    t = A m,    prediction += <t, x_q>,    m <- m - S t,

and then moves the covariates by F^T, where F = I - A S B^T:

    m <- F^T m,    x_q <- F^T x_q,    S <- F^T S F.

The last layer moves nothing, and the one before it needs no S for its successor: it applies F^T to
vectors only and never forms it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.models.linear_attention.small_matrices import (
    from_left,
    from_right,
    multiply,
    multiply_add,
    sum_of_outer_products,
)


def descend(
    preconditioners: Float[Tensor, "layers d d"],
    transforms: Float[Tensor, "layers d d"],
    s: Float[Tensor, "d d batch"],
    m: Float[Tensor, "d 1 batch"],
    queries: Float[Tensor, "d queries batch"],
    loops: int,
) -> Float[Tensor, "queries batch"]:
    """Predictions of all layers, applied `loops` times. S is symmetric, and so is its gradient."""
    return _Descent.apply(preconditioners, transforms, s, m, queries, loops)


class _Descent(torch.autograd.Function):
    """Keeps its arguments alone: the backward pass runs the recursion again.

    The backward pass is made of ordinary operations, and can itself be differentiated and mapped.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        preconditioners: Tensor,
        transforms: Tensor,
        s: Tensor,
        m: Tensor,
        queries: Tensor,
        loops: int,
    ) -> Tensor:
        layers = _run(preconditioners, transforms, s, m, queries, loops)
        predictions = layers[0].predictions
        for layer in layers[1:]:
            predictions = predictions + layer.predictions
        return predictions

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.loops = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        a, b, s, m, queries = ctx.saved_tensors
        layers = _run(a, b, s, m, queries, ctx.loops)
        prompt_asked = any(ctx.needs_input_grad[2:])
        return *_gradients(layers, gradient.unsqueeze(0), prompt_asked=prompt_asked), None


@dataclass(frozen=True)
class _Layer:
    """What a layer met and made, as far as its gradient needs it."""

    index: int
    """Its place in the stack: the same again in every loop."""
    a: Float[Tensor, "d d"]
    b: Float[Tensor, "d d"]
    s: Float[Tensor, "d d batch"]
    m: Float[Tensor, "d 1 batch"]
    queries: Float[Tensor, "d queries batch"]
    step: Float[Tensor, "d 1 batch"]
    """t = A m."""
    predictions: Float[Tensor, "queries batch"]
    moved: _MovedVectors | _MovedMatrices | None


@dataclass(frozen=True)
class _MovedVectors:
    """after = vectors - B S A^T vectors."""

    vectors: Float[Tensor, "d columns batch"]
    """m - S t and the queries."""
    seen: Float[Tensor, "d columns batch"]
    """S A^T vectors."""


@dataclass(frozen=True)
class _MovedMatrices:
    """after = F^T vectors, and S becomes F^T S F."""

    vectors: Float[Tensor, "d columns batch"]
    product: Float[Tensor, "d d batch"]
    """A S."""
    change: Float[Tensor, "d d batch"]
    """A S B^T = I - F."""


def _run(
    preconditioners: Tensor, transforms: Tensor, s: Tensor, m: Tensor, queries: Tensor, loops: int
) -> list[_Layer]:
    layers = []
    steps = len(preconditioners) * loops
    for count in range(steps):
        index = count % len(preconditioners)
        a, b = preconditioners[index], transforms[index]
        step = from_left(a, m)
        predictions = multiply(step.transpose(0, 1), queries)[0]
        met = (index, a, b, s, m, queries, step, predictions)
        if count == steps - 1:
            layers.append(_Layer(*met, moved=None))
            break
        vectors = torch.cat([multiply_add(m, s, step, -1), queries], dim=1)
        if count == steps - 2:
            seen = multiply(s, from_left(a.mT, vectors))
            layers.append(_Layer(*met, _MovedVectors(vectors, seen)))
            after = vectors - from_left(b, seen)
        else:
            product = from_left(a, s)
            change = from_right(product, b.mT)
            layers.append(_Layer(*met, _MovedMatrices(vectors, product, change)))
            turned = change.transpose(0, 1)
            after = multiply_add(vectors, turned, vectors, -1)
            half = multiply_add(s, s, change, -1)  # S F
            s = multiply_add(half, turned, half, -1)
        m, queries = after[:, :1], after[:, 1:]
    return layers


def _gradients(
    layers: list[_Layer], predictions: Float[Tensor, "1 queries batch"], *, prompt_asked: bool
) -> tuple[Tensor | None, ...]:
    """Of the preconditioners and transforms, and where asked for of S, m and the queries.

    Here a name says what a gradient belongs to. S is symmetric whatever the weights are, so that
    only the symmetric part of its gradient counts.
    """
    *moving, last = layers
    step = multiply(last.queries, predictions.transpose(0, 1))
    a = {last.index: sum_of_outer_products(step, last.m)}
    b: dict[int, Tensor] = {}
    s = torch.zeros_like(last.s[..., :1])  # the last layer does not read its S
    vectors = torch.cat([from_left(last.a.mT, step), multiply(last.step, predictions)], dim=1)
    for layer in reversed(moving):
        s_asked = prompt_asked or layer is not moving[0]
        if isinstance(layer.moved, _MovedMatrices):
            of_a, of_b, s, vectors = _through_matrices(layer, layer.moved, s, vectors, s_asked)
        else:
            assert layer.moved is not None
            of_a, of_b, s, vectors = _through_vectors(layer, layer.moved, vectors)
        m = vectors[:, :1]
        step = multiply(layer.queries, predictions.transpose(0, 1))
        step = multiply_add(step, layer.s, m, -1)
        _add(a, layer.index, of_a + sum_of_outer_products(step, layer.m))
        _add(b, layer.index, of_b)
        if s_asked:
            s = multiply_add(s, layer.step, m.transpose(0, 1), -1)
            own = [from_left(layer.a.mT, step), multiply(layer.step, predictions)]
            vectors = vectors + torch.cat(own, dim=1)
    parameters = [
        torch.stack([of.get(index, torch.zeros_like(last.a)) for index in sorted(a)])
        for of in (a, b)
    ]
    prompt = (s.expand_as(last.s), vectors[:, :1], vectors[:, 1:])
    return *parameters, *(prompt if prompt_asked else (None, None, None))


def _add(sums: dict[int, Tensor], index: int, term: Tensor) -> None:
    sums[index] = sums[index] + term if index in sums else term


def _through_vectors(
    layer: _Layer, moved: _MovedVectors, after: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """From the gradient of `after` to those of A, B, S and the vectors."""
    through_b = from_left(layer.b.mT, after)
    through_s = multiply(layer.s, through_b)
    of_s = multiply(from_left(-layer.a.mT, moved.vectors), through_b.transpose(0, 1))
    return (
        -sum_of_outer_products(moved.vectors, through_s),
        -sum_of_outer_products(after, moved.seen),
        of_s,
        after - from_left(layer.a, through_s),
    )


def _through_matrices(
    layer: _Layer, moved: _MovedMatrices, s_after: Tensor, after: Tensor, s_asked: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """From the gradients of F^T S F and `after` to those of A, B, S and the vectors."""
    twice = s_after + s_after.transpose(0, 1)
    twice = multiply_add(twice, moved.change, twice, -1)  # F times twice the symmetric part
    of_f = multiply_add(multiply(layer.s, twice), moved.vectors, after.transpose(0, 1))
    of_product = from_right(of_f, -layer.b)
    of_s = s_after
    if s_asked:
        of_s = from_left(layer.a.mT, of_product)
        of_s = of_s + multiply_add(twice, twice, moved.change.transpose(0, 1), -1) / 2
    return (
        sum_of_outer_products(of_product, layer.s),
        -sum_of_outer_products(of_f.transpose(0, 1), moved.product.transpose(0, 1)),
        of_s,
        multiply_add(after, moved.change, after, -1),
    )
