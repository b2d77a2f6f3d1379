"""The algorithms of the statements as their formulas stand, and how far a model is from them."""

import torch
from torch import Tensor

from innerloop.compiled import Program
from innerloop.models import InContext
from innerloop.papers.common import generator
from innerloop.papers.quantity import at_most
from innerloop.prompt import Prompt
from innerloop.sequence import TokenSequence
from innerloop.tasks import LinearRegression

SOFTMAX = at_most(
    1e-7,
    "float64 computes exp(c z - C) with an error of about 4e-15, which the values multiply by 1/c; "
    "with (c z)^2 / 6 for the Taylor series, 3e-10 is left of a step at the best c (accuracy.py), "
    "and errors of a hundred steps add up to less than this",
)
EXACT = at_most(1e-12, "float64: copies and gates are exact but for a few roundings")


def largest(difference: Tensor) -> float:
    return difference.detach().abs().max().item()


def linear_prompts(
    d: int, n: int, noise_std: float = 0.0, prompts: int = 16, seed: int = 0
) -> Prompt:
    task = LinearRegression.isotropic(d, n, noise_std)
    return task.sample(prompts, generator=generator(seed))


@torch.no_grad()
def answer(program: Program, prompt: Prompt) -> Tensor:
    return InContext(program.model())(prompt)


def descent(
    f: Tensor, y: Tensor, f_query: Tensor, steps: int, step: float, penalty: float = 0.0
) -> Tensor:
    """A_k f_query for A <- A - step dL/dA, A_0 = 0, L = (1/2n) sum |A f - y|^2 + (penalty/2) |A|^2.

    f [batch, n, k], y [batch, n, outputs], f_query [batch, k].
    """
    a = f.new_zeros(len(f), y.shape[-1], f.shape[-1])
    for _ in range(steps):
        a = a - step * ((f @ a.mT - y).mT @ f / f.shape[1] + penalty * a)
    return (a @ f_query.unsqueeze(-1)).squeeze(-1)


def described(prompt: Prompt, steps: int, step: float, penalty: float = 0.0) -> Tensor:
    """The same for a prompt with one query."""
    return descent(prompt.x, prompt.y.unsqueeze(-1), prompt.x_query[:, 0], steps, step, penalty)


def newton_matrices(s: Tensor, alpha: float, steps: int, doubled: float = 2.0) -> Tensor:
    """M_k of Eq. 4: M_0 = alpha S, M <- 2M - MSM; `doubled` is the 2."""
    m = alpha * s
    for _ in range(steps):
        m = doubled * m - m @ s @ m
    return m


def newton_prediction(prompt: Prompt, alpha: float, steps: int) -> Tensor:
    """<M_k X^T y, x_q> with S = X^T X, as printed; alpha is ours, n^2 times that of Eq. 4."""
    if prompt.n == 0:
        return torch.zeros_like(prompt.y_query)
    m = newton_matrices(prompt.x.mT @ prompt.x, alpha / prompt.n**2, steps)
    w = m @ prompt.x.mT @ prompt.y.unsqueeze(-1)
    return (prompt.x_query @ w).squeeze(-1)


def read_last(tokens: Tensor, outputs: int) -> TokenSequence:
    """The tokens, asked about what follows the last."""
    targets = tokens.new_zeros(len(tokens), 1, outputs)
    return TokenSequence(tokens, torch.tensor([tokens.shape[1] - 1]), targets)


@torch.no_grad()
def rows_after(program: Program, sequence: TokenSequence, layer: int, rows: str) -> Tensor:
    """These rows of all tokens after so many layers, [batch, length, rows]."""
    return program.model().trace(sequence).residuals[layer][..., program.layout.place(rows)]


def meets_counts(program: Program) -> str:
    """A remark on layers and heads; a model that needs more than stated is a defect of ours."""
    assert program.stated is not None
    assert program.counts.at_most(program.stated), f"{program.counts} above {program.stated}"
    return f"Layers x heads: {program.counts}; stated: {program.stated}."
