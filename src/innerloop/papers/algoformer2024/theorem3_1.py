"""Lemmas A.1 and A.2, Theorem 3.1 and its remark: gradient descent, with a representation."""

import math

import torch
from torch import Tensor

from innerloop import compiled
from innerloop.papers.algoformer2024.settings import (
    SOFTMAX,
    answer,
    descent,
    described,
    largest,
    linear_prompts,
    meets_counts,
    read_last,
)
from innerloop.papers.common import generator, normal
from innerloop.papers.quantity import at_least, at_most, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.tasks import LeakyNetwork

D, N, STEP = 4, 12, 0.3


def enough_dimensions(count: int) -> int:
    """D = 8 log(N^2 / 0.001): then no two of N sign vectors agree in 3/4 of their D places, but
    once in a thousand times, since a pair does with probability e^{-D/8} at most (Hoeffding)."""
    return math.ceil(8 * math.log(count**2 / 1e-3))


@claim(
    "algoformer2024/lemmaA.1",
    "N vectors of dimension O(log N) are further from each other than any given eps",
    source="Lemma A.1",
    formula=r"p_i^\top p_i > p_i^\top p_j + \epsilon \quad \text{for all } i \neq j,\qquad"
    r" \dim p = \mathcal{O}(\log N)",
)
def quasi_orthogonal(scale: Scale) -> Verdict:
    """Random signs with |p|^2 = 2 eps: the gap is eps if no two agree in 3/4 of their places."""
    eps = 1.0
    sizes = scale.pick(smoke=(64, 512), quick=(64, 512, 4096), paper=(64, 512, 4096))

    def gap(case: tuple[int, int]) -> float:
        count, dimension = case
        signs = normal(0, count, dimension).sign() * (2 * eps / dimension) ** 0.5
        products = signs @ signs.mT
        products.fill_diagonal_(-math.inf)
        return 2 * eps - products.max().item()

    enough = {f"N = {n}": (n, enough_dimensions(n)) for n in sizes}
    return Verdict(
        checks(
            "smallest gap p_i.p_i - p_i.p_j",
            at_least(eps, "the inequality itself, with eps = 1"),
            enough,
            unlike={f"N = {sizes[-1]} in 16 dimensions": (sizes[-1], 16)},
            measure=gap,
        ),
        settings={"dimensions": [d for _, d in enough.values()]},
        remarks=[
            "The scale of the vectors is free, so that any eps is as good as another.",
            "Our constructions take one-hot positions and logits of -1000: copies are then exact.",
        ],
    )


@claim(
    "algoformer2024/lemmaA.2",
    "One layer with two heads is one step of gradient descent for regression with many outputs",
    source="Lemma A.2",
    formula=r"A_{k+1} = A_k - \eta\, \frac{\partial L}{\partial A}(A_k),\qquad"
    r" L(A) = \frac{1}{2N} \sum_{j=1}^{N} \|A x_j - y_j\|_2^2",
)
def one_step(scale: Scale) -> Verdict:
    outputs, batch = 2, 8
    x, y = normal(0, batch, N + 1, D), normal(1, batch, N, outputs)
    tokens = torch.zeros(batch, 2 * N + 1, D + outputs, dtype=torch.float64)
    tokens[:, ::2, :D], tokens[:, 1::2, D:] = x, y

    def prediction(form: compiled.Form, loops: int = 1, step: float = STEP) -> Tensor:
        program = compiled.gradient_descent(
            D, N, loops=loops, step_size=step, outputs=outputs, form=form
        )
        meets_counts(program)
        return program.model()(read_last(tokens, outputs))[:, 0]

    def error(case: tuple[compiled.Form, int, float]) -> float:
        wanted = descent(x[:, :N], y, x[:, N], case[1], STEP)
        return largest(prediction(*case) - wanted)

    cases: dict[str, tuple[compiled.Form, int, float]] = {
        "mirrored tokens, one step": ("mirrored", 1, STEP),
        "mirrored tokens, ten steps": ("mirrored", 10, STEP),
        "sinks, heads c and -c": ("sinks", 1, STEP),
    }
    printed: dict[str, tuple[compiled.Form, int, float]] = {"heads c and 0": ("printed", 1, STEP)}
    near: dict[str, tuple[compiled.Form, int, float]] = {
        "a step 0.1% longer": ("mirrored", 1, 1.001 * STEP)
    }
    name = "largest difference of predictions from explicit descent"
    loose = at_most(
        1e-5,
        "the printed heads c and 0 have a Taylor error c z / 2 beside the rounding 4e-15 / c: 1e-7 "
        "of the values at the best c, summed over 12 examples",
    )
    return Verdict(
        checks(name, SOFTMAX, cases, unlike=near, measure=error)
        + checks(name, loose, printed, unlike=near, measure=error),
        settings={"d": D, "outputs": outputs, "examples": N, "prompts": batch, "step": STEP},
        remarks=[
            "Arbitrarily close is a statement about exact arithmetic: see accuracy.",
            "The printed output drops the row x_i / N, which the next loop needs.",
        ],
    )


