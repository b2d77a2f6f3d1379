"""Every claim and figure of Ahn et al. (2023), measured at the smallest scale."""

import math

import pytest

from innerloop.papers import Figure, Outcome, Scale, select
from innerloop.papers.reproduce import reproduce
from innerloop.report import to_mathml
from innerloop.report.plot_style import drawn
from innerloop.runs import RunStore

CORRECTED = {"theorem1-d1", "theorem4-direction", "figure1", "figure3"}
HOLDING = {
    *("lemma2", "theorem1", "lemma6", "lemma7", "theorem3", "theorem4", "theorem5", "lemma8"),
    *("lemma9", "lemma10", "figure2", "figure4", "layers", "context-length"),
}
ENTRIES = select(["ahn2023"])


def test_every_statement_of_the_paper_is_registered():
    assert {entry.id.removeprefix("ahn2023/") for entry in ENTRIES} == CORRECTED | HOLDING


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_the_verdict_is_the_known_one_and_every_control_is_told_apart(entry, tmp_path):
    result = reproduce(entry, Scale.SMOKE, RunStore(tmp_path))
    checks = [*result.verdict.printed, *result.verdict.corrected]
    assert checks
    assert all(check.separates for check in checks)
    assert all(math.isfinite(check.measured) for check in checks)
    name = entry.id.removeprefix("ahn2023/")
    assert result.outcome == (Outcome.CORRECTED if name in CORRECTED else Outcome.HOLDS)
    correction = result.verdict.correction
    for formula in [correction.printed, correction.corrected] if correction else []:
        assert "<math" in to_mathml(formula)
    if isinstance(entry, Figure):
        assert drawn(entry.draw, result.tables).svg.lstrip().startswith("<?xml")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_formulas_can_be_typeset(entry):
    formula = getattr(entry, "formula", "")
    assert not formula or "<math" in to_mathml(formula)
