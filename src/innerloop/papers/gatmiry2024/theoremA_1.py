"""The labels after t layers: Theorem A.1 of Gatmiry et al. (2024)."""

import torch
from torch import Tensor

from innerloop.models import GATMIRY
from innerloop.papers.common import identity, normal, relative
from innerloop.papers.gatmiry2024.settings import paper_weights
from innerloop.papers.quantity import ROUNDING, checks
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
    left, shifts = w.unsqueeze(1), torch.zeros_like(w).unsqueeze(1)  # rows, [batch, 1, d]
    for a_layer, u_layer in zip(a, u, strict=True):
        factor = identity(D) - s @ a_layer
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
    printed, right, without = checks(
        "largest relative difference of Eq. 12 and 13 from the label row of the forward pass",
        ROUNDING,
        {
            "as printed": label_gap(+1),
            "opposite sign of u": label_gap(-1),
            "without u": label_gap(+1, shifted=False),
        },
        unlike={"opposite sign of u, layers in reverse order": label_gap(-1, reverse=True)},
    )
    return Verdict(
        [printed],
        [right, without],
        Correction(
            r"\begin{aligned} & y_q^{(t)} = y_q - w^{*\top} \cdots x_q \\ & - \sum_i u^{(i)\top} "
            r"\Sigma A^{(i)} \prod_{j>i} (I - \Sigma A^{(j)}) x_q \end{aligned}",
            r"\begin{aligned} & y_q^{(t)} = y_q - w^{*\top} \cdots x_q \\ & + \sum_i u^{(i)\top} "
            r"\Sigma A^{(i)} \prod_{j>i} (I - \Sigma A^{(j)}) x_q \end{aligned}",
            "The terms in u have the wrong sign, in (12) and in (13): by (3) a layer turns a label "
            "row v^T X into (v^T (I - Sigma A) - u^T Sigma A) X, and y_q^(t) is minus the query's "
            "entry. In the proof the update for y^(t+1) leaves u out, and X X^T = Sigma stands for "
            "(1/n) X X^T = Sigma. The loss stays, because w* is symmetric about 0.",
            Kind.STATEMENT,
            f"The printed form is off by {printed.measured:.2f} of the largest label, the "
            f"corrected one by {right.measured:.0e}; without u they agree.",
        ),
        settings={"d, n, layers": f"{D}, {N}, {LAYERS}", "prompts": 64, "A": "dense", "seeds": 5},
    )
