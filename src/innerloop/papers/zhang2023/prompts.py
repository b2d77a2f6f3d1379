"""Every prompt of a small setting, with exact weights, and the paper's layer on them.

A prediction is a polynomial in the numbers of a prompt, so a few Gauss-Hermite nodes in each of
them average its square without error.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from scipy.special import roots_hermitenorm
from torch import Tensor

from innerloop import theory
from innerloop.models.conventions import ZHANG
from innerloop.papers.common import DTYPE, generator, identity
from innerloop.papers.zhang2023.settings import Mixture
from innerloop.prompt import Prompt

Matrices = tuple[Tensor, Tensor]
"""W^PV and W^KQ."""


def grid(rules: list[tuple[np.ndarray, np.ndarray]]) -> tuple[Tensor, Tensor]:
    """All combinations of nodes [points, rules], and their masses, which sum to 1."""
    nodes = torch.cartesian_prod(*(torch.as_tensor(x) for x, _ in rules))
    masses = torch.cartesian_prod(*(torch.as_tensor(m / m.sum()) for _, m in rules))
    return nodes.view(-1, len(rules)), masses.view(-1, len(rules)).prod(-1)


def as_prompt(x: Tensor, y: Tensor) -> Prompt:
    """The last of the pairs is the query."""
    return Prompt(x[:, :-1], y[:, :-1], x[:, -1:], y[:, -1:])


def labelled(x: Tensor, w: Tensor) -> Prompt:
    """With y = <w, x>."""
    return as_prompt(x, (x @ w.unsqueeze(-1)).squeeze(-1))


def linear_prompts(mixture: Mixture, length: int) -> tuple[Prompt, Tensor, Tensor, Tensor]:
    """Prompts with y = <w, x>, w ~ N(0, I), their covariances, weights w and masses.

    The square of a prediction has degree 6 in the query, 4 in an example and 4 in w.
    """
    d = mixture.d
    nodes, mass = grid([roots_hermitenorm(3)] * d * (length + 1) + [roots_hermitenorm(4)] * d)
    roots = torch.linalg.cholesky(mixture.covariances)
    x = torch.cat([nodes[:, d:].view(-1, length + 1, d) @ root.mT for root in roots])
    w = nodes[:, :d].repeat(len(roots), 1)
    masses = (mixture.probabilities.unsqueeze(-1) * mass).flatten()
    return labelled(x, w), mixture.covariances.repeat_interleave(len(nodes), 0), w, masses


@dataclass(frozen=True)
class Labels:
    """y = function(x) + noise_std N(0, 1), for the query as for the examples."""

    function: Callable[[Tensor], Tensor]
    degree: int
    """Of the function, a polynomial."""
    noise_std: float = 0.0

    def moments(self, covariance: Tensor) -> theory.linear.JointMoments:
        """Exact: quadrature is, for a polynomial of this degree."""
        of_function = theory.linear.JointMoments.of_function
        return of_function(self.function, covariance, degree=self.degree).with_noise(self.noise_std)

    def every_prompt(self, length: int, covariance: Tensor) -> tuple[Prompt, Tensor]:
        """Prompts and masses; a squared error has degree 2 (1 + degree) in an example."""
        d, noisy = len(covariance), self.noise_std > 0
        nodes, mass = grid([roots_hermitenorm(self.degree + 2)] * (length + 1) * (d + noisy))
        z = nodes.view(-1, length + 1, d + noisy)
        x = z[..., :d] @ torch.linalg.cholesky(covariance).mT
        y = self.function(x)
        return as_prompt(x, y + self.noise_std * z[..., d] if noisy else y), mass

    def error(self, matrices: Matrices, length: int, covariance: Tensor) -> float:
        """The layer's expected squared error, over every prompt."""
        prompt, mass = self.every_prompt(length, covariance)
        return (mass @ (predict(matrices, prompt) - prompt.y_query[:, 0]).square()).item()


