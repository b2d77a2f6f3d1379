"""What must be true of every claim and figure of every paper."""

import math
from pathlib import Path

from innerloop.papers import Entry, Outcome, Scale
from innerloop.report import to_mathml
from innerloop.report.findings import FINDINGS
from innerloop.report.plot_style import drawn
from innerloop.reproduction.reproduce import reproduce
from innerloop.runs import RunStore


def assert_measured(entry: Entry, expected: Outcome, folder: Path) -> None:
    """At the smallest scale: the known verdict, controls told apart, all of it can be shown."""
    result = reproduce(entry, Scale.SMOKE, RunStore(folder))
    assert not result.verdict.error
    checks = [*result.verdict.printed, *result.verdict.corrected]
    assert checks
    assert all(check.separates and check.decides for check in checks)
    assert all(math.isfinite(check.measured) for check in checks)
    assert result.outcome == expected
    correction = result.verdict.correction
    for formula in [correction.printed, correction.corrected] if correction else []:
        assert "<math" in to_mathml(formula)
    for finding in FINDINGS:
        if finding.id == entry.id:
            assert finding.outcome == expected
            assert any(character.isdigit() for character in finding.sentence(result))
    if entry.draw is not None:
        assert drawn(entry.draw, result.tables).svg.lstrip().startswith("<?xml")


def assert_as_trained(entry: Entry, expected: Outcome, folder: Path) -> None:
    """Of a figure whose trainings are all recorded, and do not show all that is said of them."""
    result = reproduce(entry, Scale.SMOKE, RunStore(folder))
    assert not result.verdict.error
    assert not result.verdict.missing
    assert result.outcome == expected
    assert drawn(entry.draw, result.tables).svg.lstrip().startswith("<?xml")


def assert_waiting(entry: Entry, folder: Path) -> None:
    """Of a figure whose trainings are not all recorded: no verdict, and what they would take."""
    result = reproduce(entry, Scale.SMOKE, RunStore(folder))
    assert result.outcome == Outcome.INCONCLUSIVE
    assert "have no record" in result.verdict.missing
    assert "core-hours" in result.verdict.missing


def assert_typeset(entry: Entry) -> None:
    assert not entry.formula or "<math" in to_mathml(entry.formula)
