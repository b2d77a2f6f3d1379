"""Every theorem and lemma of Gatmiry et al. (2024), measured at the smallest scale."""

import pytest

from innerloop.papers import Outcome, select
from tests.papers.contract import assert_measured, assert_typeset

CORRECTED = {
    *("section3.2", "proposition3.1", "theoremA.1", "lemmaA.3", "corollaryA.4", "lemma4.1"),
    *("equations16-19", "cycle-counts", "lemmaA.2", "lemma4.2", "lemmaA.5", "lemma4.3"),
    *("lemmaA.7", "equation26", "theorem3.2-rate", "theorem4.4", "lemmaA.9", "theorem3.4"),
    *("lemmaA.10", "theoremA.11", "theorem3.3", "theoremA.12", "theorem4.5", "theoremA.13"),
}
HOLDING = {"lemmaA.6", "theorem3.2", "theoremA.8", "convexity"}
OURS = {"global-min", "asymmetric", "convex-ray", "optimal-steps", "expanding"}
CLAIMS = [entry for entry in select(["gatmiry2024"]) if entry.kind == "claim"]


def test_every_statement_of_the_paper_is_registered():
    assert {claim.id.removeprefix("gatmiry2024/") for claim in CLAIMS} == (
        CORRECTED | HOLDING | OURS
    )


def test_what_is_not_in_the_paper_is_marked_as_ours():
    assert {claim.id.removeprefix("gatmiry2024/") for claim in CLAIMS if claim.ours} == OURS


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_the_verdict_is_the_known_one_and_every_control_is_told_apart(claim, tmp_path):
    name = claim.id.removeprefix("gatmiry2024/")
    assert_measured(claim, Outcome.CORRECTED if name in CORRECTED else Outcome.HOLDS, tmp_path)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_formulas_can_be_typeset(claim):
    assert_typeset(claim)
