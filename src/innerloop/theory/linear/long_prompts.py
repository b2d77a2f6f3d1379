"""The ray at any prompt length, also where W/n is the identity up to float64's rounding.

Bounds for "large n" are often about n = 1e20. There the nodes of `mean_spectrum` all round to 1,
and 1 - a x has no correct digit near a = 1. Moments about the identity, in fractions, have them
all.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import comb
from typing import TypeVar, cast

from innerloop.theory.checks import require_count, require_number
from innerloop.theory.wishart.moments import trace_moment

LARGEST_POWER = 160
"""Of W/n - I: the moments of all lower powers go into it, a minute's work."""

Number = TypeVar("Number", float, Fraction)


def centred_moment(k: int, n: int, d: int) -> Fraction:
    """E tr (W/n - I)^k, exactly; of order n^-ceil(k/2). k is 0 or more, up to 160."""
    return _centred_moment(_require_power("k", k), require_count("n", n), require_count("d", d))


@cache
def _centred_moment(k: int, n: int, d: int) -> Fraction:
    moments = (Fraction(trace_moment(j, n, d), n**j) for j in range(k + 1))
    return sum((comb(k, j) * (-1) ** (k - j) * m for j, m in enumerate(moments)), Fraction(0))


def residual_moment(gap: Number, power: int, n: int, d: int) -> Number:
    """E tr (I - a W/n)^power with a = 1 - gap: exact if `gap` is a fraction or a whole number.

    I - a W/n = gap I - a (W/n - I), expanded in powers of the second term.
    """
    require_number("gap", gap)
    power = _require_power("power", power)
    n, d = require_count("n", n), require_count("d", d)
    number = _number_of(gap)
    terms = (
        comb(power, k) * gap ** (power - k) * (gap - 1) ** k * number(_centred_moment(k, n, d))
        for k in range(power + 1)
    )
    return sum(terms, number(0))


def long_prompt_risk(gap: Number, loops: int, n: int, d: int) -> Number:
    """E tr (I - a W/n)^{2L}: the loss of L loops with A = a Sigma^-1, a = 1 - gap."""
    loops = _require_loops(loops)
    return residual_moment(gap, 2 * loops, n, d)


def long_prompt_slope(gap: Number, loops: int, n: int, d: int) -> Number:
    """The derivative of `long_prompt_risk` in the gap: 2L E tr (W/n) (I - a W/n)^{2L-1}.

    W/n = I + (W/n - I): the moment of the odd power, and that of the odd power times W/n - I.
    """
    require_number("gap", gap)
    loops, n, d = _require_loops(loops), require_count("n", n), require_count("d", d)
    number, odd = _number_of(gap), 2 * loops - 1
    terms = (
        comb(odd, k)
        * gap ** (odd - k)
        * (gap - 1) ** k
        * number(_centred_moment(k, n, d) + _centred_moment(k + 1, n, d))
        for k in range(odd + 1)
    )
    return 2 * loops * sum(terms, number(0))


def optimal_gap(loops: int, n: int, d: int, *, digits: int = 12) -> Fraction:
    """1 - a* of the best looped step (see `theory.looped`), to 1 to 1000 correct digits.

    The slope changes sign once, between gap 0 and 1: by bisection of a fraction.
    """
    loops, n, d = _require_loops(loops), require_count("n", n), require_count("d", d)
    digits = require_count("digits", digits, most=1000, why="each takes fractions twice as long")
    low, high = Fraction(0), Fraction(1)
    while high - low > high / 10**digits:
        # The gap is about 1/n: until it is bracketed, large strides find its size.
        middle = (low + high) / 2 if low else high / 16
        if long_prompt_slope(middle, loops, n, d) > 0:
            high = middle
        else:
            low = middle
    return (low + high) / 2


def _require_power(name: str, power: int) -> int:
    return require_count(
        name, power, least=0, most=LARGEST_POWER, why="its exact moments take minutes"
    )


def _require_loops(loops: int) -> int:
    most = LARGEST_POWER // 2
    return require_count("loops", loops, most=most, why="their exact moments take minutes")


def _number_of(gap: Number) -> type[Number]:
    """What to compute in: a whole number is a fraction, as an int would cut the moments off."""
    return cast(type[Number], Fraction) if isinstance(gap, int) else type(gap)
