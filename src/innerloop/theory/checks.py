"""What every formula asks of its sizes; errors name the argument and the value given."""

from __future__ import annotations

import math


def require_count(name: str, value: int) -> None:
    """Of loops, dimensions, examples: a finite number of at least 1."""
    if not 1 <= value < math.inf:
        raise ValueError(f"{name} must be at least 1, got {value}")


def require_length(length: int | float, name: str = "length") -> None:
    """Of a prompt, where the formula has a limit for infinitely many examples."""
    if not length >= 1:
        raise ValueError(f"{name} must be at least 1 example, or math.inf, got {length}")


def require_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {value}")


def require_noise(noise_std: float) -> None:
    if not 0 <= noise_std < math.inf:
        raise ValueError(f"noise_std must be finite and not negative, got {noise_std}")
