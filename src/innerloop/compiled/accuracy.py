"""How finely softmax multiplies: c and C chosen, the error to expect, and what cannot be had.

A pair of heads computes sum_i v_i z_i with a relative error of three parts, in units of |v| Z where
Z is the size of the products z_i:

    a (c Z)^2          the Taylor series of softmax, a = 1/6 with sinks and 2/3 with mirrored tokens
    c Z / 2, (c Z)^4   the same for the printed heads c and 0 of Lemma A.2, and for four heads
    u max(1, C) / c Z  rounding: a stable softmax computes exp(z - C), whose argument has the
                       rounding error u C, u = 2^-53 in float64 and 2^-24 in float32
    e^-C               what the sinks do not hold

"Arbitrarily close" is a statement about exact arithmetic: at a given precision there is a best c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from innerloop.compiled.primitives import ANTISYMMETRIC, PRINTED, REFINED, Scheme

Form = Literal["mirrored", "refined", "sinks", "refined-sinks", "printed"]
MIRRORED = ("mirrored", "refined")
"""Forms whose label tokens are mirror images: no sinks."""


@dataclass(frozen=True)
class _Series:
    """The Taylor error coefficient (c Z)^order of a form, and its heads."""

    order: int
    coefficient: float
    scheme: Scheme


FORMS: dict[str, _Series] = {
    "mirrored": _Series(2, 2 / 3, ANTISYMMETRIC),
    "refined": _Series(4, 1.0, REFINED),
    "sinks": _Series(2, 1 / 6, ANTISYMMETRIC),
    "refined-sinks": _Series(4, 1.0, REFINED),
    "printed": _Series(1, 1 / 2, PRINTED),
}
WANTED = {torch.float64: 1e-6, torch.float32: 1e-2}
"""The largest error that is accepted unless asked otherwise, relative to the labels' size."""


@dataclass(frozen=True)
class Precision:
    """The constants of one pair of heads, and the error that they cost."""

    c: float
    sink: float
    """C, the logit of sinks; 0 without them."""
    error: float
    """Expected of one sum, relative to |v| Z."""
    scheme: Scheme
    """Of the heads."""

    @property
    def factor(self) -> float:
        """By which values are multiplied: e^C with sinks."""
        return math.exp(self.sink)


def precision(
    form: Form,
    size: float,
    dtype: torch.dtype = torch.float64,
    *,
    c: float | None = None,
    sink: float | None = None,
) -> Precision:
    """The best c and C for products of this size, or those given with the error that they have."""
    if dtype not in WANTED:
        known = ", ".join(str(d) for d in WANTED)
        raise ValueError(f"dtype must be one of {known}, got {dtype}")
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
    if not 0 < size < math.inf:
        raise ValueError(f"size must be positive and finite, got {size}")
    for name, value in (("c", c), ("sink", sink)):
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name} must be positive and finite, got {value}")
    unit = torch.finfo(dtype).eps / 2
    if form in MIRRORED:
        if sink is not None:
            with_sinks = ", ".join(name for name in FORMS if name not in MIRRORED)
            raise ValueError(
                f"sink goes with the forms {with_sinks}, got {sink:g} with form {form}: mirror "
                "images need no sinks"
            )
        sink = 0.0
    elif sink is None:
        sink = float(round(-math.log(unit)))
    rounding = unit * max(1.0, sink)
    order, a = FORMS[form].order, FORMS[form].coefficient
    if c is None:  # where the derivative of a (c Z)^order + rounding / (c Z) is 0
        c = (rounding / (order * a)) ** (1 / (order + 1)) / size
    if sink - math.log(c) > math.log(torch.finfo(dtype).max) / 2:
        raise ValueError(
            f"sink = {sink:g} with c = {c:g} makes weights e^C / c that {dtype} cannot hold in a "
            "square; choose a smaller sink"
        )
    error = a * (c * size) ** order + rounding / (c * size)
    return Precision(c, sink, error + (math.exp(-sink) if sink else 0.0), FORMS[form].scheme)


def require_error(
    error: float, dtype: torch.dtype, wanted: float | None, loops: int, *, measured: bool = False
) -> None:
    """Refuses what this precision cannot give; `error` is expected, or was measured."""
    bound = WANTED[dtype] if wanted is None else wanted
    if not bound > 0:
        raise ValueError(f"error must be positive, got {bound}")
    if not error <= bound:  # nor what is not a number
        found = "was measured" if measured else "is to be expected"
        raise ValueError(
            f"after {loops} loops in {str(dtype).removeprefix('torch.')} an error of about "
            f"{error:.1g} {found}, above the {bound:g} that is asked for; take fewer "
            "loops, float64, or a larger error"
        )
