from fractions import Fraction
from math import comb, prod

import pytest
import torch

from innerloop.theory.wishart import (
    expected_power_sums,
    mean_spectrum,
    recurrence,
    sample_wishart,
    trace_moment,
)
from tests.samples import assert_means, seeded
from tests.theory.pairings import power_sum_expectation


def moment(k, n, d):
    """E tr (W/n)^k by the recursion over partitions, which the quadrature does not use."""
    return Fraction(expected_power_sums((k,), n, d), n**k)


@pytest.mark.parametrize(("n", "d", "k"), [(3, 2, 4), (1, 3, 5), (7, 4, 5), (2, 2, 6)])
def test_moments_are_the_sum_over_all_pairings(n, d, k):
    brute_force = power_sum_expectation((k,), n, d)
    assert expected_power_sums((k,), n, d) == brute_force
    assert trace_moment(k, n, d) == brute_force


@pytest.mark.parametrize(
    ("n", "d", "k", "value"),
    [(3, 2, 4, 3120), (1, 3, 5, 10395), (7, 4, 5, 1920240), (2, 2, 6, 196128)],
)
def test_moments_have_their_known_values(n, d, k, value):
    assert expected_power_sums((k,), n, d) == value


def test_in_one_dimension_moments_are_those_of_chi_squared():
    for n in (1, 2, 7):
        for k in range(21):
            expected = prod(n + 2 * i for i in range(k))
            assert expected_power_sums((k,), n, 1) == expected
            assert trace_moment(k, n, 1) == expected


def test_moments_are_symmetric_in_n_and_d():
    for n, d in [(1, 4), (2, 5), (3, 7), (6, 4)]:
        for k in range(1, 16):
            assert expected_power_sums((k,), n, d) == expected_power_sums((k,), d, n)
            assert trace_moment(k, n, d) == trace_moment(k, d, n)


def test_the_zonal_formula_equals_the_recursion():
    for n in (1, 2, 3, 5, 20):
        for d in (1, 2, 3, 5, 8):
            for k in range(13):
                assert trace_moment(k, n, d) == expected_power_sums((k,), n, d), (k, n, d)


def test_the_second_moment_by_hand():
    for n, d in [(3, 2), (20, 5), (2, 6)]:
        assert trace_moment(1, n, d) == n * d
        assert trace_moment(2, n, d) == n * d * (n + d + 1)


@pytest.mark.parametrize("powers", [(2, 3), (1, 1, 2), (1, 4), (2, 2), (1, 1, 1)])
def test_joint_moments_are_the_sum_over_all_pairings(powers):
    assert expected_power_sums(powers, 4, 3) == power_sum_expectation(powers, 4, 3)


def test_joint_moments_do_not_depend_on_the_order_of_the_factors():
    assert expected_power_sums((3, 1, 2), 4, 3) == expected_power_sums((2, 3, 1), 4, 3)


def test_a_trace_of_the_zeroth_power_is_the_dimension():
    assert expected_power_sums((0,), 4, 3) == trace_moment(0, 4, 3) == 3
    assert expected_power_sums((0, 2, 0), 4, 3) == 9 * expected_power_sums((2,), 4, 3)
    assert expected_power_sums((), 4, 3) == 1


@pytest.mark.parametrize("powers", [(2, 3), (1, 1, 2)])
def test_joint_moments_match_sampled_matrices(powers):
    eigenvalues = torch.linalg.eigvalsh(sample_wishart(100_000, 9, 3, generator=seeded(1)))
    products = torch.stack([eigenvalues.pow(k).sum(-1) for k in powers]).prod(0)
    assert_means(products, expected_power_sums(powers, 9, 3))


@pytest.mark.parametrize(("n", "d", "loops", "a"), [(20, 5, 3, 0.7156), (400, 10, 10, 0.95)])
def test_the_quadrature_integrates_without_cancellation(n, d, loops, a):
    step = Fraction(a)
    exact = sum(comb(2 * loops, k) * (-step) ** k * moment(k, n, d) for k in range(2 * loops + 1))
    spectrum = mean_spectrum(n, d, 2 * loops)
    value = spectrum((1 - a * spectrum.nodes) ** (2 * loops)).item()
    assert value == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.parametrize(("n", "d"), [(20, 5), (5, 5), (3, 5), (1, 4), (7, 1)])
@pytest.mark.parametrize("degree", [0, 1, 6, 7])
def test_the_quadrature_is_exact_up_to_its_degree(n, d, degree):
    spectrum = mean_spectrum(n, d, degree)
    for k in range(degree + 1):
        value = spectrum(spectrum.nodes**k).item()
        assert value == pytest.approx(float(moment(k, n, d)), rel=1e-12)


def test_the_quadrature_is_not_exact_beyond_its_nodes():
    spectrum = mean_spectrum(20, 5, 4)  # three nodes: exact to degree 5
    value = spectrum(spectrum.nodes**6).item()
    assert abs(value / float(moment(6, 20, 5)) - 1) > 1e-3


