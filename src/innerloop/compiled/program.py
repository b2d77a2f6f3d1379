"""A program of layers on named rows, and the ordinary model whose weights it writes.

A head says which rows of two tokens it compares and what it moves; the feed-forward network says
what its units read and write. `Program.model` turns this into a `Looped` of layers of AlgoFormer's
Eq. 1, the same class that is trained: no norm, softmax of plain inner products, ReLU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from innerloop.compiled.layout import Layout, Matrix, Rows
from innerloop.models.blocks import Block, BlockShape, Positions
from innerloop.models.looped import Looped


@dataclass(frozen=True, eq=False)
class Match:
    """A part of a logit: query^T `by` key, of these rows of the two tokens."""

    query: str
    key: str
    by: Matrix


@dataclass(frozen=True, eq=False)
class Move:
    """`by` times the source rows of the tokens attended to, added to the target rows."""

    source: str
    target: str
    by: Matrix


@dataclass(frozen=True, eq=False)
class Head:
    """Attention: logits are the sum of the matches, and every move is made with those weights."""

    does: str
    matches: Sequence[Match]
    moves: Sequence[Move]


@dataclass(frozen=True, eq=False)
class Units:
    """Hidden units relu(sum of reads + bias), which then write."""

    reads: Rows
    writes: Rows
    bias: float = 0.0


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer: its heads, then its feed-forward network."""

    heads: Sequence[Head] = ()
    units: Sequence[Units] = ()
    feeds: str = ""
    """What the feed-forward network does, in words."""


@dataclass(frozen=True)
class Counts:
    """Layers and heads of the three parts."""

    before: tuple[int, int]
    """Layers, and heads of the one that has most."""
    inside: tuple[int, int]
    after: tuple[int, int]

    def at_most(self, other: Counts) -> bool:
        """Whether no part has more layers or heads than there."""
        pairs = (
            (self.before, other.before),
            (self.inside, other.inside),
            (self.after, other.after),
        )
        return all(a <= b for own, theirs in pairs for a, b in zip(own, theirs, strict=True))

    def __str__(self) -> str:
        parts = {"before": self.before, "loop": self.inside, "after": self.after}
        return ", ".join(
            f"{name} {layers} x {heads}" if layers else f"{name} none"
            for name, (layers, heads) in parts.items()
        )