def linear(x: Tensor) -> Tensor:
    return x @ torch.tensor([1.0, -0.5, 0.8, 0.3, -0.7], dtype=DTYPE)[: x.shape[-1]]


LABELS = {
    "linear": Labels(linear, 1),
    "linear with noise": Labels(linear, 1, noise_std=0.7),
    "cubic": Labels(lambda x: x[..., 0] ** 3 - x[..., 1] * x[..., -1] + 0.3 * x[..., -1], 3),
}
WORDS = (
    "Labels: <w, x> with w the first entries of (1, -0.5, 0.8, 0.3, -0.7); the same with noise of "
    "variance 0.49, also on the query's label; x_1^3 - x_2 x_d + 0.3 x_d."
)


def predict(matrices: Matrices, prompt: Prompt) -> Tensor:
    value, key = matrices
    return ZHANG.predict(value.unsqueeze(0), key.unsqueeze(0), prompt)[:, 0]


def matrices_of(theta: Tensor, d: int) -> Matrices:
    """W^PV and W^KQ with theta = (p, v, U, r) where they are read, and zero elsewhere."""
    value, key = torch.zeros(2, d + 1, d + 1, dtype=DTYPE)
    value[-1] = theta[: d + 1]
    key[:, :-1] = theta[d + 1 :].view(d + 1, d)
    return value, key


def whole(u: Tensor, v: Tensor, outer: float = 0.0) -> Tensor:
    """theta = (p, v, U, r), with every entry of p and r the same."""
    side = torch.full((len(u),), outer, dtype=DTYPE)
    return torch.cat([side, v.view(1), u.flatten(), side])


def minimum_around(product: Tensor) -> Tensor:
    """(p, v, U, r) of Eq. 4.1 around Gamma^-1, and of Eq. 4.12 around its counterpart."""
    power = (product.mT @ product).trace() ** 0.25
    return whole(product / power, power)


def layer_around(product: Tensor) -> Matrices:
    """W^PV and W^KQ of Eq. 4.1 or 4.12."""
    return matrices_of(minimum_around(product), len(product))


@cache
def population_loss(mixture: Mixture, n: int) -> Callable[[Tensor], Tensor]:
    """(3.8) or (4.10) of theta = (p, v, U, r): from the layer itself where prompts are few."""
    few = n <= {1: 3, 2: 2}.get(mixture.d, 0)
    return layer_loss(mixture, n) if few else theory.flow.whole_layer_loss(*mixture, n)


def layer_loss(mixture: Mixture, n: int) -> Callable[[Tensor], Tensor]:
    """The prediction is bilinear in the two matrices: its features are those of unit weights."""
    prompt, _, _, mass = linear_prompts(mixture, n)
    d, y = mixture.d, prompt.y_query[:, 0]
    units = [torch.cat([a, b]) for a in identity(d + 1) for b in identity((d + 1) * d)]
    features = torch.stack([predict(matrices_of(unit, d), prompt) for unit in units])
    quadratic, slope = (features * mass) @ features.mT, (features * mass) @ y

    def loss(theta: Tensor) -> Tensor:
        products = torch.outer(theta[: d + 1], theta[d + 1 :]).flatten()
        square = products @ quadratic @ products - 2 * slope @ products + mass @ y**2
        return ZHANG.loss_factor * square

    return loss


def end_of_all_weights(mixture: Mixture, n: int, direction: Tensor, sigma: float) -> Tensor:
    """Where gradient flow of (p, v, U, r) on the exact loss ends, from Assumption 3.3."""
    start = whole(sigma * direction, torch.tensor(sigma, dtype=DTYPE))
    flow = theory.flow.gradient_flow(population_loss(mixture, n), start)
    assert flow.converged, flow.ended_because
    return flow.end


def trained_matrices(mixture: Mixture, n: int) -> Matrices:
    """Where gradient flow of all weights ends, from a small balanced start."""
    direction = theory.flow.balanced_direction(mixture.d, generator(5))
    return matrices_of(end_of_all_weights(mixture, n, direction, 0.3), mixture.d)
