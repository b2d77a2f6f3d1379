"""The test distributions of Theorem 4.2 that claims and figures share, and prompts of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.special import roots_hermitenorm
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import DTYPE
from innerloop.prompt import Prompt


@dataclass(frozen=True)
class Labels:
    """y = function(x) + noise_std N(0, 1), for the query as for the examples."""

    function: Callable[[Tensor], Tensor]
    degree: int
    """Of the function, a polynomial."""
    noise_std: float = 0.0

    def moments(self, covariance: Tensor) -> theory.linear.JointMoments:
        """Exact: quadrature is, for a polynomial of this degree."""
        exact = theory.linear.JointMoments.of_function(
            self.function, covariance, degree=self.degree
        )
        return exact.with_noise(self.noise_std)

    def sample(
        self, batch: int, length: int, covariance: Tensor, *, generator: torch.Generator
    ) -> Prompt:
        pairs = theory.linear.gaussian_pairs(covariance, self.function, self.noise_std)
        x, y = pairs(batch * (length + 1), generator)
        return as_prompt(x.view(batch, length + 1, -1), y.view(batch, length + 1))

    def every_prompt(self, length: int, covariance: Tensor) -> tuple[Prompt, Tensor]:
        """Prompts and weights that integrate squared errors over all prompts exactly.

        Gauss-Hermite nodes in every number of the prompt. A prediction that is linear in the
        labels and of degree 1 in an example's x has a square of degree 2 (1 + degree) in it.
        """
        d, noisy = len(covariance), self.noise_std > 0
        nodes, weights = (torch.as_tensor(v) for v in roots_hermitenorm(self.degree + 2))
        count = (length + 1) * (d + noisy)
        z = torch.cartesian_prod(*[nodes] * count).view(-1, length + 1, d + noisy)
        mass = torch.cartesian_prod(*[weights / weights.sum()] * count).view(-1, count).prod(-1)
        x = z[..., :d] @ torch.linalg.cholesky(covariance).mT
        y = self.function(x)
        return as_prompt(x, y + self.noise_std * z[..., d] if noisy else y), mass


def as_prompt(x: Tensor, y: Tensor) -> Prompt:
    """The last of the pairs is the query."""
    return Prompt(x[:, :-1], y[:, :-1], x[:, -1:], y[:, -1:])


WEIGHT = torch.tensor([1.0, -0.5, 0.8], dtype=DTYPE)


def linear(x: Tensor) -> Tensor:
    return x @ WEIGHT[: x.shape[-1]]


def cubic(x: Tensor) -> Tensor:
    return x[..., 0] ** 3 - x[..., 1] * x[..., -1] + 0.3 * x[..., -1]


LABELS = {
    "linear": Labels(linear, 1),
    "linear with noise": Labels(linear, 1, noise_std=0.7),
    "cubic": Labels(cubic, 3),
}