@pytest.mark.parametrize(
    ("n", "d"),
    [
        (3, 5),
        pytest.param(10, 5, marks=pytest.mark.slow),
        pytest.param(40, 10, marks=pytest.mark.slow),
    ],
)
def test_the_quadrature_of_degree_80_has_every_moment_to_twelve_digits(n, d):
    spectrum = mean_spectrum(n, d, 80)
    assert len(spectrum.nodes) == 41
    for k in range(82):
        exact = Fraction(trace_moment(k, n, d), n**k)
        value = spectrum(spectrum.nodes**k).item()
        assert value == pytest.approx(float(exact), rel=1e-12), k


@pytest.mark.parametrize(("n", "d"), [(20, 5), (3, 5)])
def test_nodes_and_weights_are_positive(n, d):
    spectrum = mean_spectrum(n, d, 20)
    assert (spectrum.weights > 0).all()
    assert (spectrum.nodes > 0).all()


def test_with_few_examples_the_spectrum_has_an_atom_of_mass_d_minus_n_at_zero():
    # The least mean square of a polynomial that is 1 at 0 falls to the mass at 0, from above.
    least = [float(recurrence(3, 5, k + 1).least_square_at_zero(k)) for k in (2, 5, 10, 20)]
    assert least == sorted(least, reverse=True)
    assert 2 < least[-1] < 2.2
    enough = float(recurrence(20, 5, 21).least_square_at_zero(20))
    assert enough < 1e-4


def test_the_recurrence_makes_orthogonal_polynomials():
    n, d, count = 6, 3, 4
    coefficients = recurrence(n, d, count)
    polynomials = [[Fraction(1)]]  # coefficients, constant first
    previous = [Fraction(0)]
    for alpha, beta in zip(coefficients.alpha[:-1], coefficients.beta[:-1], strict=True):
        current = polynomials[-1]
        longer = [Fraction(0), *current]
        for i, c in enumerate(current):
            longer[i] -= alpha * c
        for i, c in enumerate(previous):
            longer[i] -= beta * c
        previous = current
        polynomials.append(longer)

    def inner(p, q):
        return sum(a * b * moment(i + j, n, d) for i, a in enumerate(p) for j, b in enumerate(q))

    for i in range(count):
        for j in range(i):
            assert inner(polynomials[i], polynomials[j]) == 0
    assert inner(polynomials[1], polynomials[1]) == coefficients.beta[0] * coefficients.beta[1]


@pytest.mark.parametrize(("n", "d"), [(6, 3), (3, 3), (2, 4), (1, 3)])
def test_sampled_matrices_have_the_moments_of_the_wishart_distribution(n, d):
    w = sample_wishart(60_000, n, d, generator=seeded(2))
    assert_means(w, n * torch.eye(d))
    # Var W_ij = n (1 + [i = j]).
    assert_means((w - n * torch.eye(d)).square(), n * (torch.ones(d, d) + torch.eye(d)))
    trace, square = w.diagonal(dim1=-2, dim2=-1).sum(-1), w.square().sum((-2, -1))
    assert_means(square, expected_power_sums((2,), n, d))
    assert_means(trace**2, expected_power_sums((1, 1), n, d))
    assert_means(trace * square, expected_power_sums((1, 2), n, d))


@pytest.mark.parametrize(("n", "d"), [(6, 3), (3, 3), (2, 4), (1, 3)])
def test_sampled_matrices_are_symmetric_of_rank_at_most_n(n, d):
    w = sample_wishart(50, n, d, generator=seeded())
    assert torch.equal(w, w.mT)
    assert (torch.linalg.matrix_rank(w, hermitian=True) == min(n, d)).all()


def test_sampling_is_repeatable_and_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    first, second = (sample_wishart(3, 5, 2, generator=seeded(4)) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_sampling_keeps_the_dtype():
    w = sample_wishart(3, 5, 2, generator=seeded(), dtype=torch.float32)
    assert w.dtype == torch.float32


@pytest.mark.parametrize(("n", "d"), [(0, 3), (3, 0), (-1, 2)])
def test_empty_sizes_are_refused(n, d):
    sentence = f"[nd] must be at least 1, got {min(n, d)}"
    with pytest.raises(ValueError, match=sentence):
        sample_wishart(2, n, d, generator=seeded())
    with pytest.raises(ValueError, match=sentence):
        expected_power_sums((2,), n, d)
    with pytest.raises(ValueError, match=sentence):
        trace_moment(2, n, d)
    with pytest.raises(ValueError, match=sentence):
        mean_spectrum(n, d, 3)


def test_a_negative_degree_is_refused():
    with pytest.raises(ValueError, match="degree must be at least 0, got -1"):
        mean_spectrum(5, 3, -1)


def test_a_negative_power_is_refused():
    with pytest.raises(ValueError, match="-1"):
        trace_moment(-1, 5, 3)
    with pytest.raises(ValueError, match="-1"):
        expected_power_sums((2, -1), 5, 3)
