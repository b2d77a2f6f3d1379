import math

import pytest
import torch
from scipy.integrate import dblquad
from scipy.stats import chi2

from innerloop.theory.wishart import largest_eigenvalue_exceeds, sample_wishart
from tests.samples import assert_means, seeded


@pytest.mark.parametrize("n", [1, 2, 5, 30, 200])
def test_one_dimension_is_chi_squared(n):
    for value in (0.1 * n, n, 2 * n, 3 * n + 10):
        exact = chi2.sf(value, n)
        assert largest_eigenvalue_exceeds(value, n, 1) == pytest.approx(exact, abs=1e-10)


@pytest.mark.parametrize(("n", "value"), [(2, 4.0), (5, 6.0), (5, 15.0), (12, 20.0)])
def test_two_dimensions_are_the_integral_of_the_joint_density(n, value):
    def density(small, large):
        return (large - small) * (large * small) ** ((n - 3) / 2) * math.exp(-(large + small) / 2)

    below, total = (
        dblquad(density, 0, end, 0, lambda large: large, epsabs=1e-9, epsrel=1e-9)[0]
        for end in (value, 150.0)
    )
    exact = 1 - below / total
    assert largest_eigenvalue_exceeds(value, n, 2) == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize(("n", "d"), [(6, 3), (20, 10), (3, 6), (40, 7), (9, 9)])
def test_sampled_matrices_exceed_as_often(n, d):
    largest = torch.linalg.eigvalsh(sample_wishart(30_000, n, d, generator=seeded(n)))[:, -1]
    for quantile in (0.3, 0.9, 0.99):
        value = largest.quantile(quantile).item() * 1.01
        assert_means((largest > value).double(), largest_eigenvalue_exceeds(value, n, d))


def test_examples_and_dimensions_are_exchangeable():
    assert largest_eigenvalue_exceeds(30.0, 4, 9) == largest_eigenvalue_exceeds(30.0, 9, 4)


def test_the_probability_falls_from_one_to_zero():
    values = [largest_eigenvalue_exceeds(v, 12, 5) for v in (-1.0, 0.0, 10, 20, 30, 60, 1e4)]
    assert values[0] == values[1] == 1
    assert values[-1] == 0
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize(("n", "d"), [(0, 3), (3, 0)])
def test_sizes_below_one_are_refused(n, d):
    with pytest.raises(ValueError, match=r"[nd] must be at least 1, got 0"):
        largest_eigenvalue_exceeds(1.0, n, d)


def test_a_value_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="value must be a number, got nan"):
        largest_eigenvalue_exceeds(math.nan, 5, 2)
