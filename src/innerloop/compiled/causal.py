"""Descent and Newton's iteration in a decoder, at every example from those before it.

Theorem 4.2 of AlgoFormer (Gao et al. 2024), in a form of our own that needs no sinks: a decoder
reads x_1, y_1, x_2, y_2, ..., and what x_{j+1} sees is made of mirror images. y_j becomes
(x_j, y_j) and x_{j+1}, the token after it, becomes (-x_j, -y_j); nobody listens to x_1. Before x_i
there are then i - 1 pairs, and softmax divides by i - 1 itself. The printed construction of Lemma
A.5 has the present token among its keys and a sink that the first token does not see; it fails.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from innerloop.compiled.accuracy import Precision, precision
from innerloop.compiled.gradient_descent import require_decay, require_sizes
from innerloop.compiled.layout import Layout, Matrix
from innerloop.compiled.primitives import (
    MASKED,
    bilinear,
    copying,
    identity,
    own_product,
    pattern,
)
from innerloop.compiled.program import Counts, Head, Layer, Match, Move, Program


def causal_gradient_descent(
    d: int,
    n: int,
    *,
    loops: int,
    step_size: float,
    size: float | None = None,
    c: float | None = None,
    dtype: torch.dtype = torch.float64,
) -> Program:
    """At every x_i, w^i after `loops` steps on (1/2(i-1)) sum_{j<i} (<w, x_j> - y_j)^2, times x_i.

    A token keeps its own w. A loop adds -step/(i-1) sum_j x_j (<w, x_j> - y_j): the logit is what
    is left of the label, the value is the covariate. Afterwards <w, x_i> is a product of two blocks
    of one token. y tokens ask nothing (query 0), and x_1 sees itself alone: their heads cancel.
    """
    require_sizes(d=d, n=n, loops=loops)
    require_decay(step_size, 0.0)
    chosen = precision("mirrored", float(d) if size is None else size, dtype, c=c)
    length = 2 * n + 1
    layout = Layout(x=d, y=1, example=d, label=1, w=d, answer=1, position=length)
    asks = _covariates(length)  # 1 at x tokens
    step = bilinear(
        "w -= step/(i-1) sum_j x_j (<w, x_j> - y_j)",
        [Match("w", "example", 1.0), Match("position", "label", -asks.mT)],
        [Move("example", "w", -step_size)],
        c=chosen.c,
        also=[Match("position", "position", _all_but_the_first(length))],
    )
    return Program(
        "causal gradient descent",
        "AlgoFormer 2024, Theorem 4.2",
        layout,
        _read_in(d),
        "position",
        length,
        [Layer(_mirrored(length))],
        [Layer(step)],
        [Layer(_product("answer = <w, x>", "w", "x", "answer", torch.ones(1, 1), length, chosen))],
        {"answer": torch.ones(1, 1, dtype=torch.float64)},
        loops,
        chosen.error,
        stated=Counts((1, 2), (1, 2), (2, 2)),
        causal=True,
        notes=[f"c = {chosen.c:.3g}"],
    )


def causal_newton(
    d: int,
    n: int,
    *,
    loops: int,
    alpha: float,
    size: float | None = None,
    c: float | None = None,
    dtype: torch.dtype = torch.float64,
) -> Program:
    """Newton's iteration at every x_i from the examples before it, which the paper leaves open.

    Every position has a matrix M of its own, d^2 numbers, and two heads give d of them: attention
    cannot multiply by a matrix of the asking token, so the loop takes two layers. The first has 2d
    heads, S M column by column: sum_j x_j <x_j, M e_a> / (i-1). The second has 2 d^2 heads: entry
    (a, b) of M^T S M is the product of column a of M and column b of S M. Then M <- M + M^T -
    M^T S M. Afterwards M x_i, a product for each row, and sum_j y_j <x_j, M x_i> / (i-1). Before
    there are d examples, S has directions without data, along which M has rounding errors only, and
    these double in every loop, as they do in the matrix form of the iteration.
    """
    require_sizes(d=d, n=n, loops=loops)
    if not 0 < alpha < math.inf:
        raise ValueError(f"alpha must be positive and finite, got {alpha}")
    chosen = precision("mirrored", float(d) if size is None else size, dtype, c=c)
    length = 2 * n + 1
    blocks = {f"{kind}{a}": d for kind in ("m", "sm", "msm") for a in range(d)}
    layout = Layout(x=d, y=1, example=d, label=1, **blocks, mx=d, answer=1, position=length)
    unit, asks = torch.eye(d, dtype=torch.float64), _covariates(length)
    means = partial(_means, length, chosen)
    start, first, times = [], [], []  # heads, column by column
    for a in range(d):
        column = alpha * asks.mT @ unit[a : a + 1]
        start += means(f"m{a} = alpha S e{a}", "position", column, "example", f"m{a}")
        first += means(f"sm{a} = S m{a}", f"m{a}", 1.0, "example", f"sm{a}")
        times += _product(
            f"entry {a} of mx = <m{a}, x>", f"m{a}", "x", "mx", unit[:, a : a + 1], length, chosen
        )
    return Program(
        "causal newton",
        "our own: left open after AlgoFormer 2024, Theorem 4.2",
        layout,
        _read_in(d),
        "position",
        length,
        [Layer(_mirrored(length)), Layer(start)],
        [Layer(first), _newton_step(d, length, chosen)],
        [
            Layer(times),
            Layer(means("answer = mean of y_j <x_j, mx>", "mx", 1.0, "label", "answer")),
        ],
        {"answer": torch.ones(1, 1, dtype=torch.float64)},
        loops,
        2 * chosen.error,
        causal=True,
        notes=[f"alpha = {alpha:.4g}, c = {chosen.c:.3g}"],
    )


def _means(
    length: int, chosen: Precision, does: str, query: str, by: Matrix, source: str, target: str
) -> list[Head]:
    """The mean of source_j <query, x_j> over the examples before."""
    return bilinear(
        does,
        [Match(query, "example", by)],
        [Move(source, target, 1.0)],
        c=chosen.c,
        also=[Match("position", "position", _all_but_the_first(length))],
    )


def _newton_step(d: int, length: int, chosen: Precision) -> Layer:
    """The second layer of the loop: M^T S M entry by entry, and the new M."""
    columns, unit = range(d), torch.eye(d, dtype=torch.float64)
    products = [
        head
        for a in columns
        for b in columns
        for head in _product(
            f"entry {a} of msm{b} = <m{a}, sm{b}>", f"m{a}", f"sm{b}", f"msm{b}",
            unit[:, a : a + 1], length, chosen,
        )
    ]  # fmt: skip
    # Column a of M^T, read from all columns: an antisymmetric error E of M, which 2 M - M^T S M
    # would double in every loop, is taken away by M + M^T - M^T S M.
    turned = [{f"m{b}": unit[:, b : b + 1] @ unit[a : a + 1] for b in columns} for a in columns]
    update = [
        units
        for a in columns
        for units in identity({**turned[a], f"msm{a}": -1.0}, {f"m{a}": 1.0})
        + identity({f"msm{a}": 1.0}, {f"msm{a}": -1.0})
        + identity({f"sm{a}": 1.0}, {f"sm{a}": -1.0})
    ]
    return Layer(products, update, "m += m^T - msm, sm = msm = 0")


def _read_in(d: int) -> dict[str, Tensor]:
    """x to x; y to y and, since a y token is the example's own, to label."""
    entry = torch.eye(d + 1, dtype=torch.float64)
    return {"x": entry[:d], "y": entry[d:], "label": entry[d:]}