@dataclass(frozen=True, eq=False)
class Program:
    """Everything that a compiled model is, in words and matrices.

    Attributes:
        source: the statement that it realises.
        stated: the layers and heads that the statement allows.
        read_in: for blocks of rows, [rows, entries of a token].
        position: the block of rows that holds the one-hot position of a token.
        length: tokens of the longest sequence.
        read_out: for blocks of rows, [outputs, rows].
        error: expected of one loop, relative to the size of what is updated.
    """

    name: str
    source: str
    layout: Layout
    read_in: Mapping[str, Tensor]
    position: str
    length: int
    before: Sequence[Layer]
    inside: Sequence[Layer]
    after: Sequence[Layer]
    read_out: Mapping[str, Tensor]
    loops: int
    error: float
    stated: Counts | None = None
    causal: bool = False
    from_end: bool = False
    notes: Sequence[str] = field(default=())

    @property
    def counts(self) -> Counts:
        def of(layers: Sequence[Layer]) -> tuple[int, int]:
            return len(layers), max((len(layer.heads) for layer in layers), default=0)

        return Counts(of(self.before), of(self.inside), of(self.after))

    @property
    def expected_error(self) -> float:
        """Of all loops, if their errors add up."""
        return self.loops * self.error

    def model(self, dtype: torch.dtype = torch.float64) -> Looped:
        """The ordinary model with these weights."""
        inputs = next(iter(self.read_in.values())).shape[1]
        outputs = next(iter(self.read_out.values())).shape[0]
        shapes = [[self._shape(layer) for layer in p] for p in self._parts]
        model = Looped(
            inputs,
            outputs,
            shapes[1][0],
            loops=self.loops,
            before=shapes[0] or 0,
            inside=shapes[1],
            after=shapes[2] or 0,
            length=self.length,
            from_end=self.from_end,
            causal=self.causal,
            inject=False,
            generator=torch.Generator(),
            dtype=torch.float64,
        )
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
            model.read_in.weight.copy_(self.layout.writing(self.read_in))
            assert isinstance(model.positions, Positions)
            model.positions.table[:, self.layout.place(self.position)] = torch.eye(
                self.length, dtype=torch.float64
            )
            model.read_out.weight.copy_(self.layout.reading(self.read_out))
            stacks = (model.before, model.inside, model.after)
            for stack, layers in zip(stacks, self._parts, strict=True):
                blocks: Sequence[nn.Module] = () if stack is None else list(stack.blocks)
                for block, layer in zip(blocks, layers, strict=True):
                    assert isinstance(block, Block)
                    self._write(block, layer)
        return model.to(dtype)

    @property
    def _parts(self) -> tuple[Sequence[Layer], Sequence[Layer], Sequence[Layer]]:
        return self.before, self.inside, self.after

    def _shape(self, layer: Layer) -> BlockShape:
        widths = [1]
        for head in layer.heads:
            compared = sum(self.layout.size(match.key) for match in head.matches)
            moved = sum(self.layout.size(move.target) for move in head.moves)
            widths.append(max(compared, moved))
        return BlockShape(
            self.layout.width,
            max(1, len(layer.heads)),
            max(1, sum(self._reading(units).shape[0] for units in layer.units)),
            norm="none",
            activation="relu",
            scale=1.0,
            head=max(widths),
            attention_bias=False,
        )

    def _reading(self, units: Units) -> Tensor:
        return self.layout.reading(units.reads)

    def _write(self, block: Block, layer: Layer) -> None:
        heads, size = block.shape.heads, block.shape.head_width
        # [query/key/value, head, coordinate of the head, row of the residual]
        maps = block.query_key_value.weight.view(3, heads, size, -1)
        merge = block.merge.weight.view(-1, heads, size)
        for i, head in enumerate(layer.heads):
            start = 0
            for match in head.matches:
                coordinates = slice(start, start + self.layout.size(match.key))
                by = match.by.mT if isinstance(match.by, Tensor) else match.by
                share = _share(by)
                maps[0, i, coordinates] = self.layout.reading({match.query: by / share})
                maps[1, i, coordinates] = self.layout.reading({match.key: share})
                start = coordinates.stop
            start = 0
            for move in head.moves:
                # `merge` holds powers of two: two heads that must cancel then add the same number
                # with both signs, and cancel to the last bit.
                share = _share(move.by)
                coordinates = slice(start, start + self.layout.size(move.target))
                maps[2, i, coordinates] = self.layout.reading({move.source: move.by / share})
                merge[:, i, coordinates] = self.layout.writing({move.target: share})
                start = coordinates.stop
        start = 0
        for units in layer.units:
            reads = self._reading(units)
            hidden = slice(start, start + len(reads))
            block.into_hidden.weight[hidden] = reads
            block.into_hidden.bias[hidden] = units.bias
            block.out_of_hidden.weight[:, hidden] = self.layout.writing(units.writes)
            start = hidden.stop

    def __str__(self) -> str:
        counts = f"layers x heads: {self.counts}"
        if self.stated is not None:
            counts += f" (stated: {self.stated})"
        lines = [f"{self.name}: {self.source}", str(self.layout), counts]
        for part, layers in zip(("before", "loop", "after"), self._parts, strict=True):
            for number, layer in enumerate(layers, 1):
                lines.append(f"{part}, layer {number}")
                lines += [f"  head {i}: {head.does}" for i, head in enumerate(layer.heads, 1)]
                if layer.feeds:
                    lines.append(f"  feed-forward: {layer.feeds}")
        return "\n".join([*lines, *self.notes])


def _share(matrix: Matrix) -> float:
    """A power of two near the root of the largest entry, for the second of two maps.

    Products are the same to the last bit, and no weight is larger than it must be: training can
    move a model whose weights are of like size.
    """
    largest = float(matrix.abs().max()) if isinstance(matrix, Tensor) else abs(matrix)
    return 2.0 ** round(math.log2(largest) / 2) if largest > 0 else 1.0
