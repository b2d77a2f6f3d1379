from fractions import Fraction

import numpy as np
import pytest
import torch

from innerloop.theory.wishart import moment_eigenvalues, residual_eigenvalues, trace_moment
from tests.samples import DOUBLE, assert_means, seeded
from tests.theory.pairings import word_expectation

SPECTRUM = [Fraction(6, 5), Fraction(1, 2), Fraction(3, 10)]


@pytest.mark.parametrize(("n", "k"), [(1, 1), (1, 4), (5, 2), (5, 3), (7, 4), (2, 5)])
def test_moments_are_the_sum_over_all_pairings(n, k):
    values = np.array([float(v) for v in SPECTRUM])
    for j, moment in enumerate(moment_eigenvalues(SPECTRUM, n, k)):
        # (W^k)_jj with W = Sigma^1/2 V Sigma^1/2 is tr(V Sigma V ... Sigma V lambda_j e_j e_j^T).
        last = np.zeros((3, 3))
        last[j, j] = values[j]
        letters = [np.diag(values)] * (k - 1) + [last]
        assert float(moment) == pytest.approx(word_expectation(letters, n) / n**k, rel=1e-12)


@pytest.mark.parametrize(("n", "d", "k"), [(7, 3, 6), (2, 5, 4), (40, 2, 9)])
def test_white_moments_add_up_to_the_moment_of_the_trace(n, d, k):
    moments = moment_eigenvalues([1] * d, n, k)
    assert sum(moments) == Fraction(trace_moment(k, n, d), n**k)
    assert len(set(moments)) == 1


def test_one_dimension_is_a_chi_squared_variable():
    # E (chi^2_n)^k = n (n + 2) ... (n + 2k - 2)
    expected = Fraction(5 * 7 * 9 * 11, 5**4)
    assert moment_eigenvalues([2], 5, 4) == (2**4 * expected,)


def test_moments_are_those_of_sampled_covariances():
    n, k = 6, 3
    root = torch.tensor([float(v) for v in SPECTRUM], dtype=DOUBLE).sqrt()
    x = torch.randn(200_000, n, 3, generator=seeded(1), dtype=DOUBLE) * root
    s = x.mT @ x / n
    powers = torch.linalg.matrix_power(s, k)
    assert_means(powers.diagonal(0, -2, -1), [float(m) for m in moment_eigenvalues(SPECTRUM, n, k)])
    off_diagonal = powers[:, [0, 0, 1], [1, 2, 2]]
    assert_means(off_diagonal, [0.0, 0.0, 0.0])


def test_second_moment_is_the_known_formula():
    # E[S^2] = Sigma^2 + (Sigma^2 + tr(Sigma) Sigma) / n
    n, trace = 9, sum(SPECTRUM)
    expected = tuple(v**2 + (v**2 + trace * v) / n for v in SPECTRUM)
    assert moment_eigenvalues(SPECTRUM, n, 2) == expected


def test_a_zero_eigenvalue_stays_zero_and_does_not_count():
    assert moment_eigenvalues([*SPECTRUM, 0], 5, 4) == (*moment_eigenvalues(SPECTRUM, 5, 4), 0)


def test_residual_moments_are_those_of_sampled_covariances():
    n, k = 8, 3
    root = torch.tensor([float(v) for v in SPECTRUM], dtype=DOUBLE).sqrt()
    x = torch.randn(200_000, n, 3, generator=seeded(2), dtype=DOUBLE) * root
    residual = torch.linalg.matrix_power(torch.eye(3, dtype=DOUBLE) - x.mT @ x / n, k)
    exact = [float(m) for m in residual_eigenvalues(SPECTRUM, n, k)]
    assert_means(residual.diagonal(0, -2, -1), exact)


def test_residual_of_power_zero_is_the_identity():
    assert residual_eigenvalues(SPECTRUM, 4, 0) == (1, 1, 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((SPECTRUM, 0, 2), "n must be at least 1, got 0"),
        ((SPECTRUM, 3, -1), "k must be at least 0, got -1"),
        (([], 3, 2), "spectrum must hold numbers of 0 or more, at least one, got"),
        (([1, -1], 3, 2), "spectrum must hold numbers of 0 or more, at least one, got"),
    ],
)
def test_impossible_moments_are_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        moment_eigenvalues(*arguments)
