from __future__ import annotations

import math

import pytest

from innerloop.report.number_format import duration, number, number_beside, setting


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (0.05, "0.05"),
        (1.23456, "1.235"),
        (-0.2, "−0.2"),
        (0.00123456, "0.001235"),
        (12345.6, "12,346"),
        (50000.0, "50,000"),
        (999999.9, "10⁶"),
        (1.23456e-5, "1.235 × 10⁻⁵"),
        (-2.5e12, "−2.5 × 10¹²"),
        (1e-10, "10⁻¹⁰"),
        (math.nan, "NaN"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
    ],
)
def test_numbers_have_four_digits_and_powers_where_needed(value: float, shown: str) -> None:
    assert number(value) == shown


def test_a_number_near_its_tolerance_gets_the_digits_that_tell_them_apart() -> None:
    assert number_beside(1.00004, 1.0) == "1.00004"
    assert number_beside(1.2, 1.0) == "1.2"
    assert number_beside(1.0, 1.0) == "1"
    assert number_beside(math.nan, 1.0) == "NaN"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.01, "under 0.1 s"),
        (0.34, "0.3 s"),
        (42.4, "42 s"),
        (59.7, "1 min"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations_are_what_a_person_would_say(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_settings_keep_whole_numbers_whole() -> None:
    assert setting(20230600297) == "20230600297"
    assert setting([1.0, 0.25]) == "1, 0.25"
    assert setting({"steps": 10, "rate": 1e-5}) == "steps = 10, rate = 10⁻⁵"
    assert setting(True) == "yes"
