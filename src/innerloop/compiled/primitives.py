"""What layers are composed of. Each docstring is the proof; tests/compiled checks each of them.

Positions are one-hot rows p. A matrix A between them, p_i^T A p_j = A_ij, is any pattern of who
listens to whom: 0 where token i may listen to token j, and -MASKED where not. Of a masked token the
softmax is exactly 0, in float32 as in float64, since exp(-1000) underflows. Entries that are 0 add
nothing to a logit, not even rounding: small logits keep all their digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from innerloop.compiled.layout import Rows
from innerloop.compiled.program import Head, Match, Move, Units

MASKED = 1000.0
LARGEST = 1e6
"""Of values that pass a gate. It costs no digits: an open gate subtracts LARGEST times 0."""

Scheme = tuple[tuple[float, float], ...]
PRINTED: Scheme = ((1.0, 1.0), (0.0, -1.0))
"""The heads of Lemma A.2: logits c z and 0, an error of O(c)."""
ANTISYMMETRIC: Scheme = ((1.0, 0.5), (-1.0, -0.5))
REFINED: Scheme = ((1.0, 2 / 3), (-1.0, -2 / 3), (2.0, -1 / 12), (-2.0, 1 / 12))


def pattern(length: int, listens: Callable[[int, int], bool]) -> Tensor:
    """[length, length]: 0 where token i listens to token j, and -MASKED where not."""
    allowed = [[listens(i, j) for j in range(length)] for i in range(length)]
    return torch.where(torch.tensor(allowed), 0.0, -MASKED).double()


def copying(does: str, position: str, source: Sequence[int | None], moves: Sequence[Move]) -> Head:
    """Token i takes from token source[i] alone; exact.

    The logits are 0 for that token and -MASKED for all others, so softmax is 1 there. A token whose
    source is None, or is not in the sequence, attends evenly to all that it sees; what it then gets
    is to be erased, or never read.
    """
    listens = pattern(len(source), lambda i, j: source[i] == j)
    return Head(does, [Match(position, position, listens)], moves)


def bilinear(
    does: str,
    matches: Sequence[Match],
    moves: Sequence[Move],
    *,
    c: float,
    also: Sequence[Match] = (),
    scheme: Scheme = ANTISYMMETRIC,
) -> list[Head]:
    """sum_i v_i z_ij over the tokens i that token j listens to, z_ij a bilinear form; two heads.

    One head has the logits c z, the other -c z, and their values have opposite signs:

        (1/2c) sum_i v_i (e^{c z_i} / Z_+ - e^{-c z_i} / Z_-) = sum_i v_i (z_i + O(c^2)) / Z

    if Z_+ = Z_- = Z up to O(c^2). Two ways make it so.
    Sinks: tokens of value 0 and logit C hold nearly all of the softmax, Z = m e^C for m of them, up
    to e^-C; the values are to be multiplied by e^C.
    Mirrored tokens: for every token (k_i, v_i) there is a token (-k_i, -v_i). Then Z_+ = Z_- =
    2 sum cosh(c z_i) = 2n + O(c^2), the pair adds 2 v_i sinh(c z_i), and the sum is (1/n) sum
    v_i z_i: no sink, no e^C. A single head would do for one step, but is not stable when looped: a
    common error of the pair is multiplied by 1/c in every loop. The second head removes it.
    Where z = 0, the heads cancel to the last bit.
    Refined: with D(c) for the sum above, (4 D(c) - D(2c)) / 3 has no error of O(c^2), so that c can
    be larger and rounding matters less; four heads.

    Args:
        matches: what z is the sum of.
        also: logits that all heads have: masks and sinks.
        scheme: the multiples of c and the weights of the heads.
    """
    return [
        Head(
            f"{does} ({multiple:+g}c)",
            [*(replace(m, by=m.by * multiple * c) for m in matches), *also],
            [replace(move, by=move.by * weight / c) for move in moves],
        )
        for multiple, weight in scheme
    ]


def own_product(
    does: str,
    query: str,
    key: str,
    target: str,
    *,
    position: str,
    alone: Tensor,
    one: Tensor,
    c: float,
) -> list[Head]:
    """The inner product of two blocks of the same token, as a number; two heads.

    A token listens to itself, z = <query, key>, and to one other whose rows `key` are 0:

        (2/c) (1 / (1 + e^{-c z}) - 1 / (1 + e^{c z})) = (2/c) tanh(c z / 2) = z + O(c^2)

    Args:
        alone: the pattern of who listens to itself and to the other token, [length, length].
        one: 1 where a token multiplies, 0 at the others, [1, length]: what is moved.
    """
    moves = [Move(position, target, 4.0 * one)]
    also = [Match(position, position, alone)]
    return bilinear(does, [Match(query, key, 1.0)], moves, c=c, also=also)


def identity(reads: Rows, writes: Rows) -> list[Units]:
    """u = relu(u) - relu(-u): the linear map, exactly."""
    return leaky(reads, writes, slope=1.0)


def leaky(
    reads: Rows, writes: Rows, *, slope: float, off: Mapping[str, Tensor] | None = None
) -> list[Units]:
    """max(u, slope u) = relu(u) - slope relu(-u) for slope <= 1, and 0 where a gate is closed.

    With slope 1/s it is the inverse of max(u, s u): relu(u) - (1/s) relu(-u).
    Gate: with an indicator o in {0, 1} of closed tokens and |u| <= LARGEST,

        relu(u - LARGEST o) - slope relu(-u - LARGEST o)

    is 0 where o = 1 and, bit for bit, the function itself where o = 0.

    Args:
        off: for blocks of rows, [1, rows]: their sum is at least 1 where the gate is closed and
            exactly 0 where it is open. What a gate reads is given as a matrix.
    """
    units = []
    for sign in (1.0, -1.0):
        inward = {name: m * sign for name, m in reads.items()}
        for name, m in (off or {}).items():
            size = next(len(read) for read in reads.values() if isinstance(read, Tensor))
            inward[name] = -LARGEST * m.expand(size, -1)
        outward = {name: m * (1.0 if sign > 0 else -slope) for name, m in writes.items()}
        units.append(Units(inward, outward))
    return units
