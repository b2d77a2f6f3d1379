from fractions import Fraction

import pytest
import torch

from innerloop.theory.wishart import (
    MatrixPolynomial,
    TooLargeError,
    expected_power_sums,
    expected_trace,
    sample_wishart,
)
from tests.samples import DOUBLE, assert_means, normal, seeded
from tests.theory.pairings import word_expectation

D, N = 3, 5
LETTERS = normal(6, D, D, seed=1)
W = MatrixPolynomial.wishart()


def letter(number):
    return MatrixPolynomial.letter(number)


def word(numbers):
    """W B_i W B_j ... for the letters with these numbers."""
    product = MatrixPolynomial.identity()
    for number in numbers:
        product = product @ W @ letter(number)
    return product


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_words_with_different_letters_are_the_sum_over_all_pairings(k):
    value = expected_trace(word(range(k)), N)(LETTERS).item()
    expected = word_expectation([b.numpy() for b in LETTERS[:k]], N)
    assert value == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("numbers", [(0, 0), (0, 1, 0), (0, 1, 0, 1), (1, 1, 0, 1, 0)])
def test_words_with_repeated_letters_are_the_sum_over_all_pairings(numbers):
    value = expected_trace(word(numbers), N)(LETTERS).item()
    expected = word_expectation([LETTERS[i].numpy() for i in numbers], N)
    assert value == pytest.approx(expected, rel=1e-10)


def test_letters_between_the_same_two_matrices_multiply_in_order():
    polynomial = W @ letter(0) @ letter(1) @ W @ letter(2).mT
    product = (LETTERS[0] @ LETTERS[1]).numpy()
    expected = word_expectation([product, LETTERS[2].numpy().T], N)
    assert expected_trace(polynomial, N)(LETTERS).item() == pytest.approx(expected, rel=1e-10)


def test_words_without_letters_are_the_moments_of_the_spectrum():
    power = MatrixPolynomial.identity()
    for k in range(6):
        value = expected_trace(power, N)(LETTERS).item()
        assert value == pytest.approx(expected_power_sums((k,), N, D), rel=1e-14)
        power = power @ W


def test_a_polynomial_without_the_wishart_matrix_is_its_own_expectation():
    value = expected_trace(letter(0) @ letter(1).mT + MatrixPolynomial.identity(), N)(LETTERS)
    torch.testing.assert_close(value, (LETTERS[0] @ LETTERS[1].mT).trace() + D)


def test_the_empty_polynomial_is_zero():
    value = expected_trace(letter(0) - letter(0), N)(LETTERS)
    assert value.item() == 0


def test_expectations_match_sampled_matrices():
    polynomial = W @ letter(0) @ W @ letter(1) @ W - letter(2) @ W.scaled(Fraction(1, 2))
    w = sample_wishart(200_000, N, D, generator=seeded(2))
    b = LETTERS
    values = torch.einsum("bij,jk,bkl,lm,bmi->b", w, b[0], w, b[1], w)
    values = values - torch.einsum("ij,bji->b", b[2], w) / 2
    assert_means(values, expected_trace(polynomial, N)(LETTERS).item())


def test_expectation_is_linear():
    first, second = word((0, 1)), word((2, 0, 1))
    total = expected_trace(first.scaled(3) - second, N)(LETTERS)
    parts = 3 * expected_trace(first, N)(LETTERS) - expected_trace(second, N)(LETTERS)
    torch.testing.assert_close(total, parts, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("numbers", [(0, 1, 2), (0, 1, 0, 2), (2, 1, 0, 1, 0)])
def test_knowing_that_letters_are_symmetric_changes_no_value(numbers):
    letters = LETTERS + LETTERS.mT
    plain = expected_trace(word(numbers), N)
    merged = expected_trace(word(numbers), N, symmetric=[0, 1, 2])
    torch.testing.assert_close(merged(letters), plain(letters), rtol=1e-12, atol=1e-10)
    assert len(merged) <= len(plain)


def test_knowing_that_letters_are_symmetric_saves_terms():
    plain = expected_trace(word((0, 1, 0, 2)), N)
    merged = expected_trace(word((0, 1, 0, 2)), N, symmetric=[0, 1, 2])
    assert len(merged) < len(plain)


def test_letters_that_do_not_occur_are_allowed():
    polynomial = expected_trace(word((1, 1)), N)  # letter 0 is skipped, letters 2 to 5 come after
    value = polynomial(LETTERS)
    torch.testing.assert_close(value, polynomial(LETTERS[:2]), rtol=0, atol=0)
    changed = LETTERS.clone()
    changed[[0, 2, 5]] = 7.0
    torch.testing.assert_close(value, polynomial(changed), rtol=0, atol=0)


def test_the_gradient_matches_finite_differences():
    polynomial = expected_trace(word((0, 1, 0)) + word((1, 2)), N)
    letters = (LETTERS[:3] / 3).requires_grad_()
    assert torch.autograd.gradcheck(polynomial, (letters,), rtol=1e-6, atol=1e-8)


def test_a_batch_of_letters_is_evaluated_like_a_loop():
    polynomial = expected_trace(word((0, 1, 0)), N)
    letters = normal(2, 4, 2, D, D, seed=3)
    values = polynomial(letters)
    assert values.shape == (2, 4)
    for i in range(2):
        for j in range(4):
            torch.testing.assert_close(values[i, j], polynomial(letters[i, j]), rtol=1e-12, atol=0)


def test_evaluation_can_be_mapped():
    polynomial = expected_trace(word((0, 1, 0)), N)
    letters = normal(4, 2, D, D, seed=3)
    torch.testing.assert_close(torch.func.vmap(polynomial)(letters), polynomial(letters))


def test_the_expectation_does_not_depend_on_how_the_word_is_rotated_or_transposed():
    value = expected_trace(word((0, 1, 2)), N)(LETTERS)
    rotated = letter(1) @ W @ letter(2) @ W @ letter(0) @ W
    for other in (rotated, word((0, 1, 2)).mT):
        torch.testing.assert_close(expected_trace(other, N)(LETTERS), value, rtol=1e-12, atol=0)


def test_too_many_terms_are_refused():
    with pytest.raises(TooLargeError, match="needs more than 2 terms at degree 2 in W"):
        expected_trace(word((0, 1, 2)), N, limit=2)


def test_matrix_polynomials_multiply_like_matrices():
    a, b, c = (letter(i) for i in range(3))
    value = expected_trace((a + b.scaled(2)) @ (c - a), N)(LETTERS)
    expected = ((LETTERS[0] + 2 * LETTERS[1]) @ (LETTERS[2] - LETTERS[0])).trace()
    torch.testing.assert_close(value, expected)
    assert value.dtype == DOUBLE
