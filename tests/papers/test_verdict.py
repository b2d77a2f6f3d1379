import pytest
import torch

from innerloop.papers import Check, Correction, Kind, Outcome, Scale, Verdict


def check(measured, control=5.0, tolerance=1.0, **words):
    return Check("error", measured, tolerance, control, "float64", "a plain step", **words)


GOOD, BAD, BLIND = check(0.5), check(3.0), check(0.5, control=0.9)
CORRECTION = Correction("a = b", "a = 2 b", "a factor is missing", Kind.CONSTANT)


@pytest.mark.parametrize(("measured", "passes"), [(0.5, True), (1.0, True), (1.001, False)])
def test_a_check_passes_up_to_its_tolerance(measured, passes):
    assert check(measured).passes == passes


@pytest.mark.parametrize(("measured", "passes"), [(0.5, False), (1.0, True), (1.001, True)])
def test_a_check_may_ask_for_at_least(measured, passes):
    assert check(measured, at_least=True).passes == passes


@pytest.mark.parametrize("at_least", [False, True])
def test_nan_never_passes(at_least):
    assert not check(float("nan"), at_least=at_least).passes
    assert not check(0.5, tolerance=float("nan"), at_least=at_least).passes
    assert not check(float("nan"), at_least=at_least).accepts(float("nan"))


@pytest.mark.parametrize("at_least", [False, True])
def test_a_control_that_is_nan_tells_nothing_apart(at_least):
    assert not check(0.5, control=float("nan"), at_least=at_least).separates


def test_a_control_that_would_pass_as_well_is_seen():
    assert check(0.5, control=1.5).separates
    assert not check(0.5, control=1.0).separates
    assert check(2.0, control=0.5, at_least=True).separates
    assert not check(2.0, control=1.5, at_least=True).separates


def test_measurements_become_plain_numbers():
    measured = check(torch.tensor(0.5, dtype=torch.float64), control=5)
    assert type(measured.measured) is float
    assert type(measured.control) is float


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        (Verdict([GOOD]), Outcome.HOLDS),
        (Verdict([GOOD, GOOD]), Outcome.HOLDS),
        (Verdict([GOOD], [BAD], CORRECTION), Outcome.HOLDS),
        (Verdict([BAD]), Outcome.FAILS),
        (Verdict([GOOD, BAD]), Outcome.FAILS),
        (Verdict([check(float("nan"))]), Outcome.FAILS),
        (Verdict([BAD], [BAD], CORRECTION), Outcome.FAILS),
        (Verdict([BAD], [GOOD, check(float("nan"))], CORRECTION), Outcome.FAILS),
        (Verdict([BAD], [GOOD], CORRECTION), Outcome.CORRECTED),
        (Verdict([GOOD, BAD], [GOOD, GOOD], CORRECTION), Outcome.CORRECTED),
        (Verdict([GOOD], missing="a longer run"), Outcome.INCONCLUSIVE),
        (Verdict([BAD], missing="a longer run"), Outcome.INCONCLUSIVE),
        (Verdict([BLIND]), Outcome.INCONCLUSIVE),
        (Verdict([GOOD, BLIND]), Outcome.INCONCLUSIVE),
        (Verdict([BAD], [BLIND], CORRECTION), Outcome.INCONCLUSIVE),
    ],
)
def test_the_outcome_follows_from_the_checks(verdict, outcome):
    assert verdict.outcome is outcome


def test_nothing_checked_is_not_a_claim_that_holds():
    assert Verdict([]).outcome is Outcome.INCONCLUSIVE


def test_a_scale_picks_its_setting():
    settings = {"smoke": 1, "quick": 2, "paper": 3}
    assert [scale.pick(**settings) for scale in Scale] == [1, 2, 3]
    assert [str(scale) for scale in Scale] == list(settings)
