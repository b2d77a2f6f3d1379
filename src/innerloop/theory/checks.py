"""What every formula asks of its arguments, before any work.

A refusal names the argument, what is accepted and the value given. Numbers come back as what the
formula computes with: a count as a Python int, because numpy's integers overflow in the powers of
exact moments without a word.

Values of tensors are looked at only where a formula is evaluated once. What is called in the inner
loop of a training, or under torch.func's transforms, is asked for its shape and dtype alone.
"""

from __future__ import annotations

import math
import operator
from decimal import Decimal
from typing import SupportsFloat, cast

import torch
from torch import Tensor

LARGEST_TENSOR = 10**9
"""Numbers in one tensor, 8 GB in float64; more are refused."""


class TooLargeError(ValueError):
    """An exact computation would need more terms, time or memory than is sensible."""


def require_count(
    name: str, value: object, least: int = 1, most: int | None = None, why: str = ""
) -> int:
    """Of loops, dimensions, examples: a whole number from `least` to `most`, as a Python int.

    `why` says what is wrong with larger ones.
    """
    count = _whole(value)
    if count is None:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if count < least:
        raise ValueError(f"{name} must be at least {least}, got {count}")
    if most is not None and count > most:
        raise TooLargeError(f"{name} must be at most {most}, got {Decimal(count):.6g}; {why}")
    return count


def require_length(length: object, name: str = "length") -> None:
    """Of a prompt, where the formula has a limit for infinitely many examples."""
    number = _number(length)
    if number is None or not number >= 1:
        raise ValueError(f"{name} must be at least 1 example, or math.inf, got {length}")
    if number != length or number % 1 > 0:  # unlike an int beyond float64, or with a fraction
        raise ValueError(f"{name} must be a whole number of examples, or math.inf, got {length}")


def require_number(name: str, value: object) -> None:
    number = _number(value)
    if number is None or not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, got {value}")


def require_positive(name: str, value: object) -> None:
    number = _number(value)
    if number is None or not 0 < number < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {value}")


def require_not_negative(name: str, value: object) -> None:
    number = _number(value)
    if number is None or not 0 <= number < math.inf:
        raise ValueError(f"{name} must be finite and not negative, got {value}")


def require_noise(noise_std: object) -> None:
    """A standard deviation; the formulas take its square."""
    require_not_negative("noise_std", noise_std)
    if cast(float, noise_std) > 1e150:
        raise ValueError(f"noise_std must be at most 1e150, to have a square, got {noise_std}")


def require_tensor(
    name: str,
    value: object,
    shape: tuple[int | None, ...],
    *,
    like: Tensor | None = None,
    batched: bool = False,
) -> None:
    """A real floating-point tensor of this shape, of the dtype and device of `like`.

    None in the shape stands for any size of at least 1; `batched` allows any axes before it.
    """
    if not isinstance(value, Tensor) or not value.is_floating_point():
        given = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"{name} must be a tensor of real floating-point numbers, got {given}")
    found = value.shape[value.ndim - len(shape) :] if batched else value.shape
    fits = len(found) == len(shape) and all(
        size == wanted if wanted is not None else size >= 1
        for size, wanted in zip(found, shape, strict=True)
    )
    if not fits:
        axes = ["..."] * batched + ["any" if size is None else str(size) for size in shape]
        wanted = f"[{', '.join(axes)}]"
        raise ValueError(f"{name} must have the shape {wanted}, got {list(value.shape)}")
    if like is not None and (value.dtype, value.device) != (like.dtype, like.device):
        raise ValueError(
            f"{name} must be {like.dtype} on {like.device} as what it meets, "
            f"got {value.dtype} on {value.device}"
        )


def require_square(name: str, matrix: object, *, stacked: bool = False) -> int:
    """A square matrix [d, d], or [k, d, d] of them; returns d."""
    require_tensor(name, matrix, (None,) * (2 + stacked))
    tensor = cast(Tensor, matrix)
    if tensor.shape[-1] != tensor.shape[-2]:
        raise ValueError(f"{name} must be square, got the shape {list(tensor.shape)}")
    return tensor.shape[-1]


def require_finite(name: str, tensor: Tensor) -> None:
    if not bool(tensor.isfinite().all()):
        raise ValueError(f"{name} must be finite, got an entry that is NaN or infinite")


def require_covariance(
    name: str, matrix: Tensor, *, definite: bool = True, stacked: bool = False
) -> int:
    """Finite, symmetric and positive (semi-)definite, up to rounding; returns d."""
    d = require_square(name, matrix, stacked=stacked)
    require_finite(name, matrix)
    rounding = torch.finfo(matrix.dtype).eps ** 0.5 * float(matrix.abs().max())
    asymmetry = float((matrix - matrix.mT).abs().max())
    if asymmetry > rounding:
        raise ValueError(
            f"{name} must be symmetric, got entries that differ from their mirror image by "
            f"{asymmetry:.3g}"
        )
    least = float(torch.linalg.eigvalsh(matrix).min())
    if not (least > 0 if definite else least >= -rounding):
        kind = "definite" if definite else "semi-definite"
        raise ValueError(f"{name} must be positive {kind}, got the eigenvalue {least:g}")
    return d


def require_prior(prior: Tensor | None, covariance: Tensor, *, values: bool = True) -> None:
    """The covariance of the weights, or None for the identity: as large as that of x."""
    if prior is None:
        return
    require_tensor("prior", prior, tuple(covariance.shape[-2:]), like=covariance)
    if values:
        require_covariance("prior", prior, definite=False)


def require_room(what: str, numbers: int) -> None:
    """Of a tensor that is about to be made."""
    if numbers > LARGEST_TENSOR:
        raise TooLargeError(
            f"{what} would take {Decimal(numbers):.2g} numbers, {Decimal(8 * numbers) / 10**9:.2g} "
            f"GB in float64; {LARGEST_TENSOR:.0e} numbers are the most"
        )


def cholesky(name: str, covariance: Tensor) -> Tensor:
    """The lower triangular root; it exists for positive definite matrices alone."""
    try:
        return torch.linalg.cholesky(covariance)
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise ValueError(
            f"{name} must be finite and positive definite, and has no Cholesky root"
        ) from error


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _number(value: object) -> float | None:
    if isinstance(value, (bool, str, bytes)) or value is None:
        return None
    try:
        return float(cast(SupportsFloat, value))
    except OverflowError:  # a whole number or a fraction beyond float64
        return math.inf if cast(float, value) > 0 else -math.inf
    except (TypeError, ValueError):
        return None
