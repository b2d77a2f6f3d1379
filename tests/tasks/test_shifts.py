"""What each shift changes, and what it leaves alone."""

from dataclasses import replace

import pytest
import torch

from innerloop.tasks import (
    Exponential,
    InContextQuery,
    LinearRegression,
    NonlinearLabels,
    OrthogonalQuery,
    OtherQuery,
    RandomCovariance,
    with_covariance,
    with_noise,
    with_rotated_covariates,
    with_scaled_covariates,
    with_scaled_weights,
)
from tests.samples import DOUBLE, assert_means, covariance, rotation, seeded

TASK = LinearRegression(covariance(3, seed=1), 5, covariance(3, seed=2))
SAMPLES = 100_000


def outer(x):
    return x.unsqueeze(-1) * x.unsqueeze(-2)


def learned(prompt):
    """w of every prompt, from its examples: exact where labels are linear and n >= d."""
    return torch.linalg.lstsq(prompt.x, prompt.y.unsqueeze(-1)).solution.squeeze(-1)


@pytest.mark.parametrize(
    ("shifted", "of_x", "of_w"),
    [
        (with_scaled_weights(TASK, 3.0), TASK.covariance, 9 * TASK.prior),
        (with_scaled_covariates(TASK, 0.5), TASK.covariance / 4, TASK.prior),
        (with_covariance(TASK, covariance(3, seed=7)), covariance(3, seed=7), TASK.prior),
        (
            with_rotated_covariates(TASK, rotation(3)),
            rotation(3) @ TASK.covariance @ rotation(3).mT,
            TASK.prior,
        ),
    ],
)
def test_shifts_within_linear_regression_have_the_covariances_they_name(shifted, of_x, of_w):
    prompt = shifted.sample(SAMPLES, generator=seeded())
    assert_means(outer(prompt.x[:, 0]), of_x)
    assert_means(outer(prompt.x_query), of_x)
    assert_means(outer(learned(prompt)), of_w)


def test_a_covariance_shift_keeps_an_inverse_prior_of_the_old_covariance():
    task = LinearRegression.with_inverse_prior(covariance(3), 5)
    assert torch.equal(with_scaled_covariates(task, 2.0).prior, task.prior)


def test_noise_is_added_to_the_examples_only():
    noisy = with_noise(TASK, 0.7).sample(SAMPLES, generator=seeded(3))
    clean = TASK.sample(SAMPLES, generator=seeded(3))
    assert torch.equal(noisy.y_query, clean.y_query)
    assert_means((noisy.y - clean.y)[:, 0].square(), 0.49)


def test_nonlinear_labels_are_the_response_of_the_linear_ones():
    linear = TASK.sample(10, generator=seeded(3))
    bent = NonlinearLabels(TASK, torch.tanh).sample(10, generator=seeded(3))
    assert torch.equal(bent.x, linear.x)
    assert torch.equal(bent.y, linear.y.tanh())
    assert torch.equal(bent.y_query, linear.y_query.tanh())


def test_another_query_has_its_own_covariance_and_the_same_function():
    other = covariance(3, seed=9)
    prompt = OtherQuery(TASK, other).sample(SAMPLES, generator=seeded())
    assert_means(outer(prompt.x_query), other)
    assert_means(outer(prompt.x[:, 0]), TASK.covariance)
    torch.testing.assert_close((learned(prompt) * prompt.x_query).sum(-1), prompt.y_query)


def test_an_orthogonal_query_is_orthogonal_to_every_example():
    prompt = OrthogonalQuery(replace(TASK, n=2)).sample(100, generator=seeded())
    inner = (prompt.x * prompt.x_query.unsqueeze(1)).sum(-1)
    assert inner.abs().max() < 1e-12
    assert prompt.x_query.norm(dim=-1).min() > 1e-6


def test_a_query_among_the_examples_has_that_examples_clean_label():
    prompt = InContextQuery(TASK).sample(10, generator=seeded())
    assert torch.equal(prompt.x_query, prompt.x[:, 0])
    torch.testing.assert_close(prompt.y_query, prompt.y[:, 0])
    noisy = InContextQuery(with_noise(TASK, 1.0)).sample(10, generator=seeded())
    torch.testing.assert_close(noisy.y_query, prompt.y_query)
    assert (noisy.y[:, 0] - noisy.y_query).abs().min() > 1e-6


def test_random_covariances_are_shared_within_a_prompt_and_differ_between_prompts():
    task = RandomCovariance(LinearRegression.isotropic(2, 400), Exponential(2, mean=3.0))
    prompt = task.sample(2000, generator=seeded())
    variances = prompt.x.square().mean(1)  # [prompts, d], close to each prompt's own scales
    assert_means(variances, 3.0)
    # Exp(mean 3): E scale^2 = 18, and a variance estimated on n examples adds 2/n of it.
    assert_means(variances.square(), 18 * (1 + 2 / 400))
    own = variances.sqrt()
    assert_means(prompt.x_query.square() / own.square(), 1.0 / (1 - 2 / 400))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: with_scaled_weights(TASK, 0.0), "factor must be positive and finite, got 0.0"),
        (lambda: with_scaled_covariates(TASK, -1.0), "factor must be positive"),
        (lambda: with_covariance(TASK, torch.eye(2)), r"covariance must have shape \[3, 3\]"),
        (lambda: with_covariance(TASK, -torch.eye(3, dtype=DOUBLE)), "positive definite"),
        (lambda: with_rotated_covariates(TASK, 2 * torch.eye(3, dtype=DOUBLE)), "orthogonal"),
        (lambda: OtherQuery(TASK, torch.eye(4)), r"covariance must have shape \[3, 3\]"),
        (lambda: OrthogonalQuery(TASK), "n must be below d = 3 .* got 5"),
        (lambda: Exponential(3, mean=0.0), "mean must be positive"),
        (lambda: with_noise(TASK, -0.1), "noise_std"),
    ],
)
def test_bad_shifts_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_law_of_another_shape_is_refused():
    task = RandomCovariance(TASK, Exponential(4))
    with pytest.raises(ValueError, match=r"law must give positive scales of shape \[2, 3\]"):
        task.sample(2, generator=seeded())
