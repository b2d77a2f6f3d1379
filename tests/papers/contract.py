"""What must be true of every claim and figure of every paper."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from innerloop.papers import Entry, Outcome, Scale
from innerloop.report import to_mathml
from innerloop.report.findings import FINDINGS
from innerloop.report.plot_style import drawn
from innerloop.reproduction.reproduce import reproduce
from innerloop.runs import RunStore

LONG = {
    *("ahn2023/figure1", "ahn2023/figure3", "ahn2023/section6.1-trend", "ahn2023/layers"),
    *("gatmiry2024/figure4", "yang2024/figure2a", "yang2024/figure2b", "yang2024/figure4"),
}
"""Entries that train for longer than five seconds at the smallest scale. A whole reproduction
measures them at the next one."""


def each(entries: Iterable[Entry]) -> list[Any]:
    """As parameters of a test that measures them."""
    return [
        pytest.param(entry, id=entry.id, marks=[pytest.mark.slow] if entry.id in LONG else [])
        for entry in entries
    ]


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


def assert_typeset(entry: Entry) -> None:
    assert not entry.formula or "<math" in to_mathml(entry.formula)