def _mirrored(length: int) -> Sequence[Head]:
    """y_j becomes (x_j, y_j) and x_{j+1} becomes (-x_j, -y_j); x_1 stays 0.

    x_1 sees only itself: the first head gives it x_1 and the second takes it away again.
    """
    before = [max(i - 1, 0) for i in range(length)]
    # x_{j+1} to x_j; a y token to itself, where x is 0.
    two_before = [i if i % 2 or i == 0 else i - 2 for i in range(length)]
    return [
        copying(
            "example += x, label -= y of the token before",
            "position",
            before,
            [Move("x", "example", 1.0), Move("y", "label", -1.0)],
        ),
        copying(
            "example -= x of the x token before",
            "position",
            two_before,
            [Move("x", "example", -1.0)],
        ),
    ]


def _covariates(length: int) -> Tensor:
    """[1, length]: 1 at x tokens."""
    return (torch.arange(length) % 2 == 0).double()[None]


def _all_but_the_first(length: int) -> Tensor:
    logits = torch.zeros(length, length, dtype=torch.float64)
    logits[:, 0] = -MASKED
    return logits


def _product(
    does: str, query: str, key: str, target: str, into: Tensor, length: int, chosen: Precision
) -> list[Head]:
    """<query, key> of one token, written `into` [target rows, 1]; the other token is y_1.

    x_1 sees itself alone and gets 0; there is no example yet.
    """
    alone = pattern(length, lambda i, j: j in (i, 1))
    one = into.double() @ _covariates(length)
    return own_product(
        does, query, key, target, position="position", alone=alone, one=one, c=chosen.c
    )
