"""What several claims of the paper share: its delta, its weights, and exact averages over contexts.

Losses here are exact. The integrands are polynomials in the sample covariance S, so that the
printed formulas and the transformer's own forward pass are evaluated at the nodes of a quadrature
that integrates them without error.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from innerloop import theory
from innerloop.models import GATMIRY
from innerloop.papers.common import DTYPE, generator
from innerloop.prompt import Prompt
from innerloop.tasks import LinearRegression

BOUND = "the claim itself: no more than the bound allows"


def accuracy(loops: int, n: int, d: int) -> float:
    """The paper's delta = (8 L d / sqrt n)^{1/(2L)} (section 3.5)."""
    return (8 * loops * d / math.sqrt(n)) ** (1 / (2 * loops))


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=DTYPE)


def symmetric(matrices: Tensor) -> Tensor:
    return (matrices + matrices.mT) / 2


def paper_weights(
    a: Float[Tensor, "layers d d"], u: Float[Tensor, "layers d"] | None = None
) -> tuple[Tensor, Tensor]:
    """(P, Q) of Eq. 11 in the paper's own sign: P = [[0, 0], [u^T, 1]], Q = [[A, 0], [0, 0]]."""
    q = pad(a, (0, 1, 0, 1))
    p = torch.zeros_like(q)
    p[:, -1, -1] = 1
    if u is not None:
        p[:, -1, :-1] = u
    return p, q


def contexts(
    task: LinearRegression, degree: int
) -> tuple[Float[Tensor, "nodes d d"], Float[Tensor, " nodes"]]:
    """Factors F with S = F F^T, and weights that average polynomials in S of this degree."""
    factors, weights = theory.wishart.wishart_nodes(task.n, task.d, degree)
    return torch.linalg.cholesky(task.covariance) @ factors / task.n**0.5, weights


def transformer_loss(
    a: Float[Tensor, "layers d d"],
    task: LinearRegression,
    u: Float[Tensor, "layers d"] | None = None,
) -> float:
    """E (TF(Z_0) - y_q)^2 of the forward pass (3) and (4) itself, exactly.

    The model sees a context only through S and the labels, so d examples with the right S stand for
    n. Its error is a bilinear form in (w, x_q) plus, with shifts u, a linear one in x_q: the mean
    square over Gaussians is the sum of squares over the columns of a root of each covariance.
    """
    factors, weights = contexts(task, 2 * len(a))
    x = task.d**0.5 * factors.mT
    p, q = paper_weights(a, u)

    def error(w: Tensor, query: Tensor) -> Tensor:
        batch = len(x)
        prompt = Prompt(x, x @ w, query.expand(1, 1, -1), (w @ query).expand(batch, 1))
        return (GATMIRY.predict(p, q, prompt) - prompt.y_query)[:, 0]

    total = torch.zeros(len(x), dtype=DTYPE)
    for query in torch.linalg.cholesky(task.covariance).mT:
        constant = error(torch.zeros_like(query), query)
        total += constant.square()
        for w in torch.linalg.cholesky(task.prior).mT:
            total += (error(w, query) - constant).square()
    return (weights * total).sum().item()
