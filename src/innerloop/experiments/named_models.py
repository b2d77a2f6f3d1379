"""Models by name, at their random start. A factory is given the task and a generator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, cast

import torch
from torch import nn

from innerloop.experiments.compiled_models import (
    compiled_autoregression,
    compiled_causal_gd,
    compiled_causal_newton,
    compiled_chain_of_thought,
    compiled_gd,
    compiled_linear_gd,
    compiled_linear_gd_plus_plus,
    compiled_newton,
    compiled_representation,
)
from innerloop.experiments.kinds import kind_of, of_prompts, one_sample, samples
from innerloop.memory import FLOAT64, require_memory
from innerloop.models import (
    BlockShape,
    Decoder,
    DenseWeights,
    DictionaryAttention,
    DictionaryEncoder,
    GDPlusPlusWeights,
    GradientDescentWeights,
    InContext,
    LinearAttention,
    Looped,
    ShiftedGradientDescentWeights,
    SingleLayerWeights,
    Start,
    Translator,
)
from innerloop.models.decoder import SequenceModel
from innerloop.sentences import SentencePairs
from innerloop.sequence import TokenSequence
from innerloop.tasks import DictionaryRegression, Task
from innerloop.tasks.checks import require_at_least

DEEPEST = 10_000
"""Layers that a prompt may pass; a single step of training takes seconds with so many."""


@of_prompts
def gd(
    task: Task, generator: torch.Generator, *, layers: int = 3, loops: int = 1, std: float = 0.05
) -> LinearAttention:
    """linear attention with one preconditioner per layer (Ahn 2023, Eq. 9)"""
    _require_weights(task.d, layers, loops)
    weights = GradientDescentWeights.gaussian(task.d, layers, std, generator=generator)
    return LinearAttention(weights, loops)


@of_prompts
def looped(
    task: Task, generator: torch.Generator, *, loops: int = 5, std: float = 0.05
) -> LinearAttention:
    """one layer applied `loops` times, with the shift u (Gatmiry 2024, section 3.5)"""
    _require_weights(task.d, 1, loops)
    weights = ShiftedGradientDescentWeights.gaussian(task.d, 1, std, generator=generator)
    return LinearAttention(weights, loops)


@of_prompts
def gd_plus_plus(
    task: Task, generator: torch.Generator, *, layers: int = 2, loops: int = 1, std: float = 0.05
) -> LinearAttention:
    """the same with covariate transforms (Ahn 2023, Eq. 13)"""
    _require_weights(task.d, layers, loops)
    weights = GDPlusPlusWeights.gaussian(task.d, layers, std, generator=generator)
    return LinearAttention(weights, loops)


@of_prompts
def dense(
    task: Task, generator: torch.Generator, *, layers: int = 2, loops: int = 1, std: float = 0.05
) -> LinearAttention:
    """linear attention with full matrices P and Q (Ahn 2023, Eq. 4)"""
    _require_weights(task.d + 1, layers, loops)
    return LinearAttention(DenseWeights.gaussian(task.d, layers, std, generator=generator), loops)


@of_prompts
def single_layer(task: Task, generator: torch.Generator, *, std: float = 0.3) -> LinearAttention:
    """one layer with everything in it that matters (Ahn 2023, Eq. 7)"""
    _require_weights(task.d + 1, 1, 1)
    return LinearAttention(SingleLayerWeights.gaussian(task.d, std, generator=generator))


@of_prompts
def heads(
    task: Task, generator: torch.Generator, *, heads: int = 16, std: float = 1.0
) -> DictionaryAttention:
    """softmax heads over a dictionary, with weights for each of its tokens (Yang 2024, Eq. 8)"""
    if not isinstance(task, DictionaryRegression):
        raise ValueError(
            "the model heads learns one dictionary, and reads prompts of the task dictionary only; "
            f"got a {type(task).__name__}"
        )
    count = len(task.tokens)
    require_at_least("heads", heads, 1)
    require_memory(f"{heads} heads", FLOAT64 * heads * (task.d**2 + count * task.n))
    return DictionaryAttention.gaussian(heads, task.d, count, std, generator=generator)


@of_prompts
def encoder(
    task: Task,
    generator: torch.Generator,
    *,
    layers: int = 4,
    heads: int = 8,
    width: int = 64,
    hidden: int = 128,
) -> DictionaryEncoder:
    """a standard encoder: examples and queries as tokens, no positions (Yang 2024, section 4)"""
    require_at_least("layers", layers, 1)
    require_memory("the encoder's weights", 4 * FLOAT64 * layers * width * (4 * width + 2 * hidden))
    return DictionaryEncoder(
        task.d, heads, layers=layers, width=width, hidden=hidden, generator=generator
    )


StartName = Literal["fan-in", "gpt2"]


def gpt2(
    task: Task,
    generator: torch.Generator,
    *,
    layers: int = 4,
    heads: int = 4,
    width: int = 64,
    examples: int | None = None,
    positions: bool = True,
    offsets: bool = False,
    start: StartName = "fan-in",
) -> nn.Module:
    """GPT-2 on x_1, y_1, x_2, ...; positions for prompts of up to `examples`, by default n"""
    _require_transformer(layers, width)

    def decoder(inputs: int, outputs: int, length: int) -> Decoder:
        return Decoder(
            inputs,
            outputs,
            BlockShape(width, heads),
            layers=layers,
            length=length if positions else None,
            offsets=offsets,
            start=_start(start),
            generator=generator,
        )

    return _reading(task, examples, decoder)


def looped_transformer(
    task: Task,
    generator: torch.Generator,
    *,
    loops: int = 8,
    layers: int = 1,
    heads: int = 4,
    width: int = 64,
    examples: int | None = None,
    positions: bool = True,
    inject: bool = True,
    start: StartName = "fan-in",
) -> nn.Module:
    """the same layers of GPT-2 again and again, the input added each time (Yang 2023)"""
    return algoformer(
        task,
        generator,
        loops=loops,
        layers=layers,
        around=0,
        heads=heads,
        width=width,
        examples=examples,
        positions=positions,
        inject=inject,
        start=start,
    )


def algoformer(
    task: Task,
    generator: torch.Generator,
    *,
    loops: int = 8,
    layers: int = 1,
    around: int = 1,
    heads: int = 4,
    width: int = 64,
    examples: int | None = None,
    positions: bool = True,
    inject: bool = True,
    start: StartName = "fan-in",
) -> nn.Module:
    """layers in a loop, and `around` layers before and after it (Gao 2024, AlgoFormer)"""
    _require_transformer(loops * layers + 2 * around, width)

    def looped(inputs: int, outputs: int, length: int) -> Looped:
        return Looped(
            inputs,
            outputs,
            BlockShape(width, heads),
            loops=loops,
            inside=layers,
            before=around,
            after=around,
            length=length if positions else None,
            inject=inject,
            start=_start(start),
            generator=generator,
        )

    return _reading(task, examples, looped)


def translator(
    task: Task,
    generator: torch.Generator,
    *,
    layers: int = 4,
    loops: int | None = None,
    around: int = 0,
    heads: int = 4,
    width: int = 128,
    dropout: float = 0.0,
    inject: bool = True,
    start: StartName = "fan-in",
) -> Translator:
    """a decoder of sentence, mark, translation; with loops looped, with `around` AlgoFormer"""
    if kind_of(task) is not SentencePairs:
        raise ValueError(
            "translator reads pairs of sentences, as of the task translation, and "
            f"{type(task).__name__} samples {samples(task)}"
        )
    if loops is None and around:
        raise ValueError(f"around says how many layers stand around a loop, got {around} and none")
    _require_transformer(layers * (loops or 1) + 2 * around, width)
    require_memory(f"a table of {task.d} words", 4 * FLOAT64 * task.d * width)
    shape = BlockShape(width, heads, dropout=dropout)
    ends: dict[str, Any] = {"length": task.n, "start": _start(start), "generator": generator}
    body: SequenceModel
    if loops is None:
        body = Decoder(width, width, shape, layers=layers, **ends)
    else:
        body = Looped(
            width,
            width,
            shape,
            loops=loops,
            inside=layers,
            before=around,
            after=around,
            inject=inject,
            **ends,
        )
    return Translator(body, task.d, generator=generator)


MODELS: dict[str, Callable[..., nn.Module]] = {
    "gd": gd,
    "looped": looped,
    "gd++": gd_plus_plus,
    "dense": dense,
    "single-layer": single_layer,
    "heads": heads,
    "encoder": encoder,
    "gpt2": gpt2,
    "looped-transformer": looped_transformer,
    "algoformer": algoformer,
    "translator": translator,
    "compiled-gd": compiled_gd,
    "compiled-representation": compiled_representation,
    "compiled-autoregression": compiled_autoregression,
    "compiled-chain-of-thought": compiled_chain_of_thought,
    "compiled-newton": compiled_newton,
    "compiled-causal-gd": compiled_causal_gd,
    "compiled-causal-newton": compiled_causal_newton,
    "compiled-linear-gd": compiled_linear_gd,
    "compiled-linear-gd++": compiled_linear_gd_plus_plus,
}


def _start(name: StartName) -> Start:
    return Start.gpt2() if name == "gpt2" else Start.by_fan_in()


def _reading(
    task: Task, examples: int | None, make: Callable[[int, int, int], SequenceModel]
) -> nn.Module:
    """A model of the sequences that the task samples, or that its prompts become.

    `make` is given the widths of tokens and of targets, and the length of the longest sequence.
    """
    if examples is not None:
        require_at_least("examples", examples, 1)
    kind = kind_of(task)
    if kind is SentencePairs:
        raise ValueError(
            f"{type(task).__name__} samples {samples(task)}, which the model translator reads; its "
            "options loops and around make it a looped transformer or AlgoFormer"
        )
    if kind is not TokenSequence:
        return InContext(make(task.d + 1, 1, 2 * (task.n if examples is None else examples) + 1))
    longest: Any = task if examples is None else replace(cast(Any, task), n=examples)
    sampled = one_sample(longest)
    (_, length, inputs), outputs = sampled.tokens.shape, sampled.targets.shape[-1]
    return make(inputs, outputs, length)


def _require_transformer(layers: int, width: int) -> None:
    """Weights, gradients and two moments of 12 width^2 numbers a layer."""
    if layers > DEEPEST:
        raise ValueError(f"a prompt may pass at most {DEEPEST} layers, got {layers}")
    require_memory(f"{layers} layers of width {width}", 4 * FLOAT64 * 12 * layers * width**2)


def _require_weights(width: int, layers: int, loops: int) -> None:
    require_at_least("layers", layers, 1)
    require_at_least("loops", loops, 1)
    if layers * loops > DEEPEST:
        raise ValueError(
            f"layers times loops must be at most {DEEPEST}, got {layers} times {loops}"
        )
    # P and Q or A and B of every layer, their gradients and two moments of Adam.
    require_memory(f"{layers} layers of width {width}", 4 * FLOAT64 * 2 * layers * width**2)
