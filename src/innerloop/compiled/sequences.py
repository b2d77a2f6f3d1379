"""Autoregression and chains of thought: Theorems 3.2 and 3.3 of AlgoFormer (Gao et al. 2024).

Both read a sequence of any length up to the longest, and predict what follows its last token. The
last token t is the one without a next: the head that copies the next token and its number gives it
the mean number of all tokens, t/2. It is the query and, since what it would add to its residual is
kept in rows of its own ("answer"), also the sink: value 0, logit C. So no empty token need be
appended, which the printed layouts lack.

    A <- A - (step/n) sum_i (A f_i - y_i) f_i^T

over the examples i in the sequence, with n those of the longest one: with fewer examples, steps are
shorter by that ratio, which is stable wherever the longest is.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from innerloop.compiled.accuracy import Precision, precision
from innerloop.compiled.gradient_descent import network_layers, require_decay, require_sizes
from innerloop.compiled.layout import Layout
from innerloop.compiled.primitives import MASKED, bilinear, copying, identity, leaky
from innerloop.compiled.program import Counts, Head, Layer, Match, Move, Program, Units
from innerloop.tasks.representation import LeakyNetwork

LONG_TAILS = 5.0
"""sqrt(E |s|^6 / E |s|^2) over d for the tokens s of random networks, about: their few large ones
have the Taylor error c^2 z^3."""
LAST = {"last": torch.ones(1, 1, dtype=torch.float64)}


def autoregression(
    representation: LeakyNetwork,
    n: int,
    *,
    loops: int,
    step_size: float,
    size: float | None = None,
    c: float | None = None,
    sink: float | None = None,
    dtype: torch.dtype = torch.float64,
) -> Program:
    """Theorem 3.2: x_{t+1} from A phi(x_{t-q+1}, ..., x_t), A fitted to the points so far.

    Token t holds phi of its own window and the next token as its label: q - 1 heads copy the window
    and one copies the label, q in all (Lemma A.3, without codes for negative times: tokens whose
    window is not full are closed by a gate, since what they copied is a mean of all tokens).
    """
    d, q = representation.outputs, representation.d // representation.outputs
    require_sizes(n=n, loops=loops, q=q)
    require_decay(step_size, 0.0)
    if representation.d != q * d:
        raise ValueError(
            f"representation must take q points of its {d} outputs, got {representation.d} inputs"
        )
    chosen = precision("sinks", float(d) if size is None else size, dtype, c=c, sink=sink)
    length, inner = q + n - 1, max(d, *(len(w) for w in representation.weights))
    window = {f"back{i}": d for i in range(q - 1, 0, -1)}
    layout = Layout(
        **window, x=d, next=d, number=1, last=1, feature=inner, key=inner, residual=d, update=d,
        answer=d, position=length,
    )  # fmt: skip
    unit = torch.eye(d, dtype=torch.float64)
    layers = len(representation.weights)
    return Program(
        "autoregression",
        "AlgoFormer 2024, Theorem 3.2",
        layout,
        {"x": unit},
        "position",
        length,
        _windows(representation, list(window), length, inner),
        [descent("feature", step_size / n, length, d, chosen)],
        [],
        {"answer": unit},
        loops,
        chosen.error,
        stated=Counts((layers + 2, max(q, 1)), (1, 2), (1, 1)),
        notes=[f"c = {chosen.c:.3g}, C = {chosen.sink:g}"],
    )


def _windows(
    representation: LeakyNetwork, window: list[str], length: int, inner: int
) -> list[Layer]:
    """Every token gets phi of its window, and its label: from one layer more than phi has."""
    d, q = representation.outputs, len(window) + 1
    copies = [
        copying(
            f"{rows} = x of {i} tokens before",
            "position",
            [t - i if t >= i else None for t in range(length)],
            [Move("x", rows, 1.0)],
        )
        for rows, i in zip(window, range(q - 1, 0, -1), strict=True)
    ]
    partial = torch.ones(1, length, dtype=torch.float64)
    partial[:, q - 1 :] = 0  # tokens before the q-th have no full window
    closed = {"position": partial}
    _, *others = network_layers(representation, "x", "feature", inner)  # the first is below
    parts = representation.weights[0].split(d, dim=1)  # of the oldest point first
    wide = {
        rows: torch.nn.functional.pad(part.double(), (0, 0, 0, inner - len(part)))
        for rows, part in zip([*window, "x"], parts, strict=True)
    }
    into = leaky(wide, {"feature": 1.0}, slope=representation.slope, off=closed)
    copy = Layer([*copies, next_token(length)], [*_find_last(length), *into],
                 "last = 1 without a next token; layer 1 of phi, of full windows")  # fmt: skip
    unit, feature = torch.eye(d, dtype=torch.float64), torch.eye(inner, dtype=torch.float64)
    ready = Layer(
        (),
        [
            *leaky({"feature": feature}, {"key": 1.0}, slope=1.0, off=LAST),
            *leaky({"next": unit}, {"residual": -1.0}, slope=1.0, off=LAST | closed),
        ],
        "key = phi and residual = -next, but not at the last token",
    )
    return [copy, *others, ready]


def chain_of_thought(
    d: int,
    n: int,
    layers: int,
    slope: float,
    *,
    loops: int,
    step_size: float,
    size: float | None = None,
    c: float | None = None,
    sink: float | None = None,
    dtype: torch.dtype = torch.float64,
) -> Program:
    """Theorem 3.3: the next step of a chain whose network is seen at work in the n chains before.

    Every token learns the next token and the level of the last one. Those of the same level are the
    examples: f = s, y = the inverse activation of the next token. The paper takes seven layers
    before the loop, this takes two: the second one gates. A plain ReLU has no inverse.

    Args:
        size: of the products <s_i, s_j>; by default that of a random network's tokens.
    """
    require_sizes(d=d, n=n, layers=layers, loops=loops)
    require_decay(step_size, 0.0)
    if not 0 < slope <= 1:
        raise ValueError(
            f"slope must be above 0 and at most 1, got {slope}: the labels are found by inverting "
            "the activation, and a plain ReLU cannot be inverted"
        )
    size = LONG_TAILS * d if size is None else size
    chosen = precision("sinks", size, dtype, c=c, sink=sink)
    length, levels = (n + 1) * (layers + 1) - 1, layers + 1
    layout = Layout(
        x=d, next=d, number=1, last=1, level=levels, other=1, feature=d, key=d, residual=d,
        update=d, answer=d, output=d, position=length,
    )  # fmt: skip
    unit = torch.eye(d, dtype=torch.float64)
    activated = leaky({"answer": unit}, {"output": 1.0}, slope=slope)
    return Program(
        "chain of thought",
        "AlgoFormer 2024, Theorem 3.3",
        layout,
        {"x": unit},
        "position",
        length,
        _level_by_level(d, slope, levels, length),
        [descent("feature", step_size / n, length, d, chosen)],
        [Layer((), activated, "output = activation of the answer")],
        {"output": unit},
        loops,
        chosen.error,
        stated=Counts((7, 2), (1, 2), (1, 1)),
        notes=[f"c = {chosen.c:.3g}, C = {chosen.sink:g}"],
    )


def _level_by_level(d: int, slope: float, levels: int, length: int) -> list[Layer]:
    """Tokens of the last one's level become examples; all others stay empty."""
    own = torch.zeros(levels, length, dtype=torch.float64)
    own[torch.arange(length) % levels, torch.arange(length)] = 1
    everyone_to_the_last = MASKED * torch.arange(length).double().expand(length, -1)
    level = Head(
        "level = that of the last token",
        [Match("position", "position", everyone_to_the_last)],
        [Move("position", "level", own)],
    )
    one, unit = torch.ones(1, length, dtype=torch.float64), torch.eye(d, dtype=torch.float64)
    same = Units({"level": 1.0, "position": own}, {"other": -torch.ones(1, levels)}, bias=-1.0)
    other = [*identity({"position": one}, {"other": 1.0}), same]
    off = {"other": torch.ones(1, 1, dtype=torch.float64)}
    gates = [
        *leaky({"x": unit}, {"feature": 1.0}, slope=1.0, off=off),
        *leaky({"x": unit}, {"key": 1.0}, slope=1.0, off=off | LAST),
        *leaky({"next": unit}, {"residual": -1.0}, slope=1 / slope, off=off | LAST),
    ]
    return [
        Layer(
            [next_token(length), level],
            [*_find_last(length), *other],
            "last = 1 without a next token; other = 1 at other levels",
        ),
        Layer((), gates, "feature, key = s and residual = -inverse(next), of this level"),
    ]


