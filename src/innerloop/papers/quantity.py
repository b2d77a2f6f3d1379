"""A quantity: one measurement, its tolerance and the reason for it, applied to named cases.

    gap = Quantity("relative gap to the best loss", lambda a: abs(loss(a) / best - 1), ROUNDING)
    cases = gap.of({"Eq. 8": printed, "Eq. 8 without the trace": near_miss})
    cases.check("Eq. 8", unlike="Eq. 8 without the trace")

or, where no number is quoted in words, in one go:

    checks("relative gap to the best loss", ROUNDING, {"Eq. 8": printed},
           unlike={"Eq. 8 without the trace": near_miss}, measure=gap)

The case that must pass and the one that must not are measured by the same function, so a control is
the same measurement by construction. A good control is a near miss: the nearest wrong formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from scipy.special import stdtrit
from torch import Tensor

from innerloop.analysis import Estimate
from innerloop.papers.verdict import SIGMAS, Check

T = TypeVar("T")
Measured = float | int | Tensor | Estimate
"""A number, or a sampled one with its standard error."""


@dataclass(frozen=True)
class Tolerance:
    """What a measurement must not exceed (or, with `at_least`, not fall below), and why."""

    bound: float
    why: str
    """Where the bound comes from: float precision, a standard error, the statement itself."""
    at_least: bool = False


def at_most(bound: float, why: str) -> Tolerance:
    return Tolerance(bound, why)


def at_least(bound: float, why: str) -> Tolerance:
    return Tolerance(bound, why, at_least=True)


ROUNDING = at_most(
    1e-10, "float64: rounding of a few hundred operations, far above 1e-16 and far below this"
)
SAMPLING = at_most(
    SIGMAS,
    f"{SIGMAS:g} standard errors: exceeded by chance with probability "
    f"{math.erfc(SIGMAS / math.sqrt(2)):.0e}",
)
INEQUALITY = at_most(
    1 + 1e-12, "the inequality itself, as a ratio of its two sides; 1e-12 is rounding"
)
FROM_BELOW = at_least(1 - 1e-12, "the inequality itself, as a ratio; 1e-12 is rounding")


def widening(freedom: int) -> float:
    """What a standard deviation that was estimated with so many degrees of freedom is multiplied
    by: SIGMAS of the product are exceeded by chance as rarely as of a deviation that is known.

    From Student's t. It is 2.5 for 6 degrees, as three seeds of three models have, and 1.3 for 20.
    """
    tail = math.erfc(SIGMAS / math.sqrt(2)) / 2
    return float(-stdtrit(freedom, tail)) / SIGMAS


@dataclass(frozen=True)
class Quantity(Generic[T]):
    """How something is measured, and what the measurement is held to."""

    name: str
    """What is measured, in a few words."""
    measure: Callable[[T], Measured]
    tolerance: Tolerance

    def of(self, cases: Mapping[str, T]) -> Cases:
        """Measures every case, in their order."""
        return Cases(self.name, self.tolerance, {k: self.measure(v) for k, v in cases.items()})


@dataclass(frozen=True)
class Cases:
    """What was measured of each case, by name."""

    quantity: str
    tolerance: Tolerance
    values: Mapping[str, Measured]

    def __getitem__(self, case: str) -> float:
        """The number measured of this case, to be quoted in words."""
        return _number_and_error(self._value(case))[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def check(self, case: str, *, unlike: str) -> Check:
        """This case must be within the tolerance, and the other one must not be."""
        measured, error = _number_and_error(self._value(case))
        control, control_error = _number_and_error(self._value(unlike))
        return Check(
            self.quantity,
            measured,
            self.tolerance.bound,
            control,
            self.tolerance.why,
            unlike,
            self.tolerance.at_least,
            case=case,
            standard_error=error,
            control_error=control_error,
        )

    def _value(self, case: str) -> Measured:
        if case not in self.values:
            raise KeyError(f"{case!r} is no case of {self.quantity!r}: {', '.join(self.values)}")
        return self.values[case]


def measured(name: str, tolerance: Tolerance, values: Mapping[str, Measured]) -> Cases:
    """Cases whose numbers are there already, such as those of a figure's table."""
    return Quantity[Measured](name, _as_it_is, tolerance).of(values)


def checks(
    name: str,
    tolerance: Tolerance,
    cases: Mapping[str, T],
    *,
    unlike: Mapping[str, T],
    measure: Callable[[T], Measured] | None = None,
) -> list[Check]:
    """Every case must be within the tolerance, and every near miss must not be.

    Cases and near misses stand beside each other in their order; of the shorter ones the last is
    repeated. Without `measure` they are numbers already.
    """
    measured_cases = Quantity(name, measure or _as_it_is, tolerance).of({**cases, **unlike})
    pairs = max(len(cases), len(unlike))
    right, wrong = list(cases), list(unlike)
    return [
        measured_cases.check(right[min(i, len(right) - 1)], unlike=wrong[min(i, len(wrong) - 1)])
        for i in range(pairs)
    ]


def _as_it_is(value: Any) -> Measured:
    return value


def _number_and_error(value: Measured) -> tuple[float, float]:
    if isinstance(value, Estimate):
        return value.mean, value.standard_error
    return float(value), 0.0
