"""Lemma A.5 and Theorem 4.2: decoders that descend, and Newton's iteration in a decoder."""

import torch
from torch import Tensor

from innerloop import compiled
from innerloop.compiled import Program
from innerloop.compiled.layout import Layout
from innerloop.compiled.program import Head, Layer, Match, Move
from innerloop.models import InContext
from innerloop.papers.algoformer2024.settings import (
    SOFTMAX,
    described,
    largest,
    linear_prompts,
    meets_counts,
    newton_prediction,
    rows_after,
)
from innerloop.papers.common import normal
from innerloop.papers.quantity import checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.prompt import Prompt
from innerloop.sequence import TokenSequence

D, N, STEP = 4, 10, 0.05


def printed_layer(c: float, sink: float) -> Program:
    """The two heads of the proof of Lemma A.5, on tokens (x, y, x of the pair, w), causal.

    Head 1: query (w, 1), key (c x, C at the second token), value e^C/c x. Head 2: query (1, 1) at x
    tokens, key (c y, C at the first token), value -e^C/c x of the pair.
    """
    length = 2 * N - 1
    layout = Layout(x=D, y=1, pair=D, w=D, gradient=D, position=length)
    every = torch.ones(length, 1, dtype=torch.float64)
    odd = every.clone()
    odd[1::2] = 0

    def sink_at(token: int, asking: Tensor) -> Match:
        at = torch.zeros(1, length, dtype=torch.float64)
        at[:, token] = sink
        return Match("position", "position", asking @ at)

    large = float(torch.tensor(sink, dtype=torch.float64).exp()) / c
    heads = [
        Head(
            "sum_j (w.x_j) x_j", [Match("w", "x", c), sink_at(1, every)],
            [Move("x", "gradient", large)],
        ),
        Head(
            "-sum_j y_j x_j", [Match("position", "y", c * odd), sink_at(0, odd)],
            [Move("pair", "gradient", -large)],
        ),
    ]  # fmt: skip
    entry = torch.eye(3 * D + 1, dtype=torch.float64)
    read_in = {
        "x": entry[:D], "y": entry[D : D + 1], "pair": entry[D + 1 : 2 * D + 1],
        "w": entry[2 * D + 1 :],
    }  # fmt: skip
    unit = {"gradient": torch.eye(D, dtype=torch.float64)}
    return Program(
        "Lemma A.5 as printed", "", layout, read_in, "position", length, [], [Layer(heads)], [],
        unit, 1, 0.0, causal=True,
    )  # fmt: skip


def printed_gradients(prompt: Prompt, w: Tensor) -> Tensor:
    """What the printed layer gives at x_2, ..., x_N; [batch, N - 1, D]."""
    tokens = torch.zeros(len(prompt), 2 * N - 1, 3 * D + 1, dtype=torch.float64)
    tokens[:, ::2, :D], tokens[:, ::2, 2 * D + 1 :] = prompt.x, w
    tokens[:, 1::2, D], tokens[:, 1::2, D + 1 : 2 * D + 1] = prompt.y[:, :-1], prompt.x[:, :-1]
    places = torch.arange(2, 2 * N - 1, 2)
    sequence = TokenSequence(tokens, places, tokens.new_zeros(len(prompt), N - 1, D))
    with torch.no_grad():
        return printed_layer(1e-4, 32.0).model()(sequence)