def next_token(length: int) -> Head:
    """next = x of the next token, number = its number; of the last token, means of all."""
    numbers = torch.arange(length, dtype=torch.float64)[None]
    sources = [t + 1 if t + 1 < length else None for t in range(length)]
    moves = [Move("x", "next", 1.0), Move("position", "number", numbers)]
    return copying("next = x and number = t of the next token", "position", sources, moves)


def _find_last(length: int) -> list[Units]:
    """last = 1 - relu(number - t): with a next token number - t is 1, else at most 0."""
    own = torch.arange(length, dtype=torch.float64)[None]
    one = torch.ones(1, length, dtype=torch.float64)
    return [
        *identity({"position": one}, {"last": 1.0}),
        Units({"number": 1.0, "position": -own}, {"last": -1.0}),
    ]


def descent(rows: str, step: float, length: int, outputs: int, chosen: Precision) -> Layer:
    """One step of descent whose sink is the query.

    Attention writes the update to rows of its own; the feed-forward network adds it to the
    residual, and at the last token to the answer, so that the residual of the sink stays 0.
    """
    to_last = torch.full((length, 1), chosen.sink, dtype=torch.float64)
    heads = bilinear(
        "update = -step sum_i residual_i <f_i, f>",
        [Match(rows, "key", 1.0)],
        [Move("residual", "update", -step * chosen.factor)],
        c=chosen.c,
        also=[Match("position", "last", to_last)],
    )
    unit = torch.eye(outputs, dtype=torch.float64)
    writes: Mapping[str, Tensor | float] = {"residual": 1.0, "answer": -1.0}
    units = [
        *leaky({"update": unit}, writes, slope=1.0, off=LAST),
        *identity({"update": 1.0}, {"answer": 1.0, "update": -1.0}),
    ]
    return Layer(heads, units, "residual += update, but answer += update at the last token")
