"""Newton's iteration in context: Lemma A.4 and Theorem 4.1 of AlgoFormer (Gao et al. 2024).

    M_0 = alpha S,    M_{k+1} = 2 M_k - M_k S M_k,    w_k = M_k b,    S = (1/n) sum_i x_i x_i^T

with b = (1/n) sum_i y_i x_i. With the sums in place of the means, as in Eq. 4, M_k is 1/n times
ours and its alpha 1/n^2 times ours: the predictions are the same, and means are what a softmax
gives. No token listens to the query, so that it need not be told apart.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from innerloop.compiled.accuracy import MIRRORED, Form, Precision, precision
from innerloop.compiled.gradient_descent import listening, partners, require_sizes
from innerloop.compiled.layout import Layout
from innerloop.compiled.primitives import MASKED, bilinear, copying, identity
from innerloop.compiled.program import Counts, Head, Layer, Match, Move, Program


def newton(
    d: int,
    n: int,
    *,
    loops: int,
    alpha: float,
    form: Form = "mirrored",
    size: float | None = None,
    growth: float = 1.0,
    c: float | None = None,
    sink: float | None = None,
    dtype: torch.dtype = torch.float64,
) -> Program:
    """`loops` steps of Newton's iteration on prompts of up to n examples.

    Before: m_j = alpha sum_i x_i <x_i, x_j> / n = M_0 x_j, at the query too. A loop: u_j =
    sum_i m_i <x_i, m_j> / n = M S M x_j, and the feed-forward network adds m - u and clears u: m
    becomes 2 m - u. After: y_i is copied to its x token, and then the query collects
    sum_i y_i <x_i, m_q> / n = <M b, x_q>, M being symmetric.

    mirrored: y tokens are sinks in the layer before the loop, where they become (-x_i, m = 0), the
    mirror images of the keys alone. From then on Z_+ = Z_- = 2 sum cosh(c z_i) without a sink, and
    a token whose m is 0 keeps it. refined: the same with four heads. sinks, refined-sinks, printed:
    y tokens are sinks throughout.

    Args:
        alpha: of the means S; must be below 2 / |S|^2 on every prompt, and not equal (Eq. 4 prints
            a closed interval): there the largest eigenvalue of M_1 S is 0, and stays so.
        size: of the products <x_i, x_j>; by default d.
        growth: how much larger <x_i, M x_j> becomes, for the error to expect.
    """
    require_sizes(d=d, n=n, loops=loops)
    if not 0 < alpha < math.inf:
        raise ValueError(f"alpha must be positive and finite, got {alpha}")
    size = float(d) if size is None else size
    if form in MIRRORED:  # C is then that of the layer before the loop alone
        chosen = precision(form, size, dtype, c=c)
        first = precision(BEFORE[form], size, dtype, sink=sink)
    else:
        first = chosen = precision(form, size, dtype, c=c, sink=sink)
    start = _pair("m = alpha S x", ("x", "x", "m", alpha), n, first)
    if form in MIRRORED:
        start = [_mirroring(head, n, first.sink, 1.0 / len(start)) for head in start]
    # m + (m - u): m is what it was, for the attention writes to u alone.
    update = identity({"m": 1.0, "u": -1.0}, {"m": 1.0}) + identity({"u": 1.0}, {"u": -1.0})
    labels = copying(
        "label = y of the partner token",
        "position",
        partners(n, 2 * n),
        [Move("y", "label", 1.0)],
    )
    collect = _pair("answer = sum_i y_i <x_i, m> / n", ("m", "label", "answer", 1.0), n, chosen)
    entry = torch.eye(d + 1, dtype=torch.float64)
    return Program(
        "newton",
        "AlgoFormer 2024, Theorem 4.1",
        Layout(x=d, y=1, m=d, u=d, label=1, answer=1, position=2 * n + 1),
        {"x": entry[:d], "y": entry[d:]},
        "position",
        2 * n + 1,
        [Layer(start)],
        [Layer(_pair("u = M S m", ("m", "m", "u", 1.0), n, chosen), update, "m += m - u, u = 0")],
        [Layer([labels]), Layer(collect)],
        {"answer": torch.ones(1, 1, dtype=torch.float64)},
        loops,
        growth * chosen.error,
        stated=Counts((1, 2), (1, 2), (2, 2)),
        from_end=True,
        notes=[f"alpha = {alpha:.4g}, c = {chosen.c:.3g}, C = {first.sink:g}"],
    )


BEFORE: dict[str, Form] = {"mirrored": "sinks", "refined": "refined-sinks"}
"""The form of the layer that makes mirror images, and has none yet."""


def _pair(does: str, rows: tuple[str, str, str, float], n: int, chosen: Precision) -> list[Head]:
    """target += times sum_i source_i <x_i, query> / n; rows are query, source, target, times."""
    query, source, target, times = rows
    # Without sinks, y tokens hold half of the softmax, and add nothing.
    factor = chosen.factor if chosen.sink else 2.0
    return bilinear(
        does,
        [Match(query, "x", 1.0)],
        [Move(source, target, times * factor)],
        c=chosen.c,
        also=[Match("position", "position", listening(n, chosen.sink))],
        scheme=chosen.scheme,
    )


def _mirroring(head: Head, n: int, sink: float, share: float) -> Head:
    """The same at x tokens and the query; y_i listens to x_i alone, and each head gives it its
    share of -x_i.

    What all heads add to m of a y token cancels, since each takes all of x_i. At an x token a head
    adds to x what the sinks leave of the softmax, e^-C: no more than the rounding of x itself.
    """
    pattern = listening(n, sink)
    pattern[1::2] = -MASKED
    for i in range(n):
        pattern[2 * i + 1, 2 * i] = 0.0
    return replace(
        head,
        does=f"{head.does}; x -= x of the partner token, at y",
        matches=[*head.matches[:-1], Match("position", "position", pattern)],
        moves=[*head.moves, Move("x", "x", -share)],
    )
