"""What the looped forward pass computes: Proposition 3.1 and Theorem A.1 of Gatmiry et al. (2024).

The paper's A stands in Q itself, so that the step on the prompt is preconditioned by A^T; the paper
has symmetric A in mind, the identities need no symmetry. The sign lives in `models.conventions`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.algorithms import GradientDescent
from innerloop.models import GATMIRY
from innerloop.papers.common import ALGEBRA, DTYPE, generator
from innerloop.papers.gatmiry2024.settings import normal, paper_weights
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Correction, Scale, Verdict
from innerloop.prompt import Prompt
from innerloop.tasks import LinearRegression

D, N, LOOPS = 4, 9, 3
SEEDS = range(5)
SETTINGS = {"d": D, "n": N, "prompts": 64, "seeds": "0 to 4"}


def relative(difference: Tensor, reference: Tensor) -> float:
    return (difference.abs().max() / reference.abs().max()).item()


@claim(
    "gatmiry2024/proposition3.1",
    "A looped transformer with weights (5) takes one step of gradient descent, preconditioned by "
    "A, in every loop",
    source="Proposition 3.1, Eq. 5",
    formula=r"\mathrm{TF}_L(Z^{(0)}; Q, P) = w_L^\top x_q,\qquad w_{t+1} = w_t - \tfrac{1}{n} A "
    r"X (X^\top w_t - y),\quad w_0 = 0",
)
def loops_are_gradient_steps(scale: Scale) -> Verdict:
    errors, controls = [], []
    for seed in SEEDS:
        prompt = LinearRegression.isotropic(D, N).sample(64, generator=generator(seed))
        a = 0.3 * normal(seed, D, D)
        p, q = paper_weights(a.expand(LOOPS, D, D))
        transformer = GATMIRY.predict(p, q, prompt)
        descent = GradientDescent.repeated(a.mT, LOOPS)(prompt)
        doubled = GradientDescent.repeated(2 * a.mT, LOOPS)(prompt)
        errors.append(relative(transformer - descent, descent))
        controls.append(relative(transformer - doubled, descent))
    return Verdict(
        [
            Check(
                "largest relative difference of predictions",
                max(errors),
                1e-12,
                min(controls),
                ALGEBRA,
                "steps of twice the size, which are those on |X^T w - y|^2 with step size 1/n",
            )
        ],
        correction=Correction(
            r"\begin{aligned} & \ell_2^2(w) = \|X^\top w^* - y\|^2, \\ & \nabla_w \ell_2^2(0) = X "
            r"y, \\ & w_1 = -\tfrac{1}{n} A \nabla_w \ell_2^2(0) \end{aligned}",
            r"\begin{aligned} & R(w) = \tfrac{1}{2n} \|X^\top w - y\|^2, \\ & \nabla R(0) = "
            r"-\tfrac{1}{n} X y, \\ & w_1 = -A \nabla R(0) = \tfrac{1}{n} A X y \end{aligned}",
            "The proposition holds; three details of its proof do not. The objective is written "
            "with w* where w is meant, its gradient at 0 is -2 X y and not X y, and with the "
            "gradient as printed w_1 would be -(1/n) A X y, so that the labels would grow in "
            "(9). The objective with the factor 1/(2n) makes every line right.",
        ),
        settings={**SETTINGS, "loops": LOOPS, "A": "dense, not symmetric: descent uses A^T"},
    )


def stated_labels(
    a: Tensor, u: Tensor, prompt: Prompt, w: Tensor, sign: int, *, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    """Eq. 12 and 13 after all layers: y^(t) [batch, n] and y_q^(t) [batch].

    `sign` is that of the u-terms in Eq. 12; Eq. 13 has the opposite one, as its y_q^(t) is minus
    the entry. `reverse` multiplies the layers in the wrong order.
    """
    s = prompt.x.mT @ prompt.x / prompt.n
    identity = torch.eye(prompt.d, dtype=DTYPE)
    order = list(range(len(a)))[:: -1 if reverse else 1]
    left, shifts = w.unsqueeze(1), torch.zeros_like(w).unsqueeze(1)  # rows, [batch, 1, d]
    for i in order:
        factor = identity - s @ a[i]
        left, shifts = left @ factor, shifts @ factor + u[i : i + 1] @ s @ a[i]
    row = (left + sign * shifts).squeeze(1)
    labels = torch.einsum("bd,bnd->bn", row, prompt.x)
    return labels, prompt.y_query[:, 0] - (row * prompt.x_query[:, 0]).sum(-1)


def label_gap(seed: int, sign: int, *, shifted: bool = True, reverse: bool = False) -> float:
    """Of Eq. 12 and 13 from the label row of the forward pass, relative; the larger one."""
    w, x = normal(seed, 64, D), normal(seed + 100, 64, N + 1, D)
    y = torch.einsum("bd,bnd->bn", w, x)
    prompt = Prompt(x[:, :-1], y[:, :-1], x[:, -1:], y[:, -1:])
    a, u = 0.3 * normal(seed + 200, LOOPS, D, D), 0.5 * shifted * normal(seed + 300, LOOPS, D)
    row = GATMIRY.layers(*paper_weights(a, u), prompt.token_matrix())[:, -1]
    labels, query = stated_labels(a, u, prompt, w, sign, reverse=reverse)
    return max(relative(labels - row[:, :-1], row[:, :-1]), relative(query + row[:, -1], query))


@claim(
    "gatmiry2024/theoremA.1",
    "The labels after t layers, with different weights (A, u) in every layer, in closed form",
    source="Theorem A.1, Eq. 12 and 13",
    formula=r"y_q^{(t)} = y_q - w^{*\top} \prod_{i=0}^{t-1} (I - \Sigma A^{(i)}) x_q - "
    r"\sum_{i=0}^{t-1} u^{(i)\top} \Sigma A^{(i)} \prod_{j=i+1}^{t-1} (I - \Sigma A^{(j)}) x_q",
)
def labels_after_layers(scale: Scale) -> Verdict:
    printed = max(label_gap(seed, +1) for seed in SEEDS)
    corrected = max(label_gap(seed, -1) for seed in SEEDS)
    unshifted = max(label_gap(seed, +1, shifted=False) for seed in SEEDS)
    quantity = "largest relative difference from the label row of the forward pass"
    control = "the layers multiplied in reverse order"
    return Verdict(
        printed=[
            Check(
                f"{quantity}, Eq. 12 and 13 as printed",
                printed,
                1e-12,
                min(label_gap(seed, +1, reverse=True) for seed in SEEDS),
                ALGEBRA,
                control,
            )
        ],
        corrected=[
            Check(
                f"{quantity}, with the opposite sign of the terms in u",
                corrected,
                1e-12,
                min(label_gap(seed, -1, reverse=True) for seed in SEEDS),
                ALGEBRA,
                control,
            )
        ],
        correction=Correction(
            r"\begin{aligned} & y_q^{(t)} = y_q - w^{*\top} \cdots x_q \\ & - \sum_i u^{(i)\top} "
            r"\Sigma A^{(i)} \prod_{j>i} (I - \Sigma A^{(j)}) x_q \end{aligned}",
            r"\begin{aligned} & y_q^{(t)} = y_q - w^{*\top} \cdots x_q \\ & + \sum_i u^{(i)\top} "
            r"\Sigma A^{(i)} \prod_{j>i} (I - \Sigma A^{(j)}) x_q \end{aligned}",
            "The terms in u have the wrong sign, in (12) and in (13). By (3) a layer makes of the "
            "label row v^T X the row v^T X - (u + v)^T Sigma A X, so that v^T becomes "
            "v^T (I - Sigma A) - u^T Sigma A: every u enters with a minus, and with a plus in "
            "y_q^(t), which is minus the query's entry. In the proof the update for y^(t+1) leaves "
            f"u out. The printed form is off by {printed:.2f} of the largest label, the corrected "
            "one by "
            f"{corrected:.0e}; without u both agree with the model ({unshifted:.0e}). "
            "The loss does not change, because w* is symmetric about 0. "
            "Sigma here is (1/n) X X^T; the proof writes X X^T = Sigma.",
        ),
        settings={**SETTINGS, "layers": LOOPS, "A, u": "dense, different in every layer"},
    )
