"""Numbers as a reader wants them: four digits, and more only where four would mislead."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

DIGITS = 4
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float, digits: int = DIGITS) -> str:
    """The value to so many significant digits, as 0.0123, 1,234 or 1.234 × 10⁻⁵."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    power = int(exponent)
    if -4 < power < 6:
        decimals = max(digits - 1 - power, 0)
        text = f"{value:,.{decimals}f}"
    else:
        text = mantissa
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    if not -4 < power < 6:
        text = f"{text} × 10{str(power).translate(_SUPERSCRIPT)}".removeprefix("1 × ")
    return text.replace("-", "−")


def number_beside(value: float, other: float) -> str:
    """The value with as many digits as it takes to see on which side of the other it is.

    Without this, 1.00004 would be said to miss a tolerance of 1 and be shown as 1.
    """
    if math.isfinite(value) and math.isfinite(other) and value != other:
        for digits in range(DIGITS, 17):
            if number(value, digits) != number(other, digits):
                return number(value, digits)
    return number(value)


def duration(seconds: float) -> str:
    """A time that somebody waits: 0.3 s, 42 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 0.05:
        return "under 0.1 s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    large, small, names = (
        (whole // 60, whole % 60, ("min", "s"))
        if whole < 3600
        else (whole // 3600, whole % 3600 // 60, ("h", "min"))
    )
    return f"{large} {names[0]} {small} {names[1]}" if small else f"{large} {names[0]}"


def setting(value: Any) -> str:
    """A setting's value; whole numbers in full, since they may be seeds."""
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {setting(item)}" for key, item in value.items())
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(setting(item) for item in value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
