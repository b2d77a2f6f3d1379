"""Transformers with a loop: the vanilla looped transformer, and AlgoFormer with layers around it.

    h = before(X),   z_0 = 0,   z_{t+1} = norm(inside(z_t + h)),   prediction_t = read(after(z_t))

Without layers before and after it is the looped transformer of Yang et al. (2023); with them, the
AlgoFormer of Gao et al. (2024), Eq. 2, whose formula has no injection: z_0 = h, z_{t+1} =
inside(z_t).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from innerloop.models.blocks import BlockShape, Start
from innerloop.models.decoder import Layer, Layers, Residual, SequenceModel, Stack
from innerloop.sequence import TokenSequence


class Looped(SequenceModel):
    """Layers inside a loop and, if asked for, before and after it.

    Args:
        loops: T, how often the layers inside are applied unless told otherwise.
        inside: layers of the loop; of them, as of those around it, a number or the shape of each.
        before: layers before it, run once; 0 for the vanilla looped transformer.
        after: layers after it, run before every read-out; 0 likewise.
        inject: whether h is added at every loop. Without it the loop sees h at its start alone, and
            if in addition the first loops are run without gradient (see `predictions`), no gradient
            at all reaches the layers before the loop.
        norm_in_loop: whether the loop ends with a norm, which keeps z bounded however often it is
            looped, and is then the last one if no layers follow. Only with norm="pre".
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        shape: BlockShape,
        *,
        loops: int,
        inside: Layers = 1,
        before: Layers = 0,
        after: Layers = 0,
        length: int | None,
        from_end: bool = False,
        causal: bool = True,
        inject: bool = True,
        norm_in_loop: bool = True,
        start: Start | None = None,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(
            inputs, outputs, shape, length=length, from_end=from_end, causal=causal, dtype=dtype
        )
        _require_loops("loops", loops)
        self.loops, self.inject = loops, inject
        self.before = Stack(before, shape, dtype=dtype) if before else None
        self.inside = Stack(inside, shape, dtype=dtype)
        self.after = Stack(after, shape, dtype=dtype) if after else None
        self.loop_norm: nn.Module = nn.Identity()
        if norm_in_loop and shape.norm == "pre":
            self.loop_norm = nn.LayerNorm(shape.width, dtype=dtype)
            if self.after is None:
                self.final_norm = nn.Identity()
        (start or Start.by_fan_in()).draw(self, generator)

    def forward(
        self, batch: TokenSequence, loops: int | None = None
    ) -> Float[Tensor, "batch positions outputs"]:
        """The prediction after `loops` loops, by default as many as the model was made for."""
        return self.predictions(batch, [self.loops if loops is None else loops])[0]

    def predictions(
        self, batch: TokenSequence, counts: Sequence[int], *, without_gradient: int = 0
    ) -> Float[Tensor, "counts batch positions outputs"]:
        """The predictions after each of these numbers of loops, in one run.

        The first `without_gradient` loops pass no gradient, and keep no memory for one: truncated
        back-propagation.
        """
        if not counts:
            raise ValueError("counts must hold at least one number of loops, got none")
        for count in counts:
            _require_loops("counts", count)
        h = self._before(self._embed(batch))
        wanted, kept = set(counts), {}
        for count, z in self._states(h, max(counts), without_gradient):
            if count in wanted:
                kept[count] = z
        states = torch.cat([kept[count] for count in counts])  # [counts batch, length, width]
        if self.after is None:
            states = states[:, batch.readout]
        else:
            states = self.after(states, causal=self.causal, kept=batch.readout)
        return self._read(states).unflatten(0, (len(counts), -1))

    def after_loops(
        self, batch: TokenSequence, counts: Sequence[int]
    ) -> Float[Tensor, "counts batch positions outputs"]:
        """The predictions after each of these numbers of loops."""
        return self.predictions(batch, counts)

    def loop_at_its_end(
        self, batch: TokenSequence, loops: int | None = None
    ) -> tuple[Callable[[Residual], Residual], Residual]:
        """One more loop as a function of z, and the z that it is given after `loops` of them."""
        h = self._before(self._embed(batch))
        *_, (_, z) = self._states(h, self.loops if loops is None else loops, 0)
        return lambda z: self._once_more(h, z, count=1), z

    def steps(self, x: Residual) -> Iterator[Layer]:
        """Layers before, of every loop, and after the last; the loop's norm is part of its end."""
        if self.before is not None:
            for layer in self.before.steps(x, "before, ", causal=self.causal):
                yield layer
                x = layer.after
        h, z = x, torch.zeros_like(x)
        for count in range(self.loops):
            z = self._entering(h, z, count)
            *layers, last = self.inside.steps(z, f"loop {count + 1}, ", causal=self.causal)
            yield from layers
            z = self.loop_norm(last.after)
            yield replace(last, after=z)
        if self.after is not None:
            yield from self.after.steps(z, "after, ", causal=self.causal)

    def _said_after(
        self, layer: Layer, positions: Int[Tensor, " positions"]
    ) -> Float[Tensor, "batch positions outputs"]:
        """The layers after the loop run before every read-out."""
        if self.after is None or layer.block in set(self.after.blocks):
            return super()._said_after(layer, positions)
        return self._read(self.after(layer.after, causal=self.causal, kept=positions))

    def _before(self, x: Residual) -> Residual:
        return x if self.before is None else self.before(x, causal=self.causal)

    def _states(
        self, h: Residual, loops: int, without_gradient: int
    ) -> Iterator[tuple[int, Residual]]:
        """z_1, z_2, ... with their numbers."""
        z = torch.zeros_like(h)
        for count in range(loops):
            with torch.set_grad_enabled(torch.is_grad_enabled() and count >= without_gradient):
                z = self._once_more(h, z, count)
            yield count + 1, z

    def _once_more(self, h: Residual, z: Residual, count: int) -> Residual:
        return self.loop_norm(self.inside(self._entering(h, z, count), causal=self.causal))

    def _entering(self, h: Residual, z: Residual, count: int) -> Residual:
        """What loop number `count`, 0 first, is given."""
        if self.inject or count == 0:
            return z + h
        return z


def _require_loops(name: str, loops: int) -> None:
    if loops < 1:
        raise ValueError(f"{name} must be at least 1 loop, got {loops}")
