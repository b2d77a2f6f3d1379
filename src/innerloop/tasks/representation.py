"""A fixed non-linear representation of covariates: a network whose weights are never trained."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import leaky_relu

from innerloop.tasks.checks import require_at_least
from innerloop.tasks.covariates import normal


@dataclass(frozen=True)
class LeakyNetwork:
    """phi(x) = s(W_L ... s(W_2 s(W_1 x))), s(v) = max(v, slope v), without biases.

    Gao 2024 takes three layers and states neither slope nor weights. Random weights nearly lose
    directions: see `spectrum`, which says how many dimensions the regression really has.
    """

    weights: tuple[Float[Tensor, "_ _"], ...]
    """Of each layer, [outputs, inputs]."""
    slope: float = 0.1

    def __post_init__(self) -> None:
        if not self.weights:
            raise ValueError("weights must hold at least one matrix, got none")
        for before, after in pairwise(self.weights):
            if after.shape[1] != len(before):
                raise ValueError(
                    f"weights must fit onto each other, got shapes {list(before.shape)} and "
                    f"{list(after.shape)}"
                )
        if not 0 < self.slope <= 1:
            raise ValueError(f"slope must be above 0 and at most 1, got {self.slope}")

    @classmethod
    def drawn(
        cls,
        d: int,
        layers: int = 3,
        *,
        orthogonal: bool = False,
        slope: float = 0.1,
        outputs: int | None = None,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float64,
    ) -> LeakyNetwork:
        """Random weights that keep E |phi|^2: of variance 2 / ((1 + slope^2) inputs) (He et al.
        2015), or orthogonal with the same gain, which is well conditioned."""
        require_at_least("d", d, 1)
        require_at_least("layers", layers, 1)
        sizes = [d] * layers + [d if outputs is None else outputs]
        require_at_least("outputs", sizes[-1], 1)
        gain = (2 / (1 + slope**2)) ** 0.5
        weights = []
        for before, after in pairwise(sizes):
            w = normal(generator, after, before, dtype=dtype)
            weights.append(gain * (_orthogonal(w) if orthogonal else w / before**0.5))
        return cls(tuple(weights), slope)

    @property
    def d(self) -> int:
        return self.weights[0].shape[1]

    @property
    def outputs(self) -> int:
        return len(self.weights[-1])

    def __call__(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch outputs"]:
        dtype = self.weights[0].dtype
        if x.dtype != dtype:
            raise ValueError(f"covariates must have the dtype {dtype} of phi, got {x.dtype}")
        for w in self.weights:
            x = leaky_relu(x @ w.mT, self.slope)
        return x

    def spectrum(
        self, *, samples: int = 100_000, generator: torch.Generator
    ) -> Float[Tensor, " outputs"]:
        """Eigenvalues of E phi phi^T for x ~ N(0, I), largest first, estimated by sampling."""
        x = normal(generator, samples, self.d, dtype=self.weights[0].dtype)
        features = self(x)
        return torch.linalg.eigvalsh(features.mT @ features / samples).flip(0)


def _orthogonal(matrix: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    """The nearest matrix with orthonormal rows or columns: uniform if the matrix is Gaussian."""
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    return u @ vh
