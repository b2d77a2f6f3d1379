"""What several claims of the paper share: its delta, its weights, and exact averages over contexts.

A is any d x d matrix, as in section 3.5; the order of symmetric matrices means its symmetric part.
S is the covariance of the sample (the paper's Sigma without a star), Sigma* that of the population,
and *the ray* the set of A = a Sigma*^-1. Losses average polynomials in S, and a quadrature does so
without error; the expansion in words, `theory.linear.tied_risk`, is a second and independent way.
"""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from innerloop import theory
from innerloop.models import GATMIRY
from innerloop.papers.common import DTYPE, identity, rotated, symmetric
from innerloop.papers.quantity import at_most
from innerloop.prompt import Prompt
from innerloop.tasks import LinearRegression

ROTATED = LinearRegression.with_inverse_prior(rotated([1.2, 0.5, 0.3], seed=0), 6)
"""A task without symmetries: d = 3, three variances, rotated axes."""
DESCENT = at_most(1e-8, "descent ends at a gradient of 1e-11, and the loss is quadratic there")


def aligned(*lines: str) -> str:
    """One formula on several lines."""
    return r"\begin{aligned} & " + r" \\ & ".join(lines) + r" \end{aligned}"


def accuracy(loops: int, n: float, d: int) -> float:
    """The paper's delta = (8 L d / sqrt n)^{1/(2L)} (section 3.5)."""
    return (8 * loops * d / n**0.5) ** (1 / (2 * loops))


def white(d: int, n: int) -> LinearRegression:
    return LinearRegression.with_inverse_prior(identity(d), n)


def power(matrix: Tensor, exponent: float) -> Tensor:
    """Of a symmetric positive definite matrix."""
    values, vectors = torch.linalg.eigh(matrix)
    return vectors @ torch.diag_embed(values**exponent) @ vectors.mT


def between(outer: Tensor, inner: Tensor) -> Tensor:
    """outer^1/2 inner outer^1/2."""
    half = power(outer, 0.5)
    return half @ inner @ half


def order_distance(a: Tensor, step: float, sigma: Float[Tensor, "d d"]) -> float:
    """The least r with (1 - r) step Sigma*^-1 <= A <= (1 + r) step Sigma*^-1."""
    values = torch.linalg.eigvalsh(symmetric(between(sigma, a)))
    return (values / step - 1).abs().max().item()


def sheared(t: float) -> Float[Tensor, "2 2"]:
    """I - t E_12: I - A is nilpotent."""
    return torch.tensor([[1, -t], [0, 1]], dtype=DTYPE)


def paper_weights(a: Tensor, u: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(P, Q) of Eq. 11 in the paper's own sign: P = [[0, 0], [u^T, 1]], Q = [[A, 0], [0, 0]]."""
    q = pad(a, (0, 1, 0, 1))
    p = torch.zeros_like(q)
    p[:, -1, -1] = 1
    if u is not None:
        p[:, -1, :-1] = u
    return p, q


def contexts(task: LinearRegression, degree: int) -> tuple[Float[Tensor, "b d d"], Tensor]:
    """Factors F with S = F F^T, and weights that average polynomials in S of this degree."""
    factors, weights = theory.wishart.wishart_nodes(task.n, task.d, degree)
    return torch.linalg.cholesky(task.covariance) @ factors / task.n**0.5, weights


def average(formula: Callable[[Tensor], Tensor], task: LinearRegression, degree: int) -> Tensor:
    """E formula(S) for a polynomial of this degree, which maps [nodes, d, d]."""
    factors, weights = contexts(task, degree)
    return torch.einsum("b,b...->...", weights, formula(factors @ factors.mT))


def prediction_error(a: Tensor, u: Tensor | None, root: Tensor, w: Tensor, query: Tensor) -> Tensor:
    """TF(Z_0) - y_q of contexts with S = root^T root: for the model d examples stand for n."""
    x = len(w) ** 0.5 * root
    prompt = Prompt(x, x @ w, query.expand(1, 1, -1), (w @ query).expand(len(x), 1))
    return (GATMIRY.predict(*paper_weights(a, u), prompt) - prompt.y_query)[:, 0]


def transformer_loss(a: Tensor, task: LinearRegression, u: Tensor | None = None) -> float:
    """E (TF(Z_0) - y_q)^2 of the forward pass (3) and (4) itself, with layers A and u, exactly.

    The error is bilinear in (w, x_q) plus, with shifts u, linear in x_q: its mean square over
    Gaussians is the sum of squares over the columns of a root of each covariance.
    """
    factors, weights = contexts(task, 2 * len(a))
    total = torch.zeros(len(factors), dtype=DTYPE)
    for query in torch.linalg.cholesky(task.covariance).mT:
        constant = prediction_error(a, u, factors.mT, torch.zeros_like(query), query)
        total += constant.square()
        for w in torch.linalg.cholesky(task.prior).mT:
            total += (prediction_error(a, u, factors.mT, w, query) - constant).square()
    return (weights * total).sum().item()


def looped_loss(a: Float[Tensor, "d d"], task: LinearRegression, loops: int) -> float:
    return transformer_loss(a.expand(loops, -1, -1), task)


def least_loss(loops: int, n: int, d: int) -> float:
    """Of all symmetric A, in exact fractions."""
    best = theory.linear.optimal_gap(loops, n, d)
    return float(theory.linear.long_prompt_risk(best, loops, n, d))


def word_loss(task: LinearRegression, loops: int, u: Tensor | None = None) -> Callable[..., Tensor]:
    """A -> L(A, u) by the expansion in words: any n, and differentiable.

    theory's preconditioner multiplies the gradient, as A^T does in the paper (Proposition 3.1).
    """
    risk = partial(theory.linear.tied_risk, loops=loops, shift=u)
    return lambda a: risk(a.mT, task.covariance, task.n, task.prior)
