"""What tasks ask of their sizes and matrices; errors name the argument and the value given."""

from __future__ import annotations

import torch
from torch import Tensor


def require_at_least(name: str, value: int, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def require_seed(seed: int) -> None:
    """What every generator takes, on any device."""
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise ValueError(f"seed must be between 0 and 2^63 - 1, got {seed!r}")


def require_positive(name: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} must be positive and finite, got {value}")


def require_not_negative(name: str, value: float) -> None:
    if not 0 <= value < float("inf"):
        raise ValueError(f"{name} must be finite and not negative, got {value}")


def require_covariance(name: str, matrix: Tensor, *, singular: bool = False) -> None:
    """Symmetric and positive definite; semi-definite will do where `singular` says so."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.numel() == 0:
        raise ValueError(
            f"{name} must be a [d, d] matrix, got shape {list(matrix.shape)}. "
            "For independent coordinates, pass torch.diag(variances)."
        )
    if not matrix.is_floating_point():
        raise ValueError(f"{name} must be of a floating dtype, got {matrix.dtype}")
    if not matrix.isfinite().all():
        raise ValueError(f"{name} must be finite, got an entry that is NaN or infinite")
    largest = matrix.abs().max().item()
    asymmetry = (matrix - matrix.mT).abs().max().item()
    if asymmetry > 1e-6 * largest:
        raise ValueError(f"{name} must be symmetric, got |M - M^T| up to {asymmetry:.3g}")
    smallest = torch.linalg.eigvalsh(matrix)[0].item()
    # An eigenvalue of 0 comes out as a rounding error of either sign.
    rounding = len(matrix) * torch.finfo(matrix.dtype).eps * largest
    if smallest < -rounding or (smallest <= 0 and not singular):
        kind = "semi-definite" if singular else "definite"
        raise ValueError(
            f"{name} must be positive {kind}, got a smallest eigenvalue of {smallest:.3g}"
        )
