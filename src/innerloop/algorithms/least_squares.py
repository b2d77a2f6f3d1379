"""Least squares and ridge regression on the examples of a prompt."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.learner import linear_prediction
from innerloop.prompt import Prompt


@dataclass(frozen=True)
class LeastSquares:
    """argmin_w sum_i (<w, x_i> - y_i)^2; of all minimisers, the one of least norm.

    With noiseless labels it is exact once n >= d; with n < d it is the projection of the true w
    onto the span of the examples.
    """

    def weights(self, prompt: Prompt) -> Float[Tensor, "batch d"]:
        if prompt.n == 0:
            return prompt.y.new_zeros(len(prompt), prompt.d)
        return (torch.linalg.pinv(prompt.x) @ prompt.y.unsqueeze(-1)).squeeze(-1)

    def __call__(self, prompt: Prompt) -> Float[Tensor, "batch queries"]:
        return linear_prediction(self.weights(prompt), prompt)


@dataclass(frozen=True)
class Ridge:
    """argmin_w sum_i (<w, x_i> - y_i)^2 + penalty |w|^2.

    The penalty is not divided by n: for w ~ N(0, I) and label noise of variance s^2, the Bayes
    optimal learner is Ridge(s^2).
    """

    penalty: float

    def __post_init__(self) -> None:
        if not 0 < self.penalty < float("inf"):
            raise ValueError(
                f"penalty must be positive and finite, got {self.penalty}. "
                "For no penalty, use LeastSquares()."
            )

    def weights(self, prompt: Prompt) -> Float[Tensor, "batch d"]:
        """(X^T X + penalty)^-1 X^T y, or with fewer examples than coordinates the same number as
        X^T (X X^T + penalty)^-1 y, whose matrix a small penalty does not leave singular."""
        x, y = prompt.x, prompt.y.unsqueeze(-1)
        if prompt.n < prompt.d:
            return (x.mT @ self._solve(x @ x.mT, y)).squeeze(-1)
        return self._solve(x.mT @ x, x.mT @ y).squeeze(-1)

    def _solve(self, matrix: Tensor, right: Tensor) -> Tensor:
        """(matrix + penalty)^-1 right."""
        penalised = matrix + self.penalty * torch.eye(matrix.shape[-1]).to(matrix)
        return torch.cholesky_solve(right, torch.linalg.cholesky(penalised))

    def __call__(self, prompt: Prompt) -> Float[Tensor, "batch queries"]:
        return linear_prediction(self.weights(prompt), prompt)
