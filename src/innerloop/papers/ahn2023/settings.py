"""The settings that several claims and figures of the paper share."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.tasks import LinearRegression

DTYPE = torch.float64
ALGEBRA = "float64 algebra: rounding of a few hundred operations, far above 1e-16 and below this"


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_rotation(d: int, seed: int) -> Float[Tensor, "d d"]:
    """Uniform over orthogonal matrices: QR of a Gaussian matrix, with the signs of R taken out."""
    q, r = torch.linalg.qr(torch.randn(d, d, generator=generator(seed), dtype=DTYPE))
    return q * r.diagonal().sign()


def rotated(spectrum: list[float], seed: int) -> Float[Tensor, "d d"]:
    """A covariance with these eigenvalues and random eigenvectors."""
    u = random_rotation(len(spectrum), seed)
    covariance = u.mT @ torch.diag(torch.tensor(spectrum, dtype=DTYPE)) @ u
    return (covariance + covariance.mT) / 2


# Sections 5.3 and 6.1: Sigma = U^T D^2 U with these D, and a fresh rotation U for every seed.
D = 5
DISTORTION = (1.0, 1.0, 0.5, 0.25, 1.0)
SPARSE_N = 20
TRANSFORMED_N = 10
LAYERS = 3


def experiment(n: int, seed: int) -> LinearRegression:
    """The task of the paper's experiments: covariance U^T D^2 U, prior its inverse."""
    return LinearRegression.with_inverse_prior(rotated([s**2 for s in DISTORTION], seed), n)


def square_root(matrix: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """The symmetric square root."""
    values, vectors = torch.linalg.eigh(matrix)
    return vectors @ torch.diag(values.sqrt()) @ vectors.mT


# Two-sided normal quantiles for several sampled numbers at once would be larger still; four
# standard errors are exceeded by chance once in 16,000 checks.
SAMPLING = 4.0
WHY_SAMPLING = (
    "four standard errors: exceeded by chance with probability "
    f"{math.erfc(SAMPLING / math.sqrt(2)):.0e}"
)
