"""The claims of Zhang et al. (2023) on the convergence of gradient flow, at the smallest scale."""

import pytest

from innerloop.papers import Outcome, entries
from tests.papers.contract import assert_measured, assert_typeset

CORRECTED = {"lemma5.1-eigenvalues", "lemmaC.8"}
HOLDING = {
    *("lemma5.1", "lemma5.2", "lemma5.3", "lemma5.4"),
    *("lemmaA.1", "corollaryA.2", "lemmaA.3", "lemmaA.4", "lemmaA.5"),
    *("lemmaC.1", "corollaryC.2", "lemmaC.3", "lemmaC.4", "lemmaC.5", "lemmaC.6", "lemmaC.7"),
    *("lemmaD.1", "lemmaD.2", "lemmaD.3", "lemmaD.4"),
    *("theorem4.1", "theorem4.1-any-scale", "theorem4.5", "theorem4.5-nondiagonal"),
    "gradient-flow",
}
IDS = [f"zhang2023/{name}" for name in sorted(CORRECTED | HOLDING)]


@pytest.mark.parametrize("id", IDS)
def test_the_verdict_is_the_known_one_and_every_control_is_told_apart(id, tmp_path):
    name = id.removeprefix("zhang2023/")
    expected = Outcome.CORRECTED if name in CORRECTED else Outcome.HOLDS
    assert_measured(entries()[id], expected, tmp_path)


@pytest.mark.parametrize("id", IDS)
def test_formulas_can_be_typeset(id):
    assert_typeset(entries()[id])
