"""The same algorithm in another shape: as a standard transformer, and as one layer that does all.

Section 2.2 of AlgoFormer (Gao et al. 2024) says that a standard transformer needs more parameters
for it, and that three one-layer parts can be fused into one looped layer at the price of more
computation. Both are made here from any AlgoFormer of Eq. 1 layers, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from innerloop.compiled.primitives import LARGEST
from innerloop.models.blocks import Block, BlockShape, Positions
from innerloop.models.decoder import Decoder, SequenceModel, Stack
from innerloop.models.looped import Looped


def unrolled(model: Looped) -> Decoder:
    """A standard transformer with the layers before, of every loop, and after, each on its own."""
    if model.inject:
        raise ValueError("a loop that adds its input again is no stack of layers; inject=False is")
    blocks = [*_blocks(model.before), *_blocks(model.inside) * model.loops, *_blocks(model.after)]
    made = Decoder(
        model.read_in.in_features,
        model.read_out.out_features,
        model.shape,
        layers=[block.shape for block in blocks],
        length=_length(model),
        from_end=_from_end(model),
        causal=model.causal,
        generator=torch.Generator(),
        dtype=model.read_in.weight.dtype,
    )
    _copy_ends(model, made)
    for target, source in zip(made.stack.blocks, blocks, strict=True):
        target.load_state_dict(source.state_dict())
    return made


def fused(model: Looped, bound: float = LARGEST) -> Looped:
    """One looped layer that is the layer before in its first loop, the layer inside in the next T,
    and the layer after in the last one.

    The heads of each part write to rows of their own. A number that counts loops stands in every
    token, with an indicator of the part whose turn it is; the feed-forward networks of the three
    parts stand side by side, each closed by its indicator unless it is its turn (`leaky` in
    primitives.py): relu(W (x + a) + b - bound (1 - turn)), where a is what that part's heads wrote.
    The last units add that a to x, clear all three and count. So the heads need no selection by a
    fourth one, which could not close feed-forward networks anyway.

    After T + 2 loops it would go on with the layer after.

    Args:
        bound: above everything that a unit reads.
    """
    parts = [model.before, model.inside, model.after]
    stacks = [_blocks(part) for part in parts]
    if any(len(stack) != 1 for stack in stacks) or model.inject or model.shape.norm != "none":
        raise ValueError(
            "only one layer of Eq. 1 before, in and after a loop without injection can be fused"
        )
    blocks = [stack[0] for stack in stacks]
    width, dtype = model.shape.width, model.read_in.weight.dtype
    total = 4 * width + 4  # x, three scratch blocks, the loops done, and whose turn it is
    heads = sum(block.shape.heads for block in blocks)
    units = sum(block.shape.hidden_width for block in blocks) + 3 * (4 * width + 1) + 2
    shape = replace(
        model.shape,
        width=total,
        heads=heads,
        hidden=units,
        head=max(block.shape.head_width for block in blocks),
    )
    made = Looped(
        model.read_in.in_features,
        model.read_out.out_features,
        shape,
        loops=model.loops + 2,
        length=_length(model),
        from_end=_from_end(model),
        causal=model.causal,
        inject=False,
        generator=torch.Generator(),
        dtype=dtype,
    )
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.zero_()
        made.read_in.weight[:width] = model.read_in.weight
        made.read_in.bias[:width] = model.read_in.bias
        made.read_in.bias[4 * width + 1] = 1  # the first turn is that of the layer before
        made.read_out.weight[:, :width] = model.read_out.weight
        made.read_out.bias.copy_(model.read_out.bias)
        if isinstance(model.positions, Positions):
            assert isinstance(made.positions, Positions)
            made.positions.table[:, :width] = model.positions.table
        (block,) = _blocks(made.inside)
        _fuse_heads(block, blocks)
        _fuse_units(block, blocks, model.loops, bound)
    return made


def _fuse_heads(block: Block, parts: Sequence[Block]) -> None:
    width, first = parts[0].shape.width, 0
    maps = block.query_key_value.weight.view(3, block.shape.heads, block.shape.head_width, -1)
    merge = block.merge.weight.view(-1, block.shape.heads, block.shape.head_width)
    for number, part in enumerate(parts, 1):
        own = slice(first, first + part.shape.heads)
        size = part.shape.head_width
        theirs = part.query_key_value.weight.view(3, part.shape.heads, size, width)
        maps[:, own, :size, :width] = theirs
        scratch = slice(number * width, (number + 1) * width)
        merge[scratch, own, :size] = part.merge.weight.view(width, part.shape.heads, size)
        first = own.stop


def _fuse_units(block: Block, parts: Sequence[Block], loops: int, bound: float) -> None:
    width = parts[0].shape.width
    into, bias, out = block.into_hidden.weight, block.into_hidden.bias, block.out_of_hidden.weight
    counter, place = 4 * width, 0
    eye = torch.eye(width).to(into)
    for number, part in enumerate(parts, 1):
        scratch, turn = slice(number * width, (number + 1) * width), counter + number
        others = [counter + k for k in (1, 2, 3) if k != number]
        own = slice(place, place + part.shape.hidden_width)
        into[own, :width] = part.into_hidden.weight
        into[own, scratch] = part.into_hidden.weight
        into[own, others] = -bound  # closed in the turns of the others, and exactly open in its own
        bias[own] = part.into_hidden.bias
        out[:width, own] = part.out_of_hidden.weight
        place = own.stop
        for sign in (1.0, -1.0):  # x += a in its turn; a = 0 in any
            added, cleared = (slice(place + k * width, place + (k + 1) * width) for k in (0, 1))
            into[added, scratch] = sign * eye
            into[added, others] = -bound
            out[:width, added] = sign * eye
            into[cleared, scratch] = sign * eye
            out[scratch, cleared] = -sign * eye
            place = cleared.stop
        into[place, turn] = 1
        out[:width, place] = part.out_of_hidden.bias
        if number == 1:  # after the first loop it is the second part's turn
            out[counter + 1, place], out[counter + 2, place] = -1, 1
        place += 1
    # relu(t - T + 1) - 2 relu(t - T) is 1 in the last loop of the second part, and 0 around it.
    for offset, height in ((1.0, 1.0), (0.0, -2.0)):
        into[place, counter], bias[place] = 1, offset - loops
        out[counter + 2, place], out[counter + 3, place] = -height, height
        place += 1
    block.out_of_hidden.bias[counter] = 1


def parameter_count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def multiplications(model: Looped | Decoder, length: int) -> int:
    """Of numbers, in the layers of one pass over a sequence of this length."""
    if isinstance(model, Decoder):
        return sum(_of_block(block.shape, length) for block in _blocks(model.stack))
    once = [*_blocks(model.before), *_blocks(model.after)]
    looped = sum(_of_block(block.shape, length) for block in _blocks(model.inside))
    return sum(_of_block(block.shape, length) for block in once) + model.loops * looped


def _of_block(shape: BlockShape, length: int) -> int:
    inner = shape.heads * shape.head_width
    maps = 4 * shape.width * inner + 2 * shape.width * shape.hidden_width
    return length * maps + 2 * length**2 * inner


def _blocks(stack: Stack | None) -> list[Block]:
    return [] if stack is None else [b for b in stack.blocks if isinstance(b, Block)]


def _copy_ends(source: SequenceModel, target: SequenceModel) -> None:
    """Positions, what reads in and what reads out."""
    ends = ("read_in.", "read_out.", "positions.", "final_norm.")
    state = {k: v for k, v in source.state_dict().items() if k.startswith(ends)}
    target.load_state_dict(target.state_dict() | state)


def _length(model: SequenceModel) -> int | None:
    return len(model.positions.table) if isinstance(model.positions, Positions) else None


def _from_end(model: SequenceModel) -> bool:
    return isinstance(model.positions, Positions) and model.positions.from_end
