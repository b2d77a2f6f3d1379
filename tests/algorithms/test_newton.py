import pytest
import torch

from innerloop.algorithms import LeastSquares, Newton
from innerloop.tasks import LinearRegression
from tests.samples import covariance, normal, random_prompt, seeded

STEPS = 7


@pytest.fixture
def prompt():
    return LinearRegression(covariance(3), 8).sample(4, generator=seeded())


def true_weights(prompt):
    return torch.linalg.lstsq(prompt.x, prompt.y.unsqueeze(-1)).solution.squeeze(-1)


def error_on_eigenvectors(prompt, scale):
    """What is left of w* along eigenvectors of S, [batch, steps + 1, d], and the eigenvalues."""
    w = true_weights(prompt)
    values, vectors = torch.linalg.eigh(prompt.x.mT @ prompt.x)
    iterates = Newton(STEPS, scale=scale).iterates(prompt)
    left = (w.unsqueeze(1) - iterates) @ vectors / (w.unsqueeze(1) @ vectors)
    return left, values


@pytest.mark.parametrize("scale", [0.5, 1.0, 1.5])
def test_the_exponent_of_the_error_doubles_at_every_step(prompt, scale):
    left, values = error_on_eigenvectors(prompt, scale)
    alpha = scale / values[:, -1:] ** 2
    for k in range(STEPS + 1):
        expected = (1 - alpha * values**2) ** (2**k)
        torch.testing.assert_close(left[:, k], expected, rtol=1e-9, atol=1e-11)


def test_convergence_is_quadratic(prompt):
    left, _ = error_on_eigenvectors(prompt, scale=1.0)
    for path in left.abs().amax(-1):  # the slowest direction
        logs = path[path > 1e-11].log()
        assert len(logs) >= 4
        slopes = logs[1:].diff() / logs[:-1].diff()
        torch.testing.assert_close(slopes, torch.full_like(slopes, 2.0), rtol=1e-3, atol=0)


def test_the_largest_scale_never_moves_the_largest_eigenvalue(prompt):
    left, _ = error_on_eigenvectors(prompt, scale=2.0)
    torch.testing.assert_close(left[:, 1:, -1], torch.ones_like(left[:, 1:, -1]))
    assert (left[:, -1, 0].abs() < 1).all()


def test_with_few_examples_it_converges_to_the_minimum_norm_solution():
    prompt = random_prompt(batch=3, n=2, d=4)
    torch.testing.assert_close(
        Newton(40).iterates(prompt)[:, -1], LeastSquares().weights(prompt), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("n", [1, 2, 3])
def test_hundreds_of_steps_with_few_examples_are_finite_and_the_minimum_norm_solution(n):
    # As matrices, rounding errors outside the span of the examples would double in every step.
    prompt = random_prompt(batch=3, n=n, d=4, queries=2)
    torch.testing.assert_close(Newton(200)(prompt), LeastSquares()(prompt), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        Newton(200).iterates(prompt)[:, -1], LeastSquares().weights(prompt), rtol=1e-9, atol=1e-9
    )


def test_stopping_once_converged_changes_no_digit():
    prompt = random_prompt(batch=3, n=6, d=4)
    last = Newton(60).iterates(prompt)[:, -1]
    assert torch.equal(Newton(60)(prompt)[:, 0], (prompt.x_query @ last.unsqueeze(-1))[:, 0, 0])


def test_iterates_satisfy_the_recursion_for_the_inverse():
    x = normal(5, 3)
    s = x.mT @ x
    # Labels e_i one at a time give the columns of M_k X^T.
    prompt = type(random_prompt())(
        x.unsqueeze(0), torch.eye(5, dtype=x.dtype), normal(1, 1, 3), normal(5, 1)
    )
    iterates = Newton(3, scale=0.8).iterates(prompt)  # [column, k, d]
    inverse = 0.8 * s / torch.linalg.matrix_norm(s @ s.mT, ord=2)
    for k in range(4):
        torch.testing.assert_close(iterates[:, k].mT, inverse @ x.mT, rtol=1e-11, atol=1e-12)
        inverse = 2 * inverse - inverse @ s @ inverse


def test_without_examples_it_predicts_zero():
    assert (Newton(5)(random_prompt().prefix(0)) == 0).all()


def test_negative_steps_are_refused():
    with pytest.raises(ValueError, match="steps must be 0 or more, got -1"):
        Newton(-1)


@pytest.mark.parametrize("scale", [0.0, -1.0, 2.1, float("nan")])
def test_a_scale_that_cannot_converge_is_refused(scale):
    with pytest.raises(ValueError, match=rf"scale must be in \(0, 2\], got {scale}"):
        Newton(3, scale=scale)


def test_one_alpha_for_all_prompts_is_that_of_the_mean():
    prompt = random_prompt(3, 9, 2)
    s = prompt.x.mT @ prompt.x / prompt.n
    m = 0.02 * s
    for _ in range(5):
        m = 2 * m - m @ s @ m
    w = m @ (prompt.x.mT @ prompt.y.unsqueeze(-1)) / prompt.n
    wanted = (prompt.x_query @ w).squeeze(-1)
    torch.testing.assert_close(Newton(5, alpha=0.02)(prompt), wanted, rtol=1e-9, atol=1e-10)
    with pytest.raises(ValueError, match="alpha must be positive and finite, got 0"):
        Newton(5, alpha=0.0)
