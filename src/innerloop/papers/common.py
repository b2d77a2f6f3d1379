"""What the checks of every paper share: seeds, matrices, distances."""

import os
from dataclasses import replace

import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from innerloop.analysis import Estimate
from innerloop.papers.quantity import widening

DTYPE = torch.float64
SEED_BLOCK = int(os.environ.get("INNERLOOP_SEED_BLOCK", "0"))
"""Another block draws every random number anew. A verdict that depends on it is about the seed."""


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(1_000_000 * SEED_BLOCK + seed)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=DTYPE)


def identity(d: int) -> Float[Tensor, "d d"]:
    return torch.eye(d, dtype=DTYPE)


def symmetric(matrices: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch d d"]:
    """The symmetric part."""
    return (matrices + matrices.mT) / 2


def relative(value: Tensor | float, exact: Tensor | float) -> float:
    """The largest difference, relative to the largest entry of what is exact."""
    a, b = torch.as_tensor(value, dtype=DTYPE), torch.as_tensor(exact, dtype=DTYPE)
    return ((a - b).abs().max() / b.abs().max()).item()


def mean_of_few(values: ArrayLike | Tensor) -> Estimate:
    """The mean of values that are independent of each other, with its error, which is widened for
    how few they are."""
    plain = Estimate.of(torch.as_tensor(values, dtype=DTYPE))
    return replace(plain, standard_error=widening(plain.samples - 1) * plain.standard_error)


def mean_log(ratios: ArrayLike | Tensor) -> Estimate:
    """The same of the logarithms of ratios."""
    return mean_of_few(torch.as_tensor(ratios, dtype=DTYPE).log())


def random_rotation(d: int, seed: int) -> Float[Tensor, "d d"]:
    """Uniform over orthogonal matrices: QR of a Gaussian matrix, with the signs of R taken out."""
    q, r = torch.linalg.qr(torch.randn(d, d, generator=generator(seed), dtype=DTYPE))
    return q * r.diagonal().sign()


def rotated(spectrum: list[float], seed: int) -> Float[Tensor, "d d"]:
    """A covariance with these eigenvalues and random eigenvectors."""
    u = random_rotation(len(spectrum), seed)
    covariance = u.mT @ torch.diag(torch.tensor(spectrum, dtype=DTYPE)) @ u
    return symmetric(covariance)


def square_root(matrix: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """The symmetric square root."""
    values, vectors = torch.linalg.eigh(matrix)
    return vectors @ torch.diag(values.sqrt()) @ vectors.mT
