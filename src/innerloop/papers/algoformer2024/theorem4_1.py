"""Eq. 4, Lemma A.4 and Theorem 4.1: Newton's iteration."""

from dataclasses import replace

import torch
from torch import Tensor

from innerloop import compiled
from innerloop.compiled import Program
from innerloop.compiled.program import Layer, Match
from innerloop.papers.algoformer2024.settings import (
    SOFTMAX,
    answer,
    largest,
    linear_prompts,
    meets_counts,
    newton_matrices,
    newton_prediction,
    rows_after,
)
from innerloop.papers.quantity import ROUNDING, at_most, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict

D, N, ALPHA = 4, 16, 0.05
CONVERGED = at_most(1e-8, "(1 - 1.9)^(2^k) and (1 - 1.9 / 16)^(2^k) are below 1e-11 at k = 8")


@claim(
    "algoformer2024/eq4",
    "Newton's iteration converges for every alpha up to 2 / |S S^T|",
    source="Eq. 4",
    formula=r"M_0 = \alpha S,\; \alpha \in \left(0, \frac{2}{\|S S^\top\|_2}\right],\quad"
    r" M_{k+1} = 2 M_k - M_k S M_k",
)
def interval(scale: Scale) -> Verdict:
    s = torch.diag(torch.tensor([4.0, 1.0], dtype=torch.float64))

    def left(units: float) -> float:
        """|I - M_8 S|, alpha in units of 1 / |S S^T|."""
        return largest(torch.eye(2) - newton_matrices(s, units / 16, 8) @ s)

    def squares(doubled: float) -> float:
        before = torch.eye(2) - newton_matrices(s, 1 / 16, 3) @ s
        m = newton_matrices(s, 1 / 16, 3)
        after = torch.eye(2) - (doubled * m - m @ s @ m) @ s
        return largest(after - before @ before)

    near = {"alpha |S S^T| = 2.1": 2.1}
    name = "|I - M_k S| after k = 8 steps"
    same = checks(
        "|(I - M_{k+1} S) - (I - M_k S)^2|", ROUNDING, {"Eq. 4": 2.0},
        unlike={"1.99 M_k - M_k S M_k": 1.99}, measure=squares,
    )  # fmt: skip
    return Verdict(
        same + checks(name, CONVERGED, {"alpha |S S^T| = 2": 2.0}, unlike=near, measure=left),
        same + checks(name, CONVERGED, {"alpha |S S^T| = 1.9": 1.9}, unlike=near, measure=left),
        Correction(
            r"\alpha \in \left(0, \frac{2}{\|S S^\top\|_2}\right]",
            r"\alpha \in \left(0, \frac{2}{\|S S^\top\|_2}\right)",
            "I - M_k S has the eigenvalues (1 - alpha s^2)^(2^k). At the end of the interval the "
            "largest s gives 1 for ever: M_1 is 0 along it, and stays so.",
            Kind.STATEMENT,
            "S = diag(4, 1), alpha = 2/16: M_0 S = diag(2, 1/8) and M_1 S = diag(0, 15/64); the "
            f"first entry stays 0, and |I - M_8 S| = {left(2.0):.0f}.",
        ),
        settings={"S": "diag(4, 1)"},
    )


