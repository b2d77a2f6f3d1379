"""The labels after t layers: Theorem A.1 of Gatmiry et al. (2024)."""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.models import GATMIRY
from innerloop.papers.common import identity, normal, relative
from innerloop.papers.gatmiry2024.settings import against_last, paper_weights
from innerloop.papers.quantity import ROUNDING, Quantity
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.prompt import Prompt

D, N, LAYERS = 4, 9, 3


def stated_labels(
    a: Tensor, u: Tensor, prompt: Prompt, w: Tensor, sign: int
) -> tuple[Tensor, Tensor]:
    """Eq. 12 and 13 after all layers: y^(t) [batch, n] and y_q^(t) [batch].

    `sign` is that of the terms in u of Eq. 12, printed as +1; in Eq. 13 it is the opposite one.
    """
    s = prompt.x.mT @ prompt.x / prompt.n
    factors = [identity(D) - s @ a_layer for a_layer in a]
    left, shifts = w.unsqueeze(1), torch.zeros_like(w).unsqueeze(1)  # rows, [batch, 1, d]
    for a_layer, u_layer, factor in zip(a, u, factors, strict=True):
        left, shifts = left @ factor, shifts @ factor + u_layer[None] @ s @ a_layer
    row = (left + sign * shifts).squeeze(1)
    labels = torch.einsum("bd,bnd->bn", row, prompt.x)
    return labels, prompt.y_query[:, 0] - (row * prompt.x_query[:, 0]).sum(-1)


def label_gap(sign: int, *, reverse: bool = False, shifted: bool = True) -> float:
    """Of Eq. 12 and 13 from the label row of the forward pass, relative; the largest of 5 seeds."""
    worst = 0.0
    for seed in range(5):
        w, x = normal(seed, 64, D), normal(seed + 100, 64, N + 1, D)
        y = torch.einsum("bd,bnd->bn", w, x)
        prompt = Prompt(x[:, :-1], y[:, :-1], x[:, -1:], y[:, -1:])
        a, u = 0.3 * normal(seed + 200, LAYERS, D, D), 0.5 * shifted * normal(seed + 300, LAYERS, D)
        row = GATMIRY.layers(*paper_weights(a, u), prompt.token_matrix())[:, -1]
        if reverse:
            a, u = a.flip(0), u.flip(0)
        labels, query = stated_labels(a, u, prompt, w, sign)
        worst = max(worst, relative(labels, row[:, :-1]), relative(-query, row[:, -1]))
    return worst


@claim(
    "gatmiry2024/theoremA.1",
    "The labels after t layers, with different weights (A, u) in every layer, in closed form",
    source="Theorem A.1, Eq. 12 and 13",
    formula=r"\begin{aligned} & y^{(t)\top} = w^{*\top} \prod_{i=0}^{t-1} (I - \Sigma A^{(i)}) X + "
    r"\sum_{i=0}^{t-1} u^{(i)\top} \Sigma A^{(i)} \prod_{j=i+1}^{t-1} (I - \Sigma A^{(j)}) X, \\ & "
    r"y_q^{(t)} = y_q - w^{*\top} \prod_{i=0}^{t-1} (I - \Sigma A^{(i)}) x_q - \sum_{i=0}^{t-1} "
    r"u^{(i)\top} \Sigma A^{(i)} \prod_{j=i+1}^{t-1} (I - \Sigma A^{(j)}) x_q \end{aligned}",
)
def labels_after_layers(scale: Scale) -> Verdict:
    gap = Quantity[dict](
        "largest relative difference of Eq. 12 and 13 from the label row of the forward pass",
        lambda case: label_gap(**case),
        ROUNDING,
    ).of(
        {
            "as printed": {"sign": +1},
            "opposite sign of u": {"sign": -1},
            "without u": {"sign": +1, "shifted": False},
            "opposite sign of u, layers in reverse order": {"sign": -1, "reverse": True},
        }
    )
    printed, *corrected = against_last(gap)
    return Verdict(
        [printed],
        corrected,
        Correction(
            r"\begin{aligned} & y_q^{(t)} = y_q - w^{*\top} \cdots x_q \\ & - \sum_i u^{(i)\top} "
            r"\Sigma A^{(i)} \prod_{j>i} (I - \Sigma A^{(j)}) x_q \end{aligned}",
            r"\begin{aligned} & y_q^{(t)} = y_q - w^{*\top} \cdots x_q \\ & + \sum_i u^{(i)\top} "
            r"\Sigma A^{(i)} \prod_{j>i} (I - \Sigma A^{(j)}) x_q \end{aligned}",
            "The terms in u have the wrong sign, in (12) and in (13). By (3) a layer makes of the "
            "label row v^T X the row v^T X - (u + v)^T Sigma A X, so that v^T becomes "
            "v^T (I - Sigma A) - u^T Sigma A; y_q^(t) is minus the query's entry. In the proof the "
            "update for y^(t+1) leaves u out. The loss does not change, because w* is symmetric "
            "about 0. Sigma is (1/n) X X^T; the proof writes X X^T = Sigma.",
            Kind.STATEMENT,
            f"The printed form is off by {gap['as printed']:.2f} of the largest label, the "
            f"corrected one by {gap['opposite sign of u']:.0e}; without u they agree.",
        ),
        settings={
            "d, n, layers": f"{D}, {N}, {LAYERS}",
            "prompts": 64,
            "seeds": "0 to 4",
            "A, u": "dense, A not symmetric, different in every layer",
        },
    )
