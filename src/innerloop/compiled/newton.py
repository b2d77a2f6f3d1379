"""Newton's iteration in context: Lemma A.4 and Theorem 4.1 of AlgoFormer (Gao et al. 2024).

    M_0 = alpha S,    M_{k+1} = 2 M_k - M_k S M_k,    w_k = M_k b,    S = (1/n) sum_i x_i x_i^T

with b = (1/n) sum_i y_i x_i. With the sums in place of the means, as in Eq. 4, M_k is 1/n times
ours and its alpha 1/n^2 times ours: the predictions are the same, and means are what a softmax
with all y tokens as sinks gives. No token listens to the query, so that it need not be told apart.
"""

from __future__ import annotations

import math

import torch

from innerloop.compiled.accuracy import MIRRORED, Form, precision
from innerloop.compiled.gradient_descent import listening, partners, require_sizes
from innerloop.compiled.layout import Layout
from innerloop.compiled.primitives import bilinear, copying, identity
from innerloop.compiled.program import Counts, Head, Layer, Match, Move, Program


def newton(
    d: int,
    n: int,
    *,
    loops: int,
    alpha: float,
    form: Form = "sinks",
    size: float | None = None,
    c: float | None = None,
    sink: float | None = None,
    dtype: torch.dtype = torch.float64,
) -> Program:
    """`loops` steps of Newton's iteration on prompts of up to n examples.

    Before: m_j = alpha sum_i x_i <x_i, x_j> / n = M_0 x_j, at the query too. A loop: u_j =
    sum_i m_i <x_i, m_j> / n = M S M x_j, and the feed-forward network adds m - u and clears u: m
    becomes 2 m - u. After: y_i is copied to its x token, and then the query collects
    sum_i y_i <x_i, m_q> / n = <M b, x_q>, M being symmetric.

    Args:
        alpha: of the means S; must be below 2 / |S|^2 on every prompt, and not equal (Eq. 4 prints
            a closed interval): there the largest eigenvalue of M_1 S is 0, and stays so.
        form: sinks, printed, or refined-sinks: four heads, and an error a hundred times smaller.
        size: of the products <x_i, x_j> and <x_i, M x_j>; by default d.
    """
    require_sizes(d=d, n=n, loops=loops)
    if not 0 < alpha < math.inf:
        raise ValueError(f"alpha must be positive and finite, got {alpha}")
    if form in MIRRORED:
        raise ValueError(
            f"form must be sinks, refined-sinks or printed, got {form}: y tokens are sinks"
        )
    chosen = precision(form, float(d) if size is None else size, dtype, c=c, sink=sink)
    layout = Layout(x=d, y=1, m=d, u=d, label=1, answer=1, position=2 * n + 1)

    def pair(does: str, query: str, source: str, target: str, times: float = 1.0) -> list[Head]:
        return bilinear(
            does,
            [Match(query, "x", 1.0)],
            [Move(source, target, times * chosen.factor)],
            c=chosen.c,
            also=[Match("position", "position", listening(n, chosen.sink))],
            scheme=chosen.scheme,
        )

    # m + (m - u): m is what it was, for the attention writes to u alone.
    update = identity({"m": 1.0, "u": -1.0}, {"m": 1.0}) + identity({"u": 1.0}, {"u": -1.0})
    labels = copying(
        "label = y of the partner token",
        "position",
        partners(n, 2 * n),
        [Move("y", "label", 1.0)],
    )
    entry = torch.eye(d + 1, dtype=torch.float64)
    return Program(
        "newton",
        "AlgoFormer 2024, Theorem 4.1",
        layout,
        {"x": entry[:d], "y": entry[d:]},
        "position",
        2 * n + 1,
        [Layer(pair("m = alpha S x", "x", "x", "m", alpha))],
        [Layer(pair("u = M S m", "m", "m", "u"), update, "m += m - u, u = 0")],
        [Layer([labels]), Layer(pair("answer = sum_i y_i <x_i, m> / n", "m", "label", "answer"))],
        {"answer": torch.ones(1, 1, dtype=torch.float64)},
        loops,
        chosen.error,
        stated=Counts((1, 2), (1, 2), (2, 2)),
        from_end=True,
        notes=[f"alpha = {alpha:.4g}, c = {chosen.c:.3g}, C = {chosen.sink:g}"],
    )
