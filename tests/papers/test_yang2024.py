"""Every claim and figure of Yang et al. (2024), measured at the smallest scale."""

from functools import cached_property

import pytest

from innerloop import theory
from innerloop.papers import Outcome, Scale, select
from tests.papers.contract import assert_measured, assert_typeset, each

CORRECTED = {
    *("lemma5", "lemma10", "eq17", "eq49", "ybest", "underfit", "rate-heads"),
    *("figure2a", "figure3", "figure4"),
}
HOLDING = {
    *("eq8", "lemma1", "lemma2", "lemma3", "lemma4", "lemma6", "lemma7", "lemma8", "lemma9"),
    *("eq26", "eq62", "eq68-69", "proposition1", "theorem1", "theorem2", "one-head"),
    *("rate-tokens", "unit-tokens", "figure2b", "figure5", "theorem1-path"),
}
OURS = {"unit-tokens"}
ENTRIES = select(["yang2024"])


def test_every_statement_of_the_paper_is_registered():
    assert {entry.id.removeprefix("yang2024/") for entry in ENTRIES} == CORRECTED | HOLDING


@pytest.mark.parametrize("entry", each(ENTRIES))
def test_the_verdict_is_the_known_one_and_every_control_is_told_apart(entry, tmp_path):
    name = entry.id.removeprefix("yang2024/")
    assert_measured(entry, Outcome.CORRECTED if name in CORRECTED else Outcome.HOLDS, tmp_path)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_formulas_can_be_typeset(entry):
    assert_typeset(entry)


def test_what_the_paper_does_not_say_is_marked():
    assert {entry.id.removeprefix("yang2024/") for entry in ENTRIES if entry.ours} == OURS


@pytest.mark.parametrize("name", ["lemma5", "figure3"])
def test_a_wrong_optimum_is_found_out(name, monkeypatch):
    right = theory.softmax.DictionaryRisk.optimum.func

    def halved(risk):
        optimum = right(risk).clone()
        optimum[:, risk.shown :] /= 2
        return optimum

    wrong = cached_property(halved)
    wrong.__set_name__(theory.softmax.DictionaryRisk, "optimum")
    monkeypatch.setattr(theory.softmax.DictionaryRisk, "optimum", wrong)
    (entry,) = select([f"yang2024/{name}"])
    assert entry.measure(Scale.SMOKE).verdict.outcome == Outcome.FAILS
