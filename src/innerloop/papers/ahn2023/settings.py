"""What several modules share: settings, weights in the paper's form, the ray, one exact loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from scipy.special import roots_hermitenorm
from torch import Tensor
from torch.nn.functional import pad

from innerloop import theory
from innerloop.models import AHN
from innerloop.papers.common import DTYPE, rotated, square_root
from innerloop.papers.quantity import at_most
from innerloop.prompt import Prompt
from innerloop.tasks import LinearRegression

# Sections 5.3 and 6.1: Sigma = U^T D^2 U with these D, and a fresh rotation U for every seed.
D = 5
DISTORTION = (1.0, 1.0, 0.5, 0.25, 1.0)
SPARSE_N = 20
TRANSFORMED_N = 10
LAYERS = 3
ARRIVED = at_most(1e-3, "a place is known to the root of what its loss is known to, 1e-8, times 10")
BEST = at_most(1e-8, "descent stops at gradients below 1e-8, and the loss is quadratic there")


def experiment(n: int, seed: int) -> LinearRegression:
    """The task of the paper's experiments: covariance U^T D^2 U, prior its inverse."""
    return LinearRegression.with_inverse_prior(rotated([s**2 for s in DISTORTION], seed), n)


def on_the_ray(d: int, n: int, scale: float = 1.0) -> LinearRegression:
    """The setting of Theorems 4 and 5, with a rotated covariance."""
    spectrum = {2: [1.0, 0.3], 3: [1.2, 0.5, 0.3]}[d]
    return LinearRegression.with_inverse_prior(scale * rotated(spectrum, seed=0), n)


def minimum_of_ray(n: int, d: int, start: Tensor) -> tuple[float, Tensor]:
    """Loss and place where descent ends: steps a_i, then all transforms b_i that matter."""
    layers = (len(start) + 1) // 2

    def risk(place: Tensor) -> Tensor:
        return theory.linear.ray_risk(place[:layers], n, d, pad(place[layers:], (0, 1)))

    return theory.flow.descend(risk, start)


def lowest_first(
    loss: Callable[[Tensor], Tensor], starts: Iterable[Tensor]
) -> list[tuple[float, Tensor]]:
    """Loss and place where descent from each start ends."""
    return sorted((theory.flow.descend(loss, s) for s in starts), key=lambda end: end[0])


def vector(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=DTYPE)


def matrices(numbers: Tensor, matrix: Tensor) -> Tensor:
    """A multiple of one matrix for every layer."""
    return numbers[:, None, None] * matrix


def traces(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)


def weights9(a: Tensor) -> tuple[Tensor, Tensor]:
    """(P, Q) of Eq. 9, in the paper's own sign."""
    return weights13(a, torch.zeros_like(a))


def weights13(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """(P, Q) of Eq. 13, in the paper's own sign."""
    corner = torch.zeros(a.shape[-1] + 1, a.shape[-1] + 1, dtype=a.dtype)
    corner[-1, -1] = 1
    return pad(b, (0, 1, 0, 1)) + corner, pad(a, (0, 1, 0, 1))


@dataclass(frozen=True)
class ExactLoss:
    """Eq. 5 of the paper's own forward pass, exactly: a weighted sum over prompts.

    Contexts are the nodes of a quadrature for Wishart matrices, filled up to n examples by zeros,
    which no layer sees. The error is linear in the query: d queries replace its expectation. So do
    d weights w where it is linear in w, and else a Gauss-Hermite rule.
    """

    prompt: Prompt
    weights: Tensor

    @classmethod
    def of(cls, task: LinearRegression, degree: int, *, linear_in_w: bool = True) -> ExactLoss:
        """Of a loss with this degree in the sample covariance, and at most 4 in w."""
        factors, weights = theory.wishart.wishart_nodes(task.n, task.d, degree)
        root = square_root(task.covariance)
        x = pad((root @ factors).mT, (0, 0, 0, task.n - task.d))  # [nodes, n, d]
        w, w_weights = _weight_nodes(task, linear_in_w)
        x, w = x.repeat_interleave(len(w), 0), w.repeat(len(weights), 1)
        query = root.expand(len(x), -1, -1)
        y, y_query = (torch.einsum("bnd,bd->bn", t, w) for t in (x, query))
        return cls(Prompt(x, y, query, y_query), torch.outer(weights, w_weights).flatten())

    def __call__(self, p: Tensor, q: Tensor) -> Tensor:
        error = AHN.predict(p, q, self.prompt) - self.prompt.y_query
        return (self.weights * error.square().sum(-1)).sum()

    def gradients(self, a: Tensor, b: Tensor | None = None) -> tuple[Tensor, ...]:
        """In every entry of the A_i and B_i of weights (13), symmetric or not."""
        b = torch.zeros_like(a) if b is None else b
        return torch.func.grad(lambda a, b: self(*weights13(a, b)), argnums=(0, 1))(a, b)


def _weight_nodes(task: LinearRegression, linear: bool) -> tuple[Tensor, Tensor]:
    root = square_root(task.prior)
    if linear:
        return root, torch.ones(task.d, dtype=DTYPE)
    nodes, weights = (
        torch.cartesian_prod(*[torch.as_tensor(part, dtype=DTYPE)] * task.d).view(-1, task.d)
        for part in roots_hermitenorm(3)
    )
    return nodes @ root, weights.prod(-1) / weights.prod(-1).sum()