@claim(
    "algoformer2024/lemmaA.4",
    "One layer with two heads is one step of Newton's iteration",
    source="Lemma A.4",
    formula=r"M_k x_i \mapsto M_{k+1} x_i = (2 M_k - M_k S M_k) x_i",
)
def one_step(scale: Scale) -> Verdict:
    prompt = linear_prompts(D, N, 0.3)
    program = compiled.newton(D, N, loops=6, alpha=ALPHA)
    rows = prompt.interleave().last()

    def error(case: tuple[int, float]) -> float:
        """Of m at the x tokens after so many loops; layer 0 stands before the loop."""
        loops, doubled = case
        got = rows_after(program, rows, loops, "m")[:, :-1:2]
        before = rows_after(program, rows, loops - 1, "m")[:, :-1:2]
        # M_k S M_k x_i = (1/n) sum_j (M_k x_j) <x_j, M_k x_i>, from what the tokens held.
        product = torch.einsum("bjd,bje,bie->bid", before, prompt.x, before) / N
        return largest(got - (doubled * before - product))

    return Verdict(
        checks(
            "largest difference of any entry of M_{k+1} x_i from Eq. 4, from M_k x_i",
            SOFTMAX,
            {f"k = {k}": (k + 1, 2.0) for k in (0, 2, 5)},
            unlike={"1.999 M_k - M_k S M_k": (1, 1.999)},
            measure=error,
        ),
        settings={"d": D, "examples": N, "alpha of the means": ALPHA},
        remarks=[
            "Attention leaves M_k x - M_k S M_k x, and the update needs 2 M_k x: it writes to rows "
            "of its own, and the feed-forward network adds M_k x minus these."
        ],
    )


@claim(
    "algoformer2024/theorem4.1",
    "An AlgoFormer runs Newton's iteration, with 1, 1 and 2 layers of two heads",
    source="Theorem 4.1 and its proof",
    formula=r"w_T^{Newton} = M_T X^\top y",
)
def newton(scale: Scale) -> Verdict:
    prompt = linear_prompts(D, N, 0.3, seed=1)
    program = compiled.newton(D, N, loops=1, alpha=ALPHA)

    def error(case: tuple[int, bool, float]) -> float:
        loops, masked, alpha = case
        made = compiled.newton(D, N, loops=loops, alpha=alpha)
        got = answer(made if masked else unmasked(made), prompt)
        return largest(got - newton_prediction(prompt, ALPHA, loops))

    steps = scale.pick(smoke=(1, 10, 25), quick=(1, 5, 10, 15, 25), paper=(1, 5, 10, 15, 25))
    name = "largest difference of predictions from the explicit iteration"
    near = {"T = 1, alpha 0.1% larger": (1, True, 1.001 * ALPHA)}
    heard = error((25, False, ALPHA))
    return Verdict(
        checks(name, SOFTMAX, {"T = 25, the test token heard": (25, False, ALPHA)}, unlike=near,
               measure=error),
        checks(name, SOFTMAX, {f"T = {t}": (t, True, ALPHA) for t in steps}, unlike=near,
               measure=error),
        Correction(
            r"W_Q P,\; W_V P \text{ with } x_{test} \text{ in no column}",
            r"\text{no token attends to } x_{test}",
            "W_Q P and W_V P are printed with a zero test column, although the rows they read hold "
            "x_test there: no matrix does that. Linear maps let the test token count as an "
            "example; a logit that masks it does not.",
            Kind.PROOF,
            f"d = {D}, {N} examples: without a mask the prediction is {heard:.2g} off after 25 "
            "steps.",
        ),
        settings={"d": D, "examples": N, "noise_std": 0.3, "alpha of the means": ALPHA},
        remarks=[
            meets_counts(program),
            "alpha must be a weight, the same on all prompts: it is chosen from a bound on |S|.",
            "After propagating y the residual connection leaves 2 y_i at label tokens, printed as "
            "y_i; they are not heard. The remark says that the layer before the loop copies "
            "neighbours, the proof does so after it.",
        ],
    )  # fmt: skip


def unmasked(program: Program) -> Program:
    """The same without the mask on the query: x tokens, and it itself, hear it as an example."""

    def heard(match: Match) -> Match:
        if not match.query == match.key == program.position:
            return match
        assert isinstance(match.by, Tensor)
        pattern = match.by.clone()
        pattern[::2, -1] = 0
        return replace(match, by=pattern)

    def layer(part: Layer) -> Layer:
        products = len(part.heads) == 2  # a copying head has a pattern of its own
        heads = [replace(h, matches=[heard(m) for m in h.matches]) for h in part.heads]
        return replace(part, heads=heads) if products else part

    return replace(
        program,
        before=[layer(part) for part in program.before],
        inside=[layer(part) for part in program.inside],
        after=[layer(part) for part in program.after],
    )
