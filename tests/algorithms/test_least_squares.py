import numpy as np
import pytest
import torch

from innerloop.algorithms import LeastSquares, Ridge
from innerloop.tasks import LinearRegression
from tests.samples import covariance, random_prompt, seeded


def test_least_squares_is_exact_once_there_are_d_noiseless_examples():
    task = LinearRegression(covariance(4), 9)
    prompt = task.sample(20, generator=seeded())
    for n in (5, 9):
        error = (LeastSquares()(prompt.prefix(n)) - prompt.y_query).abs()
        assert error.max() < 1e-10


@pytest.mark.parametrize("n", [1, 3, 4, 9])
def test_least_squares_is_the_minimum_norm_solution(n):
    prompt = random_prompt(batch=6, n=n, d=4)
    expected = [
        np.linalg.lstsq(x, y, rcond=None)[0] for x, y in zip(prompt.x, prompt.y, strict=True)
    ]
    torch.testing.assert_close(
        LeastSquares().weights(prompt), torch.tensor(np.array(expected)), rtol=1e-10, atol=1e-10
    )


def test_least_squares_without_examples_predicts_zero():
    assert (LeastSquares()(random_prompt().prefix(0)) == 0).all()


def test_least_squares_of_repeated_examples_is_that_of_one():
    prompt = random_prompt(batch=2, n=1, d=3)
    repeated = type(prompt)(
        prompt.x.expand(2, 4, 3), prompt.y.expand(2, 4), prompt.x_query, prompt.y_query
    )
    torch.testing.assert_close(LeastSquares()(repeated), LeastSquares()(prompt))


@pytest.mark.parametrize("n", [2, 4, 9])
@pytest.mark.parametrize("penalty", [0.01, 1.0, 30.0])
def test_ridge_minimises_the_penalised_squares(n, penalty):
    prompt = random_prompt(batch=5, n=n, d=4)
    w = Ridge(penalty).weights(prompt)
    # Adding sqrt(penalty) e_j as examples with label 0 makes ridge a least-squares problem.
    root = penalty**0.5 * torch.eye(4, dtype=w.dtype).expand(5, 4, 4)
    x = torch.cat([prompt.x, root], dim=1)
    y = torch.cat([prompt.y, torch.zeros(5, 4, dtype=w.dtype)], dim=1)
    expected = torch.linalg.lstsq(x, y.unsqueeze(-1)).solution.squeeze(-1)
    torch.testing.assert_close(w, expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("n", [2, 4, 9])
def test_ridge_tends_to_least_squares_as_the_penalty_vanishes(n):
    prompt = random_prompt(batch=5, n=n, d=4)
    limit = LeastSquares().weights(prompt)
    distances = [
        (Ridge(penalty).weights(prompt) - limit).norm(dim=-1).max().item()
        for penalty in (1e-5, 1e-6, 1e-7)
    ]
    # The difference is linear in the penalty: a tenth of it each time.
    assert distances[1] / distances[0] == pytest.approx(0.1, rel=0.01)
    assert distances[2] / distances[1] == pytest.approx(0.1, rel=0.01)


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_ridge_with_the_noise_variance_is_better_than_with_another_penalty(factor):
    prompt = LinearRegression.isotropic(4, 6, noise_std=0.8).sample(40_000, generator=seeded(1))
    best, other = (
        (Ridge(penalty)(prompt) - prompt.y_query).square() for penalty in (0.64, 0.64 * factor)
    )
    difference = other - best  # on the same prompts
    assert difference.mean() > 4 * difference.std() / len(prompt) ** 0.5


def test_ridge_with_the_noise_variance_is_the_posterior_mean():
    # The error of the posterior mean is uncorrelated with every function of the examples.
    task = LinearRegression.isotropic(2, 3, noise_std=0.8)
    prompt = task.sample(100_000, generator=seeded(2))
    for penalty, bayes in ((0.64, True), (2.5, False)):
        prediction = Ridge(penalty)(prompt)
        products = (prompt.y_query - prediction) * prediction
        z = products.mean() / (products.std() / len(prompt) ** 0.5)
        assert (z.abs() < 4) == bayes


def test_ridge_without_examples_predicts_zero():
    assert (Ridge(0.5)(random_prompt().prefix(0)) == 0).all()


@pytest.mark.parametrize("penalty", [0.0, -1.0, float("inf"), float("nan")])
def test_a_penalty_that_is_not_positive_is_refused(penalty):
    with pytest.raises(
        ValueError, match=rf"penalty must be positive and finite, got {penalty}"
    ) as e:
        Ridge(penalty)
    assert "use LeastSquares()" in str(e.value)
