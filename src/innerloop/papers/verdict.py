"""What a check of a paper's statement returns: numbers, a tolerance, a control, a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

T = TypeVar("T")
SIGMAS = 4.0
"""Standard errors that a sampled number must be away from its tolerance to decide anything. Chance
goes further once in 16,000 checks; an error that is itself of few values is widened for it."""


class Scale(StrEnum):
    """How much work a claim or figure may do."""

    SMOKE = "smoke"
    """Seconds; what the tests run."""
    QUICK = "quick"
    """Minutes on two CPU cores."""
    PAPER = "paper"
    """The paper's own settings."""

    def pick(self, *, smoke: T, quick: T, paper: T) -> T:
        """The one of three settings that belongs to this scale."""
        return {Scale.SMOKE: smoke, Scale.QUICK: quick, Scale.PAPER: paper}[self]


class Outcome(StrEnum):
    HOLDS = "holds"
    CORRECTED = "holds as corrected"
    FAILS = "fails"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"
    """It could not be measured; the others were."""


@dataclass(frozen=True)
class Check:
    """One measured number against its tolerance, with a control measured in the same way.

    It passes if measured <= tolerance (or >=, with `at_least`). The control is the same quantity
    for a learner or setting of which the claim is false: a control that passes as well shows that
    the check could not have failed.
    """

    quantity: str
    """What was measured, in a few words."""
    measured: float
    tolerance: float
    control: float
    why: str
    """Where the tolerance comes from: float precision, a standard error, the claim itself."""
    control_is: str
    """What the control is, in a few words."""
    at_least: bool = False
    case: str = ""
    """Of what it was measured, in a few words."""
    standard_error: float = 0.0
    """Of the measurement, if it is sampled and the tolerance does not count it already."""
    control_error: float = 0.0

    def __post_init__(self) -> None:
        for name in ("measured", "tolerance", "control", "standard_error", "control_error"):
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def name(self) -> str:
        """The quantity and its case, in one line."""
        return f"{self.quantity}: {self.case}" if self.case else self.quantity

    def accepts(self, value: float) -> bool:
        """Whether this value would pass; NaN never does."""
        return value >= self.tolerance if self.at_least else value <= self.tolerance

    @property
    def passes(self) -> bool:
        return self.accepts(self.measured)

    @property
    def decides(self) -> bool:
        """Whether chance could not have turned the measurement to the other side."""
        sure = SIGMAS * self.standard_error
        return self.accepts(self.measured - sure) == self.accepts(self.measured + sure)

    @property
    def separates(self) -> bool:
        """Whether the control is told apart; a control that was not measured (NaN) is not."""
        sure = SIGMAS * self.control_error
        values = (self.control - sure, self.control + sure)
        return not any(math.isnan(value) or self.accepts(value) for value in values)


class Kind(StrEnum):
    """What a correction corrects; the heaviest first."""

    STATEMENT = "a statement that is false as printed"
    PROOF = "a step of a proof"
    SENTENCE = "a sentence about a figure or an experiment"
    CONSTANT = "a constant"
    MISPRINT = "a misprint"


@dataclass(frozen=True)
class Correction:
    """A printed statement that is off, and what takes its place. Formulas are LaTeX."""

    printed: str
    corrected: str
    explanation: str
    """What is wrong, in words a reader of the paper can follow."""
    kind: Kind
    counterexample: str = ""
    """The smallest case that shows it, with its numbers, in one sentence."""


@dataclass(frozen=True)
class Verdict:
    """The outcome that follows from the checks; nobody sets it by hand.

    `printed` checks the statement as printed. Where that is off, `corrected` checks what takes its
    place, and `correction` says both in words and formulas.
    """

    printed: Sequence[Check]
    corrected: Sequence[Check] = ()
    correction: Correction | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Sizes, seeds, sample sizes: what a reader needs to judge the numbers. A task is described by
    itself."""
    remarks: Sequence[str] = ()
    """Sentences beside the numbers: misprints, departures from the paper, what is left open."""
    missing: str = ""
    """Non-empty: what this scale did not give, so that nothing can be concluded."""
    error: str = ""
    """Non-empty: why it could not be measured, as a sentence."""

    def __post_init__(self) -> None:
        described = {k: v if _is_plain(v) else str(v) for k, v in self.settings.items()}
        object.__setattr__(self, "settings", described)

    @property
    def outcome(self) -> Outcome:
        if self.error:
            return Outcome.ERROR
        if self.missing or not self.printed:
            return Outcome.INCONCLUSIVE
        if _shown(self.printed):
            return Outcome.HOLDS
        # A statement of several parts is refuted by one of them, whatever is open in the others.
        if not _refuted(self.printed):
            return Outcome.INCONCLUSIVE
        if self.corrected and _shown(self.corrected):
            return Outcome.CORRECTED
        if self.corrected and not _refuted(self.corrected):
            return Outcome.INCONCLUSIVE
        return Outcome.FAILS


def _shown(checks: Sequence[Check]) -> bool:
    return all(check.separates and check.decides and check.passes for check in checks)


def _refuted(checks: Sequence[Check]) -> bool:
    return any(check.separates and check.decides and not check.passes for check in checks)


def _is_plain(value: Any) -> bool:
    """Whether JSON carries it as it is."""
    return isinstance(value, str | int | float | bool | list | tuple | dict) or value is None
