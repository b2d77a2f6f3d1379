from fractions import Fraction

import pytest
import torch

from innerloop.theory.linear import (
    centred_moment,
    gap_constant,
    long_prompt_risk,
    long_prompt_slope,
    looped_optimum,
    optimal_gap,
    ray_risk,
    residual_moment,
)
from innerloop.theory.wishart import mean_spectrum
from tests.samples import DOUBLE


def test_the_first_centred_moments_are_known():
    # E tr (W/n - I) = 0, E tr (W/n - I)^2 = d (d + 1) / n
    assert centred_moment(0, 7, 3) == 3
    assert centred_moment(1, 7, 3) == 0
    assert centred_moment(2, 7, 3) == Fraction(12, 7)


@pytest.mark.parametrize("k", range(7))
def test_centred_moments_are_integrals_over_the_mean_spectrum(k):
    spectrum = mean_spectrum(9, 4, 6)
    exact = spectrum((spectrum.nodes - 1) ** k).item()
    assert float(centred_moment(k, 9, 4)) == pytest.approx(exact, rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("loops", [1, 2, 3])
def test_the_risk_is_that_of_the_ray(loops):
    steps = torch.full((loops,), 0.7, dtype=DOUBLE)
    exact = ray_risk(steps, 20, 5).item()
    assert long_prompt_risk(0.3, loops, 20, 5) == pytest.approx(exact, rel=1e-12)
    assert float(long_prompt_risk(Fraction(3, 10), loops, 20, 5)) == pytest.approx(exact, rel=1e-12)


def test_fractions_stay_fractions():
    value = long_prompt_risk(Fraction(3, 10), 2, 20, 5)
    assert isinstance(value, Fraction)
    assert isinstance(long_prompt_slope(Fraction(3, 10), 2, 20, 5), Fraction)
    assert isinstance(residual_moment(0.3, 3, 20, 5), float)


@pytest.mark.parametrize("gap", [0.0, 0.3, 1.0, -0.5])
def test_the_slope_is_the_derivative_of_the_risk(gap):
    exact = Fraction(gap)
    step = Fraction(1, 10**8)
    ahead, behind = (long_prompt_risk(exact + s * step, 2, 20, 5) for s in (1, -1))
    difference = float((ahead - behind) / (2 * step))
    assert long_prompt_slope(gap, 2, 20, 5) == pytest.approx(difference, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("loops", "n", "d"), [(1, 10, 5), (2, 20, 5), (3, 100, 5), (5, 50, 10)])
def test_the_optimal_gap_is_that_of_the_looped_optimum(loops, n, d):
    best = looped_optimum(loops, n, d)
    gap = optimal_gap(loops, n, d)
    assert float(gap) == pytest.approx(1 - best.steps[0].item(), rel=1e-10)
    assert float(long_prompt_risk(gap, loops, n, d)) == pytest.approx(best.risk, rel=1e-12)


def test_one_loop_has_a_closed_form_at_any_length():
    # a* = n / (n + d + 1)
    for n in (10, 10**9, 10**30):
        assert float(optimal_gap(1, n, 4) * (n + 5)) == pytest.approx(5, rel=1e-11)


def test_the_gap_tends_to_its_constant_far_beyond_float_precision():
    n = 10**30
    for loops in (1, 2, 4):
        assert float(optimal_gap(loops, n, 3) * n) == pytest.approx(
            float(gap_constant(loops, 3)), rel=1e-11
        )
    # There W/n - I has fluctuations of 1e-15, and the loss of two loops is 1e-60 or so.
    risk = float(long_prompt_risk(optimal_gap(2, n, 3), 2, n, 3))
    assert risk == pytest.approx(float(centred_moment(4, n, 3)), rel=1e-6)


def test_a_whole_gap_is_a_fraction():
    for gap in (0, 1, -1):
        risk, slope = long_prompt_risk(gap, 2, 20, 3), long_prompt_slope(gap, 2, 20, 3)
        assert risk == long_prompt_risk(Fraction(gap), 2, 20, 3)
        assert slope == long_prompt_slope(Fraction(gap), 2, 20, 3)
    assert float(long_prompt_risk(0, 2, 20, 3)) == pytest.approx(0.3465)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: optimal_gap(0, 20, 3), "loops must be at least 1, got 0"),
        (lambda: optimal_gap(2, 0, 3), "n must be at least 1, got 0"),
        (lambda: optimal_gap(2, 20, 0), "d must be at least 1, got 0"),
        (lambda: long_prompt_risk(0.1, 0, 20, 3), "loops must be at least 1, got 0"),
        (lambda: long_prompt_slope(0.1, -1, 20, 3), "loops must be at least 1, got -1"),
        (lambda: long_prompt_risk(0.1, 2, 0, 3), "n must be at least 1, got 0"),
        (lambda: long_prompt_slope(0.1, 2, 20, 0), "d must be at least 1, got 0"),
    ],
)
def test_impossible_sizes_are_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