@claim(
    "algoformer2024/theorem3.1",
    "An AlgoFormer computes the representation and descends on it, with L + 1, 1 and 1 layers",
    source="Theorem 3.1, section 3.1",
    formula=r"\min_A \frac{1}{2N} \sum_{i=1}^{N} \|A \Phi^*(x_i) - y_i\|_2^2",
)
def representation(scale: Scale) -> Verdict:
    steps = scale.pick(smoke=(1, 100), quick=(1, 100, 1000), paper=(1, 100, 1000))
    phi = LeakyNetwork.drawn(D, 3, orthogonal=True, slope=0.5, generator=generator(2))
    prompt = linear_prompts(D, N, seed=3)
    features, query = phi(prompt.x), phi(prompt.x_query[:, 0])
    truth = normal(4, D, 1)
    y = features @ truth
    step = 1 / torch.linalg.eigvalsh(features.mT @ features / N)[:, -1].max().item()
    prompt = type(prompt)(prompt.x, y.squeeze(-1), prompt.x_query, prompt.y_query)

    def error(case: tuple[int, float]) -> float:
        loops, longer = case
        program = compiled.gradient_descent(
            D, N, loops=loops, step_size=longer * step, representation=phi
        )
        meets_counts(program)
        return largest(answer(program, prompt) - descent(features, y, query, loops, step))

    program = compiled.gradient_descent(D, N, loops=1, step_size=step, representation=phi)
    left = largest(descent(features, y, query, steps[-1], step) - query @ truth)
    return Verdict(
        checks(
            "largest difference of predictions from explicit descent",
            SOFTMAX,
            {f"T = {t}": (t, 1.0) for t in steps},
            unlike={"T = 1, a step 0.1% longer": (1, 1.001)},
            measure=error,
        ),
        settings={"d": D, "examples": N, "layers of phi": 3, "step": round(step, 4)},
        remarks=[
            meets_counts(program),
            f"A Phi(x) itself is the limit: {steps[-1]} steps are {left:.1g} away from it.",
            "The statement has 2N + 1 tokens, its proof 2N + 2; 2N + 1 are enough, read at the "
            "query.",
        ],
    )


@claim(
    "algoformer2024/theorem3.1-ridge",
    "The loop can also descend on ridge regression",
    source="Remark to Theorem 3.1, section 4",
    formula=r"A_{k+1} = A_k - \eta \left(\frac{\partial L}{\partial A}(A_k) + \lambda A_k\right)",
)
def ridge(scale: Scale) -> Verdict:
    prompt = linear_prompts(D, N, 0.5, seed=5)

    def error(case: tuple[int, float]) -> float:
        loops, penalty = case
        program = compiled.gradient_descent(D, N, loops=loops, step_size=STEP, penalty=penalty)
        meets_counts(program)
        return largest(answer(program, prompt) - described(prompt, loops, STEP, 0.3))

    return Verdict(
        checks(
            "largest difference of predictions from explicit descent with a penalty of 0.3",
            SOFTMAX,
            {"T = 1": (1, 0.3), "T = 50": (50, 0.3)},
            unlike={"a penalty of 0.303": (50, 0.303)},
            measure=error,
        ),
        settings={"d": D, "examples": N, "noise_std": 0.5, "step": STEP},
        remarks=[
            "The paper gives no construction; ours is one layer with two heads: attention takes a "
            "step of eta / (1 - eta lambda), and the feed-forward network shrinks."
        ],
    )
