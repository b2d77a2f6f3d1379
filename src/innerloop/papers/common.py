"""What the checks of every paper share: seeds and covariances."""

import torch
from jaxtyping import Float
from torch import Tensor

DTYPE = torch.float64


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


def square_root(matrix: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """The symmetric square root."""
    values, vectors = torch.linalg.eigh(matrix)
    return vectors @ torch.diag(values.sqrt()) @ vectors.mT
