"""Gradient descent on the examples of a prompt, and GD++, which moves the covariates as well.

Both minimise R(w) = (1/2n) sum_i (<w, x_i> - y_i)^2 from w = 0 and are written as a reader of the
papers would write them: in the space of examples, not of Gram matrices.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms.learner import linear_prediction
from innerloop.prompt import Prompt

Preconditioner = float | Float[Tensor, "d d"]
"""The A in w <- w - A grad R(w); a number is a step size, A = step_size I."""


@dataclass(frozen=True)
class GradientDescent:
    """w <- w - A_l (grad R(w) + penalty w), one preconditioner or step size for every step.

    With a penalty it descends on R(w) + (penalty/2) |w|^2: ridge regression, step by step.
    """

    preconditioners: Sequence[Preconditioner]
    penalty: float = 0.0

    def __post_init__(self) -> None:
        _require_steps(self.preconditioners)
        if not 0 <= self.penalty < float("inf"):
            raise ValueError(f"penalty must be finite and at least 0, got {self.penalty}")

    @classmethod
    def repeated(
        cls, preconditioner: Preconditioner, steps: int, penalty: float = 0.0
    ) -> GradientDescent:
        """The same step, `steps` times."""
        return cls([preconditioner] * steps, penalty)

    def iterates(self, prompt: Prompt) -> Float[Tensor, "batch iterates d"]:
        """w_0 = 0, w_1, ..., the last of which predicts."""
        return torch.stack(list(self._path(prompt)), dim=1)

    def __call__(self, prompt: Prompt) -> Float[Tensor, "batch queries"]:
        (last,) = deque(self._path(prompt), maxlen=1)  # of many steps, only one is in memory
        return linear_prediction(last, prompt)

    def _path(self, prompt: Prompt) -> Iterator[Tensor]:
        w = prompt.y.new_zeros(len(prompt), prompt.d)
        yield w
        for preconditioner in self.preconditioners:
            residual = (prompt.x @ w.unsqueeze(-1)).squeeze(-1) - prompt.y  # [batch, n]
            gradient = _moment(prompt.x, residual) / max(prompt.n, 1) + self.penalty * w
            w = w - _times(preconditioner, gradient)
            yield w


@dataclass(frozen=True)
class StableGradientDescent:
    """w <- w - grad R(w) / |S|_2, S = (1/n) sum_i x_i x_i^T: no longer step is safe.

    The step is each prompt's own. One step size for all would diverge on the prompts whose S
    happens to be large, and a few of those carry the mean loss.
    """

    steps: int

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1, got {self.steps}")

    def __call__(self, prompt: Prompt) -> Float[Tensor, "batch queries"]:
        s, m = prompt.moments()
        largest = torch.linalg.eigvalsh(s)[:, -1:].clamp_min(torch.finfo(s.dtype).tiny ** 0.5)
        w = torch.zeros_like(m)
        for _ in range(self.steps):
            before, w = w, w + (m - (s @ w.unsqueeze(-1)).squeeze(-1)) / largest
            if torch.equal(before, w):  # converged to the last digit
                break
        return linear_prediction(w, prompt)


@dataclass(frozen=True)
class GDPlusPlus:
    """Gradient steps between which the covariates, too, are transformed (Ahn 2023, Theorem 5).

    At step l every covariate x, of an example or of the query, and every example's label change by

        prediction <- prediction + x_q^T A_l m,     y_i <- y_i - x_i^T A_l m,
        x <- x - B_l S A_l^T x,

    with S = (1/n) sum_i x_i x_i^T and m = (1/n) sum_i y_i x_i of the covariates and labels as
    they now are. With B_l = 0 it is gradient descent; with A_l, B_l scalar it is the GD++ of
    von Oswald 2022, which improves the conditioning of S from step to step.
    """

    preconditioners: Sequence[Preconditioner]
    transforms: Sequence[Preconditioner]
    """B_l; the last one changes no prediction and may be 0."""

    def __post_init__(self) -> None:
        _require_steps(self.preconditioners)
        if len(self.transforms) != len(self.preconditioners):
            raise ValueError(
                f"transforms must be one per step, {len(self.preconditioners)} in all, "
                f"got {len(self.transforms)}"
            )
        _require_square("transform", self.transforms)

    def predictions(self, prompt: Prompt) -> Float[Tensor, "batch iterates queries"]:
        """The predictions before the first step (0), after it, and so on."""
        n, batch = prompt.n, len(prompt)
        x = torch.cat([prompt.x.expand(batch, -1, -1), prompt.x_query.expand(batch, -1, -1)], dim=1)
        labels = torch.cat([prompt.y, torch.zeros_like(prompt.y_query)], dim=1)
        path = [-labels[:, n:]]
        for preconditioner, transform in zip(self.preconditioners, self.transforms, strict=True):
            m = _moment(x[:, :n], labels[:, :n]) / max(n, 1)
            s = x[:, :n].mT @ x[:, :n] / max(n, 1)  # [batch, d, d]
            labels = labels - (x @ _times(preconditioner, m).unsqueeze(-1)).squeeze(-1)
            transposed = preconditioner.mT if isinstance(preconditioner, Tensor) else preconditioner
            x = x - _times(transform, _times(transposed, x) @ s)
            path.append(-labels[:, n:])
        return torch.stack(path, dim=1)

    def __call__(self, prompt: Prompt) -> Float[Tensor, "batch queries"]:
        return self.predictions(prompt)[:, -1]


def _moment(
    x: Float[Tensor, "#batch n d"], y: Float[Tensor, "batch n"]
) -> Float[Tensor, "batch d"]:
    """sum_i y_i x_i, for covariates that all prompts may share."""
    return torch.einsum("bnd,bn->bd", x.expand(len(y), -1, -1), y)


def _times(matrix: Preconditioner, rows: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """matrix @ row for every row; a number is a multiple of the identity."""
    return rows @ matrix.mT if isinstance(matrix, Tensor) else matrix * rows


def _require_steps(preconditioners: Sequence[Preconditioner]) -> None:
    if len(preconditioners) == 0:
        raise ValueError("preconditioners must hold at least one step, got none")
    _require_square("preconditioner", preconditioners)


def _require_square(name: str, matrices: Sequence[Preconditioner]) -> None:
    for matrix in matrices:
        if isinstance(matrix, Tensor) and (matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]):
            raise ValueError(
                f"a {name} must be a number or a [d, d] matrix, got shape {list(matrix.shape)}"
            )