@claim(
    "algoformer2024/lemmaA.5",
    "One causal layer with two heads is one step of descent on the examples before each token",
    source="Lemma A.5",
    formula=r"w_{k+1}^j = w_k^j - \frac{\eta}{j-1} \sum_{h=1}^{j-1} (w_k^{j\top} x_h - y_h)\, x_h",
)
def causal_step(scale: Scale) -> Verdict:
    prompt = linear_prompts(D, N, 0.3)
    w = normal(7, len(prompt), N, D)

    def sums(w: Tensor) -> Tensor:
        """sum_{h<j} (w^j.x_h - y_h) x_h at j = 2, ..., N."""
        rows = []
        for j in range(1, N):
            x, left = prompt.x[:, :j], prompt.x[:, :j] @ w[:, j].unsqueeze(-1)
            rows.append(((left - prompt.y[:, :j].unsqueeze(-1)) * x).sum(1))
        return torch.stack(rows, dim=1)

    counts = torch.arange(1, N, dtype=torch.float64)[:, None]
    program = compiled.causal_gradient_descent(D, N, loops=4, step_size=STEP)
    sequence = prompt.interleave()

    def ours(case: tuple[int, float]) -> float:
        loops, step = case
        before, after = (
            rows_after(program, sequence, k, "w")[:, :-1:2] for k in (loops - 1, loops)
        )
        return largest(after[:, 1:] - (before[:, 1:] - step * sums(before) / counts))

    printed = STEP * (printed_gradients(prompt, w) - sums(w)) / counts
    without_own = printed - STEP * prompt.x[:, 1:] * 1e4 / counts
    own = (w[:, 1:] * prompt.x[:, 1:]).sum(-1, keepdim=True) * prompt.x[:, 1:]
    without_own = without_own - STEP * own / counts
    name = "largest difference of any entry of w from one explicit step"
    near = {"a step 0.1% longer": ours((1, 1.001 * STEP))}
    return Verdict(
        checks(name, SOFTMAX, {"the printed heads, c = 1e-4": largest(printed)}, unlike=near),
        checks(name, SOFTMAX, {f"k = {k}": ours((k + 1, STEP)) for k in (0, 3)}, unlike=near),
        Correction(
            r"\sum_{j=1}^{i-1} w_k^{i\top} x_j x_j \text{ from head 1}",
            r"\sum_{j=1}^{i} \left(\tfrac{1}{c} + w_k^{i\top} x_j\right) x_j \text{ from head 1}",
            "Causal attention at x_i includes x_i: head 1 adds x_i / c + (w.x_i) x_i, which head 2 "
            "does not cancel. The sink, token 2, is not seen by token 1. The last display sums "
            "residuals of other positions' w. Ours: y_j becomes (x_j, y_j) and x_{j+1} its mirror "
            "image; nobody hears x_1, and softmax itself divides by i - 1.",
            Kind.PROOF,
            f"c = 1e-4: the printed step is {largest(printed):.2g} off; without exactly the two "
            f"terms of x_i, {largest(without_own):.1g}, the Taylor error of heads c and 0.",
        ),
        settings={"d": D, "examples": N, "step": STEP},
        remarks=[
            "1/(i-1) is not defined at i = 1; there w stays where it was.",
            "A product with 1/(i-1) by a ReLU network would be approximate; this one is exact.",
        ],
    )


def curve(program: Program, prompt: Prompt) -> Tensor:
    with torch.no_grad():
        return InContext(program.model()).learning_curve(prompt)


@claim(
    "algoformer2024/theorem4.2",
    "A decoder outputs, at every x_i, the prediction of T steps of descent on the examples before",
    source="Theorem 4.2",
    formula=r"\min_w \frac{1}{2(i-1)} \sum_{j=1}^{i-1} (w^\top x_j - y_j)^2",
)
def decoder(scale: Scale) -> Verdict:
    prompt = linear_prompts(D, N, 0.3, seed=1)

    def error(case: tuple[int, float]) -> float:
        loops, step = case
        program = compiled.causal_gradient_descent(D, N, loops=loops, step_size=step)
        meets_counts(program)
        explicit = [described(prompt.next_example(k), loops, STEP) for k in range(1, N + 1)]
        return largest(curve(program, prompt)[:, 1:] - torch.cat(explicit, dim=1))

    return Verdict(
        checks(
            "largest difference of predictions from explicit descent, at all x_i",
            SOFTMAX,
            {f"T = {t}": (t, STEP) for t in (1, 10, 100)},
            unlike={"T = 10, a step 0.1% longer": (10, 1.001 * STEP)},
            measure=error,
        ),
        settings={"d": D, "examples": N, "noise_std": 0.3, "step": STEP},
        remarks=[
            meets_counts(compiled.causal_gradient_descent(D, N, loops=1, step_size=STEP)),
            "The weights of gradient descent are printed as w^Newton. One layer after the loop is "
            "enough.",
        ],
    )


@claim(
    "algoformer2024/theorem4.2-newton",
    "A decoder can run Newton's iteration at every x_i: two layers in the loop, 2 d^2 heads",
    source="left open after Theorem 4.2",
    ours="proved",
)
def decoder_newton(scale: Scale) -> Verdict:
    d, n, alpha = 3, 9, 0.01
    prompt = linear_prompts(d, n, 0.3, seed=2)

    def error(case: tuple[int, float]) -> float:
        """From d + 1 examples on: with fewer, rounding doubles in every step of any form of it."""
        loops, alpha_made = case
        program = compiled.causal_newton(d, n, loops=loops, alpha=alpha_made)
        parts = [
            newton_prediction(prompt.next_example(k), alpha, loops) for k in range(d + 1, n + 1)
        ]
        return largest(curve(program, prompt)[:, d + 1 :] - torch.cat(parts, dim=1))

    counts = compiled.causal_newton(d, n, loops=1, alpha=alpha).counts
    return Verdict(
        checks(
            "largest difference of predictions from the explicit iteration, at all x_i",
            SOFTMAX,
            {"T = 1": (1, alpha), "T = 12": (12, alpha)},
            unlike={"T = 1, alpha 0.1% larger": (1, 1.001 * alpha)},
            measure=error,
        ),
        settings={"d": d, "examples": n, "noise_std": 0.3, "alpha of the means": alpha},
        remarks=[
            f"Layers x heads: {counts}.",
            "Every position has a matrix M of its own; a value cannot depend on the asking token, "
            "so M S M takes two layers, and two heads for each of its d^2 entries.",
        ],
    )
