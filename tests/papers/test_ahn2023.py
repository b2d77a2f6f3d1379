"""Every claim and figure of Ahn et al. (2023), measured at the smallest scale."""

import pytest

from innerloop.papers import Outcome, select
from tests.papers.contract import assert_measured, assert_typeset, each

CORRECTED = {
    *("eq7", "theorem1-d1", "lemma7-unique", "section5.2-view", "section5.2-hessian"),
    *("theorem4-direction", "theorem5-direction", "section6.1-trend"),
    *("figure1", "figure3", "figure4"),
}
HOLDING = {
    *("theorem1", "lemma2", "lemma6", "lemma7", "lemma8", "lemma9", "lemma10", "theorem3"),
    *("theorem3-scalar", "theorem4", "eq26", "theorem5", "theorem5-gd++", "figure2", "layers"),
    "context-length",
}
ENTRIES = select(["ahn2023"])


def test_every_statement_of_the_paper_is_registered():
    assert {entry.id.removeprefix("ahn2023/") for entry in ENTRIES} == CORRECTED | HOLDING


@pytest.mark.parametrize("entry", each(ENTRIES))
def test_the_verdict_is_the_known_one_and_every_control_is_told_apart(entry, tmp_path):
    name = entry.id.removeprefix("ahn2023/")
    assert_measured(entry, Outcome.CORRECTED if name in CORRECTED else Outcome.HOLDS, tmp_path)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_formulas_can_be_typeset(entry):
    assert_typeset(entry)
