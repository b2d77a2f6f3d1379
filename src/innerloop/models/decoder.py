"""Models of token sequences: continuous tokens in, vectors out at the positions that are asked for.

Three shapes of one idea. A decoder applies layers with weights of their own, a looped transformer
the same layers again and again, AlgoFormer has layers before, in and after the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from innerloop.models.blocks import Block, BlockShape, Positions, Start, unset_linear
from innerloop.sequence import TokenSequence

Residual = Float[Tensor, "batch length width"]


@dataclass(frozen=True)
class Layer:
    """A layer at work: which it is, and what it was given and made."""

    name: str
    """Such as "layer 3" or "loop 2, layer 1"."""
    block: Block
    before: Residual
    after: Residual


@dataclass(frozen=True)
class Trace:
    """What happens inside a model, layer after layer."""

    names: Sequence[str]
    residuals: Float[Tensor, "layers batch length width"]
    """After each layer."""
    attention: Sequence[Float[Tensor, "batch _ query key"]]
    """A map for each head; layers may have different numbers of them."""
    readout: Float[Tensor, "layers batch positions outputs"]
    """What the model would say if it stopped after that layer."""


Layers = int | Sequence[BlockShape]
"""So many layers of one shape, or the shape of each."""


class Stack(nn.Module):
    """Layers one after the other."""

    def __init__(self, layers: Layers, shape: BlockShape, *, dtype: torch.dtype) -> None:
        super().__init__()
        shapes = [shape] * layers if isinstance(layers, int) else list(layers)
        if not shapes:
            raise ValueError(f"layers must be at least 1, got {layers}")
        for other in shapes:
            if other.width != shape.width:
                raise ValueError(
                    f"all layers must have the width {shape.width} of the model, got {other.width}"
                )
        self.blocks = nn.ModuleList(Block(shape, dtype=dtype) for shape in shapes)

    def forward(
        self, x: Residual, *, causal: bool, kept: Int[Tensor, " positions"] | None = None
    ) -> Float[Tensor, "batch _ width"]:
        """The residuals after all layers; of these positions alone, if they are given."""
        *others, last = self.blocks
        for block in others:
            x = block(x, causal=causal)
        return last(x, causal=causal, kept=kept)

    def steps(self, x: Residual, name: str, *, causal: bool) -> Iterator[Layer]:
        """The same, layer by layer."""
        for i, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            after = block(x, causal=causal)
            yield Layer(f"{name}layer {i + 1}", block, x, after)
            x = after


class SequenceModel(nn.Module):
    """What all of them share: tokens become residuals, and residuals are read out.

    Args:
        inputs: the width of a token.
        outputs: of what is read out at a position.
        length: of the longest sequence; None: no positions, and any length.
        offsets: whether training sequences begin anywhere in the table of positions.
        from_end: whether positions are counted from the end, so that the last token is known.
        causal: whether a token sees none after it.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        shape: BlockShape,
        *,
        length: int | None,
        offsets: bool = False,
        from_end: bool = False,
        causal: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        for name, value in (("inputs", inputs), ("outputs", outputs)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.shape, self.causal = shape, causal
        self.read_in = unset_linear(inputs, shape.width, dtype)
        self.positions: nn.Module = nn.Identity()
        if length is not None:
            self.positions = Positions(
                length, shape.width, offsets=offsets, from_end=from_end, dtype=dtype
            )
        self.final_norm: nn.Module = (
            nn.LayerNorm(shape.width, dtype=dtype) if shape.norm == "pre" else nn.Identity()
        )
        self.read_out = unset_linear(shape.width, outputs, dtype)

    def steps(self, x: Residual) -> Iterator[Layer]:
        """What is done with embedded tokens, layer by layer."""
        raise NotImplementedError

    @torch.no_grad()
    def trace(self, batch: TokenSequence) -> Trace:
        """Residuals, attention maps and read-outs after every layer of every loop."""
        layers = list(self.steps(self._embed(batch)))
        return Trace(
            [layer.name for layer in layers],
            torch.stack([layer.after for layer in layers]),
            [layer.block.attention_map(layer.before, causal=self.causal) for layer in layers],
            torch.stack([self._said_after(layer, batch.readout) for layer in layers]),
        )

    def _embed(self, batch: TokenSequence) -> Residual:
        expected, given = self.read_in.in_features, batch.tokens.shape[-1]
        if given != expected:
            raise ValueError(
                f"tokens must have the width {expected} that the model was made for, got {given}"
            )
        dtype = self.read_in.weight.dtype
        if batch.tokens.dtype != dtype:
            raise ValueError(
                f"tokens must have the dtype {dtype} of the weights, got {batch.tokens.dtype}"
            )
        return self.positions(self.read_in(batch.tokens))

    def _said_after(
        self, layer: Layer, positions: Int[Tensor, " positions"]
    ) -> Float[Tensor, "batch positions outputs"]:
        """What is read out at these positions if the model stops after this layer."""
        return self._read(layer.after[:, positions])

    def _read(
        self, asked: Float[Tensor, "batch positions width"]
    ) -> Float[Tensor, "batch positions outputs"]:
        return self.read_out(self.final_norm(asked))


class Decoder(SequenceModel):
    """GPT-2, but for continuous tokens: layers with weights of their own, then a norm and a map."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        shape: BlockShape,
        *,
        layers: Layers,
        length: int | None,
        offsets: bool = False,
        from_end: bool = False,
        causal: bool = True,
        start: Start | None = None,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(
            inputs,
            outputs,
            shape,
            length=length,
            offsets=offsets,
            from_end=from_end,
            causal=causal,
            dtype=dtype,
        )
        self.stack = Stack(layers, shape, dtype=dtype)
        (start or Start.by_fan_in()).draw(self, generator)

    def forward(self, batch: TokenSequence) -> Float[Tensor, "batch positions outputs"]:
        x = self.stack(self._embed(batch), causal=self.causal, kept=batch.readout)
        return self._read(x)

    def steps(self, x: Residual) -> Iterator[Layer]:
        return self.stack.steps(x, "", causal=self.causal)
