"""Every claim of AlgoFormer's expressive half (Gao et al. 2024), measured at the smallest scale."""

import pytest

from innerloop.papers import Outcome, select
from tests.papers.contract import (
    assert_as_trained,
    assert_measured,
    assert_typeset,
)

CORRECTED = {"theorem3.2", "eq4", "theorem4.1", "lemmaA.5"}
HOLDING = {
    *("section2.2", "section2.2-parameters", "lemmaA.1", "lemmaA.2", "theorem3.1"),
    *("theorem3.1-ridge", "lemmaA.3", "theorem3.3", "lemmaA.4", "theorem4.2", "theorem4.2-newton"),
    *("accuracy", "siblings", "figure2a-d20"),
}
AS_TRAINED = {
    "figure2a": Outcome.INCONCLUSIVE,
    "figure2b": Outcome.FAILS,
    "figure2c": Outcome.INCONCLUSIVE,
    "same-layers": Outcome.FAILS,
    "figure3": Outcome.INCONCLUSIVE,
    "figure4": Outcome.INCONCLUSIVE,
    "figure4-loop": Outcome.INCONCLUSIVE,
    "figure5": Outcome.FAILS,
    "table1": Outcome.FAILS,
}
"""Figures whose trainings do not show all that is said of them."""
ENTRIES = select(["algoformer2024"])
MEASURED = [entry for entry in ENTRIES if entry.id.split("/")[1] in CORRECTED | HOLDING]


def test_every_statement_of_the_paper_is_registered():
    found = {entry.id.removeprefix("algoformer2024/") for entry in ENTRIES}
    assert found == CORRECTED | HOLDING | AS_TRAINED.keys()


@pytest.mark.parametrize("name", AS_TRAINED)
def test_what_trainings_do_not_show_is_not_said(name, tmp_path):
    (entry,) = select([f"algoformer2024/{name}"])
    assert_as_trained(entry, AS_TRAINED[name], tmp_path)


@pytest.mark.parametrize("entry", MEASURED, ids=lambda entry: entry.id)
def test_the_verdict_is_the_known_one_and_every_control_is_told_apart(entry, tmp_path):
    name = entry.id.removeprefix("algoformer2024/")
    assert_measured(entry, Outcome.CORRECTED if name in CORRECTED else Outcome.HOLDS, tmp_path)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_formulas_can_be_typeset(entry):
    assert_typeset(entry)
