"""What each shift changes, and what it leaves alone."""

from dataclasses import replace

import pytest
import torch

from innerloop.tasks import (
    Exponential,
    GaussianCovariates,
    LinearFunctions,
    LinearRegression,
    Regression,
    ScaledCovariates,
    SparseLinearFunctions,
    TransformedFunctions,
    with_covariance,
    with_noise,
    with_orthogonal_query,
    with_query_covariance,
    with_query_in_context,
    with_random_covariance,
    with_response,
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
    assert_means(outer(prompt.x_query[:, 0]), of_x)
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
    bent = with_response(TASK, torch.tanh).sample(10, generator=seeded(3))
    assert torch.equal(bent.x, linear.x)
    assert torch.equal(bent.y, linear.y.tanh())
    assert torch.equal(bent.y_query, linear.y_query.tanh())


def test_another_query_has_its_own_covariance_and_the_same_function():
    other = covariance(3, seed=9)
    prompt = with_query_covariance(TASK, other).sample(SAMPLES, generator=seeded())
    assert_means(outer(prompt.x_query[:, 0]), other)
    assert_means(outer(prompt.x[:, 0]), TASK.covariance)
    predicted = (learned(prompt) * prompt.x_query[:, 0]).sum(-1)
    torch.testing.assert_close(predicted, prompt.y_query[:, 0])


def test_an_orthogonal_query_is_orthogonal_to_every_example():
    prompt = with_orthogonal_query(replace(TASK, n=2)).sample(100, generator=seeded())
    inner = (prompt.x * prompt.x_query).sum(-1)
    assert inner.abs().max() < 1e-12
    assert prompt.x_query.norm(dim=-1).min() > 1e-6


def test_a_query_among_the_examples_has_that_examples_clean_label():
    prompt = with_query_in_context(TASK).sample(10, generator=seeded())
    assert torch.equal(prompt.x_query, prompt.x[:, :1])
    torch.testing.assert_close(prompt.y_query, prompt.y[:, :1])
    noisy = with_query_in_context(with_noise(TASK, 1.0)).sample(10, generator=seeded())
    torch.testing.assert_close(noisy.y_query, prompt.y_query)
    assert (noisy.y[:, :1] - noisy.y_query).abs().min() > 1e-6


def test_random_covariances_are_shared_within_a_prompt_and_differ_between_prompts():
    task = with_random_covariance(LinearRegression.isotropic(2, 400), Exponential(2, mean=3.0))
    prompt = task.sample(2000, generator=seeded())
    variances = prompt.x.square().mean(1)  # [prompts, d], close to each prompt's own scales
    assert_means(variances, 3.0)
    # Exp(mean 3): E scale^2 = 18, and a variance estimated on n examples adds 2/n of it.
    assert_means(variances.square(), 18 * (1 + 2 / 400))
    assert_means(prompt.x_query[:, 0].square() / variances, 1.0 / (1 - 2 / 400))


COMPOSED = Regression(GaussianCovariates(TASK.covariance), LinearFunctions(TASK.prior), 5)
SPARSE = replace(COMPOSED, functions=SparseLinearFunctions(3, 1))
SHIFTS = {
    "noise": lambda task: with_noise(task, 0.5),
    "weights": lambda task: with_scaled_weights(task, 3.0),
    "response": lambda task: with_response(task, torch.tanh),
    "other query": lambda task: with_query_covariance(task, covariance(3, seed=9)),
    "orthogonal query": lambda task: with_orthogonal_query(replace(task, n=2)),
    "query in context": with_query_in_context,
    "scaled": lambda task: with_scaled_covariates(task, 2.0),
    "covariance": lambda task: with_covariance(task, covariance(3, seed=9)),
    "rotated": lambda task: with_rotated_covariates(task, rotation(3)),
    "random": with_random_covariance,
}


@pytest.mark.parametrize("shift", SHIFTS.values(), ids=SHIFTS)
def test_a_shift_of_a_composition_samples_as_that_of_the_linear_regression_it_is(shift):
    one, other = (shift(task).sample(6, generator=seeded(4)) for task in (COMPOSED, TASK))
    for name in ("x", "y", "x_query", "y_query"):
        assert torch.equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("shift", SHIFTS.values(), ids=SHIFTS)
def test_shifts_apply_to_other_functions_and_to_shifted_tasks(shift):
    for task in (SPARSE, with_response(with_noise(TASK, 0.1), torch.sin)):
        prompt = shift(task).sample(6, generator=seeded(4))
        assert prompt.y.isfinite().all()


def test_a_shift_replaces_one_part_and_keeps_the_others():
    bent = with_response(COMPOSED, torch.tanh)
    assert bent == replace(COMPOSED, functions=TransformedFunctions(COMPOSED.functions, torch.tanh))
    moved = with_random_covariance(SPARSE)
    assert moved.functions is SPARSE.functions
    assert moved.covariates == ScaledCovariates(SPARSE.covariates, Exponential(3))


def test_scaled_weights_of_other_functions_scale_their_labels():
    one, three = (
        t.sample(6, generator=seeded()) for t in (SPARSE, with_scaled_weights(SPARSE, 3.0))
    )
    torch.testing.assert_close(three.y, 3 * one.y)
    torch.testing.assert_close(three.y_query, 3 * one.y_query)


def test_scaled_weights_of_linear_functions_are_linear_functions():
    assert type(with_scaled_weights(COMPOSED, 3.0).functions) is LinearFunctions


def test_a_shift_of_a_covariance_refuses_covariates_that_have_none():
    task = with_random_covariance(TASK)
    with pytest.raises(ValueError, match="Gaussian covariates, got ScaledCovariates"):
        with_scaled_covariates(task, 2.0)


def test_a_task_that_samples_something_of_its_own_is_not_taken_apart():
    class Own(LinearRegression):
        pass

    with pytest.raises(ValueError, match="Own is a subclass of LinearRegression"):
        with_query_in_context(Own(TASK.covariance, 5))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: with_scaled_weights(TASK, 0.0), "factor must be positive and finite, got 0.0"),
        (lambda: with_scaled_covariates(TASK, -1.0), "factor must be positive"),
        (lambda: with_covariance(TASK, torch.eye(2)), r"covariance must have shape \[3, 3\]"),
        (lambda: with_covariance(TASK, -torch.eye(3, dtype=DOUBLE)), "positive semi-definite"),
        (lambda: with_rotated_covariates(TASK, 2 * torch.eye(3, dtype=DOUBLE)), "orthogonal"),
        (lambda: with_query_covariance(TASK, torch.eye(4)), r"covariance must have shape \[3, 3\]"),
        (lambda: with_orthogonal_query(TASK), "n must be below d = 3 .* got 5"),
        (lambda: Exponential(3, mean=0.0), "mean must be positive"),
        (lambda: Exponential(0), "d must be a whole number of at least 1, got 0"),
        (lambda: with_noise(TASK, -0.1), "noise_std"),
    ],
)
def test_bad_shifts_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_law_of_another_shape_is_refused():
    task = with_random_covariance(TASK, Exponential(4))
    with pytest.raises(ValueError, match=r"law must give positive scales of shape \[2, 3\]"):
        task.sample(2, generator=seeded())
