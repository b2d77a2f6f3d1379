"""Gradient descent in context: Lemma A.2 and Theorem 3.1 of AlgoFormer (Gao et al. 2024).

    L(A) = (1/2n) sum_i |A f_i - y_i|^2 + (penalty/2) |A|^2,    A <- A - step dL/dA,    A_0 = 0

A prompt is x_1, y_1, ..., x_n, y_n, x_q, one token each. Every x token keeps what is left of its
label, r_i = A f_i - y_i, and the query A f_q. A step changes r_j by -(step/n) sum_i r_i <f_i, f_j>,
which is bilinear attention: two heads in one layer. The answer is read at the query itself, so that
the empty last token of the paper, and its layer after the loop, are not needed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from innerloop.compiled.accuracy import MIRRORED, Form, precision
from innerloop.compiled.layout import Layout
from innerloop.compiled.primitives import MASKED, bilinear, copying, identity, leaky
from innerloop.compiled.program import Counts, Head, Layer, Match, Move, Program
from innerloop.tasks.representation import LeakyNetwork


def gradient_descent(
    d: int,
    n: int,
    *,
    loops: int,
    step_size: float,
    outputs: int = 1,
    penalty: float = 0.0,
    representation: LeakyNetwork | None = None,
    form: Form = "mirrored",
    size: float | None = None,
    c: float | None = None,
    sink: float | None = None,
    dtype: torch.dtype = torch.float64,
) -> Program:
    """Gradient descent on prompts of up to n examples (Lemma A.2), on features if they are given
    (Theorem 3.1), and with a ridge penalty (the remark to it).

    mirrored: every y token becomes (-f_i, -r_i), the mirror image of its x token. Softmax itself
    divides by n, so that shorter prompts are answered as well. Weights do not depend on n.
    refined: the same with four heads, and an error a hundred times smaller.
    sinks: y tokens stay empty and hold the softmax (logit C); refined-sinks: the same with four
    heads; printed: with the heads c and 0 of the paper. All y tokens are sinks, so that again
    softmax divides by n.

    Args:
        step_size: stable if below 2 over the largest eigenvalue of (1/n) sum f f^T.
        size: of the products <f_i, f_j>, about |f|^2; by default d.
        c, sink: in place of the best ones.
        dtype: that the model will have, for the choice of c.
    """
    require_sizes(d=d, n=n, loops=loops, outputs=outputs)
    features = d if representation is None else representation.outputs
    chosen = precision(form, float(features) if size is None else size, dtype, c=c, sink=sink)
    decay = require_decay(step_size, penalty)
    inner = max([d, *(len(w) for w in (representation.weights if representation else ()))])
    layout = Layout(
        x=d,
        y=outputs,
        **({"feature": inner} if representation else {}),
        residual=outputs,
        **({"label": outputs} if penalty else {}),
        position=2 * n + 1,
    )
    rows = "feature" if representation else "x"
    before = [] if representation is None else network_layers(representation, "x", rows, inner)
    copies = _copies(n, rows, mirrored=form in MIRRORED, label=bool(penalty))
    before.append(Layer(copies))
    step = bilinear(
        "residual -= step/n sum_i residual_i <f_i, f>",
        [Match(rows, rows, 1.0)],
        [Move("residual", "residual", -step_size / (1 - decay) * chosen.factor)],
        c=chosen.c,
        also=[Match("position", "position", listening(n, chosen.sink))],
        scheme=chosen.scheme,
    )
    # Attention has added its update; (1 - decay) (r + u / (1 - decay)) - decay y is what is wanted,
    # since A f = r - label, label being the first residual -y.
    shrink = identity({"residual": 1.0, "label": -1.0}, {"residual": -decay}) if penalty else []
    entry = torch.eye(d + outputs, dtype=torch.float64)
    read_in = {"x": entry[:d], "y": entry[d:]}
    # The residual of a y token is the mirror image of -y.
    mirrored = ("residual", *(["label"] if penalty else [])) if form in MIRRORED else ()
    read_in |= dict.fromkeys(mirrored, entry[d:])
    layers = len(representation.weights) if representation else 0
    return Program(
        "representation" if representation else "gradient descent",
        "AlgoFormer 2024, Theorem 3.1" if representation else "AlgoFormer 2024, Lemma A.2",
        layout,
        read_in,
        "position",
        2 * n + 1,
        before,
        [Layer(step, shrink, "residual -= step penalty A f" if penalty else "")],
        [],
        {"residual": torch.eye(outputs, dtype=torch.float64)},
        loops,
        chosen.error,
        stated=Counts((layers + 1, 2), (1, 2), (1, 1)),
        from_end=True,
        notes=[f"c = {chosen.c:.3g}" + (f", C = {chosen.sink:g}" if chosen.sink else "")],
    )


def listening(n: int, sink: float = 0.0) -> Tensor:
    """[2n + 1, 2n + 1]: nobody listens to the query; y tokens are sinks of logit C."""
    logits = torch.zeros(2 * n + 1, 2 * n + 1, dtype=torch.float64)
    logits[:, 1::2] = sink
    logits[:, -1] = -MASKED
    return logits


def partners(n: int, query: int) -> list[int]:
    """x_i listens to y_i, y_i to x_i, and the query to this token."""
    return [i + 1 if i % 2 == 0 else i - 1 for i in range(2 * n)] + [query]


def _copies(n: int, rows: str, *, mirrored: bool, label: bool) -> list[Head]:
    """x_i gets -y_i as its residual and, if mirrored, y_i gets -f_i.

    The query must get neither: it listens to itself where labels are moved, and to the last y token
    where covariates are.
    """
    targets = ["residual", *(["label"] if label else [])]
    labels = copying(
        "residual -= y of the partner token",
        "position",
        partners(n, 2 * n),
        [Move("y", target, -1.0) for target in targets],
    )
    if not mirrored:
        return [labels]
    covariates = copying(
        f"{rows} -= {rows} of the partner token",
        "position",
        partners(n, 2 * n - 1),
        [Move(rows, rows, -1.0)],
    )
    return [labels, covariates]


def network_layers(network: LeakyNetwork, source: str, target: str, inner: int) -> list[Layer]:
    """One layer for each layer of the network, by feed-forward networks alone.

    The first writes max(W u, slope W u) of the source rows to the target rows, which are 0 until
    then; every other one replaces what stands there: target += max(W t, slope W t) - t. There are
    no biases, so that rows that are 0 stay 0.
    """
    made = []
    for number, w in enumerate(network.weights):
        rows = source if number == 0 else target
        wide = torch.zeros(inner, inner if number else w.shape[1], dtype=torch.float64)
        wide[: len(w), : w.shape[1]] = w
        units = leaky({rows: wide}, {target: 1.0}, slope=network.slope)
        if number:
            units += identity({target: 1.0}, {target: -1.0})
        made.append(Layer((), units, f"layer {number + 1} of phi, {rows} to {target}"))
    return made


def require_sizes(**sizes: int) -> None:
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def require_decay(step_size: float, penalty: float) -> float:
    """step_size times penalty, which must leave something of A."""
    if not 0 < step_size < math.inf:
        raise ValueError(f"step_size must be positive and finite, got {step_size}")
    if not 0 <= penalty < math.inf:
        raise ValueError(f"penalty must be finite and at least 0, got {penalty}")
    if step_size * penalty >= 1:
        raise ValueError(
            f"step_size times penalty must be below 1, got {step_size} times {penalty}"
        )
    return step_size * penalty
