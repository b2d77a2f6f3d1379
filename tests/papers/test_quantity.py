"""Quantities: the case that must pass and the one that must not, measured by one function."""

import math

import numpy as np
import pytest
from scipy import stats

from innerloop.analysis import Estimate
from innerloop.papers import Outcome, Quantity, Verdict
from innerloop.papers.quantity import (
    SAMPLING,
    at_least,
    at_most,
    checks,
    measured,
    widening,
)

GAP = Quantity("gap", lambda a: abs(a - 1), at_most(0.1, "because"))


def test_a_check_holds_both_cases_to_one_measurement():
    check = GAP.of({"right": 1.05, "near miss": 1.2}).check("right", unlike="near miss")
    assert check.measured == pytest.approx(0.05)
    assert check.control == pytest.approx(0.2)
    assert (check.name, check.control_is, check.why) == ("gap: right", "near miss", "because")
    assert check.passes
    assert check.separates
    assert Verdict([check]).outcome == Outcome.HOLDS


def test_a_case_that_was_not_measured_is_named():
    with pytest.raises(KeyError, match="'wrong' is no case of 'gap': right"):
        GAP.of({"right": 1.0}).check("right", unlike="wrong")


@pytest.mark.parametrize(
    ("estimate", "outcome"),
    [
        (Estimate(0.7, 0.05, 100), Outcome.HOLDS),
        (Estimate(0.9, 0.05, 100), Outcome.INCONCLUSIVE),
        (Estimate(1.1, 0.05, 100), Outcome.INCONCLUSIVE),
        (Estimate(1.3, 0.05, 100), Outcome.FAILS),
    ],
)
def test_a_sampled_number_near_its_tolerance_decides_nothing(estimate, outcome):
    cases = measured("ratio", at_most(1, "why"), {"ours": estimate, "other": 2.0})
    assert Verdict([cases.check("ours", unlike="other")]).outcome == outcome


def test_a_control_within_its_error_of_the_tolerance_is_not_told_apart():
    cases = measured("ratio", at_least(1, "why"), {"ours": 2.0, "other": Estimate(0.9, 0.05, 100)})
    check = cases.check("ours", unlike="other")
    assert not check.separates
    assert Verdict([check]).outcome == Outcome.INCONCLUSIVE


def test_numbers_of_cases_can_be_quoted():
    cases = measured("z", SAMPLING, {"a": Estimate(0.5, 0.1, 9), "b": 7})
    assert [cases[name] for name in cases] == [0.5, 7.0]


def test_checks_stand_every_case_beside_a_near_miss():
    pairs = [
        (check.case, check.control_is, check.measured)
        for check in checks(
            "gap",
            at_most(0.1, "because"),
            {"a": 1.0, "b": 1.05},
            unlike={"c": 2.0},
            measure=lambda value: abs(value - 1),
        )
    ]
    assert pairs == [("a", "c", 0.0), ("b", "c", pytest.approx(0.05))]
    several = checks("number", at_most(1, "because"), {"a": 0.0}, unlike={"b": 2.0, "c": 3.0})
    assert [(check.case, check.control_is) for check in several] == [("a", "b"), ("a", "c")]


@pytest.mark.parametrize("freedom", [2, 6, 20])
def test_four_widened_errors_of_few_values_are_as_rare_as_four_known_ones(freedom):
    known = math.erfc(4 / math.sqrt(2))
    assert 2 * stats.t.sf(4 * widening(freedom), freedom) == pytest.approx(known, rel=1e-6)


def test_with_many_values_nothing_is_widened():
    assert widening(10**6) == pytest.approx(1, abs=1e-4)


def test_means_of_few_values_that_are_alike_are_hardly_ever_told_apart():
    # Means of three values each, and the deviation that all nine have around their means.
    values = np.random.default_rng(0).standard_normal((100_000, 3, 3))
    pooled = np.sqrt(values.var(2, ddof=1).mean(1))
    error = widening(6) * pooled * math.sqrt(2 / 3)
    far = np.abs(values[:, 0].mean(1) - values[:, 1].mean(1)) > 4 * error
    assert far.sum() <= 20  # 6 are expected; without widening some 700
