"""Deliberate errors that the claims of algoformer2024 must notice."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from innerloop.compiled.primitives import MASKED
from tests.mutations import algoformer2024_figures
from tests.mutations.mutation import Mutation, after, instead, times

PAPER = "papers.algoformer2024"
DESCENT = ("lemmaA.2", "theorem3.1", "theorem3.1-ridge")


def ids(*names: str) -> tuple[str, ...]:
    return tuple(f"algoformer2024/{name}" for name in names)


def heard(right: Callable[..., Any]) -> Callable[..., Any]:
    """The pattern of prompts without the mask on the query."""
    return after(lambda logits: torch.where(logits == -MASKED, 0.0, logits))(right)


def keyword(name: str, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function, called with this argument changed."""

    def wrong(right: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(right)
        def function(*arguments: Any, **named: Any) -> Any:
            if name in named:
                named[name] = change(named[name])
            return right(*arguments, **named)

        return function

    return wrong


MUTATIONS = (
    Mutation(
        "a tenth of the dimensions",
        f"{PAPER}.theorem3_1:enough_dimensions",
        after(lambda dimensions: dimensions // 10),
        ids("lemmaA.1"),
    ),
    Mutation(
        "the second head weighs 0.4999/c",
        "compiled.accuracy:FORMS",
        lambda right: {
            name: type(series)(
                series.order,
                series.coefficient,
                tuple((m, w * (1.0 if m > 0 else 0.9998)) for m, w in series.scheme),
            )
            for name, series in right.items()
        },
        ids("lemmaA.2", "theorem3.1", "theorem3.1-ridge"),
    ),
    Mutation(
        "the query is heard",
        "compiled.gradient_descent:listening",
        heard,
        ids(*DESCENT, "lemmaA.4", "theorem4.1"),
    ),
    Mutation(
        "1.0001 of the decay",
        "compiled.gradient_descent:require_decay",
        after(lambda decay: 1.0001 * decay),
        ids("theorem3.1-ridge"),
    ),
    Mutation(
        "x_i listens to the label before its own",
        "compiled.gradient_descent:partners",
        after(lambda places: places[2:] + places[:2]),
        ids(*DESCENT, "theorem4.1"),
    ),
    Mutation(
        "leaky units with a slope 0.1% larger",
        "compiled.primitives:leaky",
        keyword("slope", lambda slope: 1.001 * slope),
        ids("theorem3.1", "theorem3.2", "theorem3.3", "theorem4.1"),
    ),
    Mutation(
        "the next token is the one after it",
        "compiled.sequences:next_token",
        lambda right: lambda length: skipping(right(length)),
        ids("lemmaA.3", "theorem3.2", "theorem3.3"),
    ),
    Mutation(
        "x_1 is heard",
        "compiled.causal:_all_but_the_first",
        after(torch.zeros_like),
        ids("lemmaA.5", "theorem4.2", "theorem4.2-newton"),
    ),
    Mutation(
        "no mirror images of x",
        "compiled.causal:_mirrored",
        after(lambda heads: heads[:1]),
        ids("lemmaA.5", "theorem4.2", "theorem4.2-newton"),
    ),
    Mutation(
        "own products 0.1% larger",
        "compiled.causal:_covariates",
        after(lambda ones: 1.001 * ones),
        ids("theorem4.2", "theorem4.2-newton"),
    ),
    Mutation(
        "M_{k+1} = 2.001 M_k - M_k S M_k in what is compared with",
        f"{PAPER}.settings:newton_matrices",
        lambda right: lambda s, alpha, steps, doubled=2.0: right(s, alpha, steps, doubled + 1e-3),
        ids("eq4", "theorem4.1", "theorem4.2-newton"),
    ),
    Mutation(
        "descent 0.1% longer in what is compared with",
        f"{PAPER}.settings:descent",
        lambda right: (
            lambda f, y, q, steps, step, penalty=0.0: right(f, y, q, steps, 1.001 * step, penalty)
        ),
        ids(*DESCENT, "theorem3.2", "theorem3.3", "theorem4.2"),
    ),
    Mutation(
        "the fused layer counts one loop too many",
        "compiled.transforms:_fuse_units",
        lambda right: lambda block, parts, loops, bound: right(block, parts, loops + 1, bound),
        ids("section2.2"),
    ),
    Mutation(
        "an unrolled model lacks a loop",
        "compiled.transforms:unrolled",
        lambda right: lambda model: right(one_loop_fewer(model)),
        ids("section2.2-parameters"),
    ),
    Mutation(
        "a tenth of the expected error",
        "compiled.accuracy:precision",
        after(lambda chosen: type(chosen)(chosen.c, chosen.sink, chosen.error / 20, chosen.scheme)),
        ids("accuracy"),
    ),
    Mutation(
        "the trained model a hundred times as far from least squares",
        f"{PAPER}.trained.figure5:over",
        times(1e4),
        ids("siblings"),
    ),
    Mutation("masks of -1", "compiled.primitives:MASKED", instead(1.0), ids("lemmaA.3")),
)

MUTATIONS += (*algoformer2024_figures.MUTATIONS, *algoformer2024_figures.TABLE1_MUTATIONS)
EXCUSED: dict[tuple[str, str], str] = {}


def skipping(head: Any) -> Any:
    """The same head with its pattern moved on by one token."""
    match = head.matches[0]
    moved = type(match)(match.query, match.key, match.by.roll(1, dims=1))
    return type(head)(head.does, [moved], head.moves)


def one_loop_fewer(model: Any) -> Any:
    model.loops -= 1
    return model
