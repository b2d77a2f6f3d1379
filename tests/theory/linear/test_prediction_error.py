import math

import pytest
import torch

from innerloop.algorithms import GradientDescent
from innerloop.prompt import Prompt
from innerloop.theory.linear import (
    JointMoments,
    SampledMoments,
    error_parts,
    gaussian_pairs,
    mean_error_parts,
    one_step_preconditioner,
    prediction_error,
    single_layer_risk,
)
from innerloop.theory.wishart import TooLargeError
from tests.samples import DOUBLE, assert_means, covariance, normal, relative_error, seeded
from tests.theory.gaussian_quadrature import normal_nodes

LAMBDA = covariance(3, seed=1)
W = normal(3, seed=2)
A = normal(3, 3, seed=3)  # no symmetry: formulas must keep the order of the factors


def cubic(x):
    return x[..., 0] ** 3 - x[..., 0] * x[..., -1] + 0.3 * x[..., -1] + 0.2


def assert_equal_moments(one, other):
    for name in ("second", "cross", "spread", "label_power"):
        assert relative_error(getattr(one, name), getattr(other, name)) < 1e-12


def whole_prompt_error(preconditioner, function, sigma, length, noise_std, degree):
    """E (prediction - y_q)^2 by quadrature in every number of the prompt, from a learner's answers.

    The prediction is of degree 1 + degree in every example and 1 in the query.
    """
    d, per_example = len(sigma), len(sigma) + (noise_std > 0)
    z, weights = normal_nodes((length + 1) * per_example, 2 * (degree + 1))
    z = z.view(-1, length + 1, per_example)
    x = z[..., :d] @ torch.linalg.cholesky(sigma).mT
    y = function(x) + (noise_std * z[..., -1] if noise_std > 0 else 0.0)
    prompt = Prompt(x[:, :-1], y[:, :-1], x[:, -1:], y[:, -1:])
    errors = (GradientDescent([preconditioner])(prompt) - prompt.y_query)[:, 0]
    return (weights * errors**2).sum().item()


def test_linear_labels_have_the_moments_that_quadrature_finds():
    by_quadrature = JointMoments.of_function(lambda x: x @ W, LAMBDA, degree=1)
    assert_equal_moments(JointMoments.linear(LAMBDA, W), by_quadrature)


def test_the_moments_of_a_cube_are_those_of_the_normal_distribution():
    moments = JointMoments.of_function(lambda x: x[:, 0] ** 3, torch.tensor([[2.0]], dtype=DOUBLE))
    assert moments.second.item() == pytest.approx(2)
    assert moments.cross.item() == pytest.approx(3 * 2**2)
    assert moments.label_power.item() == pytest.approx(15 * 2**3)
    assert moments.spread.item() == pytest.approx(105 * 2**4 - 12**2)


def test_nodes_of_the_stated_degree_are_enough_for_a_polynomial():
    assert_equal_moments(
        JointMoments.of_function(cubic, LAMBDA, degree=3),
        JointMoments.of_function(cubic, LAMBDA, degree=6),
    )


def test_too_few_nodes_are_not_enough():
    exact = JointMoments.of_function(cubic, LAMBDA, degree=3)
    rough = JointMoments.of_function(cubic, LAMBDA, degree=1)
    assert relative_error(rough.spread, exact.spread) > 0.1


@pytest.mark.parametrize(
    ("function", "degree", "noise_std", "d", "length"),
    [
        (lambda x: x @ W[:2], 1, 0.0, 2, 3),
        (lambda x: x @ W[:2], 1, 0.7, 2, 2),
        (cubic, 3, 0.0, 2, 2),
        (cubic, 3, 0.0, 1, 4),
        (lambda x: x[..., 0] ** 2 + 1.0, 2, 0.0, 2, 2),
    ],
    ids=["linear", "noisy", "cubic", "cubic, one dimension", "a mean that is not 0"],
)
def test_the_error_is_that_of_a_learner_on_whole_prompts(function, degree, noise_std, d, length):
    sigma, a = LAMBDA[:d, :d], A[:d, :d]
    moments = JointMoments.of_function(function, sigma, degree=degree).with_noise(noise_std)
    exact = whole_prompt_error(a, function, sigma, length, noise_std, degree)
    assert prediction_error(a, moments, length).item() == pytest.approx(exact, rel=1e-11)


def test_the_error_matches_sampled_prompts():
    length, samples, noise_std = 9, 40_000, 0.5
    sampler = gaussian_pairs(LAMBDA, lambda x: x @ W, noise_std)
    x, y = sampler(samples * (length + 1), seeded(5))
    x, y = x.view(samples, length + 1, 3), y.view(samples, length + 1)
    prompt = Prompt(x[:, :-1], y[:, :-1], x[:, -1:], y[:, -1:])
    moments = JointMoments.linear(LAMBDA, W).with_noise(noise_std)
    errors = (GradientDescent([A])(prompt) - prompt.y_query).square()[:, 0]
    assert_means(errors, prediction_error(A, moments, length).item())


@pytest.mark.parametrize("length", [1, 9, math.inf])
def test_the_parts_add_up_to_the_error(length):
    moments = JointMoments.of_function(cubic, LAMBDA).with_noise(0.4)
    total = prediction_error(A, moments, length).item()
    assert error_parts(A, moments, length).total == pytest.approx(total, rel=1e-12)


def test_the_best_linear_part_is_the_least_squares_error():
    moments = JointMoments.of_function(cubic, LAMBDA)
    x, y = gaussian_pairs(LAMBDA, cubic)(100_000, seeded(6))
    residuals = y - x @ torch.linalg.solve(moments.second, moments.cross)
    assert_means(residuals**2, error_parts(A, moments, 1).best_linear)
    assert abs((x * residuals[:, None]).mean(0) / (x * residuals[:, None]).std(0)).max() < 4 / 316


def test_the_average_over_weights_is_the_risk_of_a_single_layer():
    prior, noise_std, n = covariance(3, seed=4), 0.6, 7
    b = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=DOUBLE)
    layer = torch.cat([A.mT, torch.zeros(1, 3, dtype=DOUBLE)])
    clean_query = single_layer_risk(b, layer, LAMBDA, n, prior, noise_std).item()
    parts = mean_error_parts(A, LAMBDA, n, prior, noise_std)
    assert parts.total == pytest.approx(clean_query + noise_std**2, rel=1e-12)


def test_the_average_over_weights_is_the_mean_of_errors_at_fixed_weights():
    nodes, weights = normal_nodes(3, 2)
    mean = sum(
        weight * prediction_error(A, JointMoments.linear(LAMBDA, w), 5)
        for w, weight in zip(nodes, weights, strict=True)
    )
    assert mean_error_parts(A, LAMBDA, 5).total == pytest.approx(mean.item(), rel=1e-12)


def test_no_preconditioner_beats_the_trained_one_at_its_own_length():
    best = one_step_preconditioner(LAMBDA, 8)
    here = mean_error_parts(best, LAMBDA, 8).total
    for seed in range(20):
        other = best + 0.05 * normal(3, 3, seed=seed)
        assert mean_error_parts(other, LAMBDA, 8).total > here


def test_the_bias_falls_as_the_square_of_the_training_length():
    moments = JointMoments.linear(LAMBDA, W)
    bias = [
        error_parts(one_step_preconditioner(LAMBDA, n), moments, 1).bias for n in (10**4, 10**5)
    ]
    assert math.log10(bias[0] / bias[1]) == pytest.approx(2, abs=2e-3)


def test_sampled_moments_agree_with_quadrature_within_their_standard_error():
    sampled = SampledMoments.draw(
        gaussian_pairs(LAMBDA, cubic, 0.3), 200_000, generator=seeded(7), groups=40
    )
    exact = prediction_error(A, JointMoments.of_function(cubic, LAMBDA).with_noise(0.3), 6).item()
    value, error = sampled.estimate(lambda moments: prediction_error(A, moments, 6))
    assert abs(value - exact) < 4 * error
    assert error < 0.1 * exact


def test_the_standard_error_is_the_scatter_between_independent_samples():
    drawn = [
        SampledMoments.draw(
            gaussian_pairs(LAMBDA, lambda x: x @ W), 2_000, generator=seeded(s), groups=20
        ).estimate(lambda moments: prediction_error(A, moments, 6))
        for s in range(60)
    ]
    values, errors = torch.tensor(drawn, dtype=DOUBLE).unbind(1)
    # The scatter of 60 values is known to 1/sqrt(120), a tenth.
    assert values.std().item() == pytest.approx(errors.mean().item(), rel=0.4)


def test_too_many_points_are_refused_with_a_way_out():
    with pytest.raises(TooLargeError, match=r"5\^20 points.*SampledMoments"):
        JointMoments.of_function(cubic, torch.eye(20, dtype=DOUBLE))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda m: prediction_error(A, m, 0), "length must be at least 1 example.*got 0"),
        (lambda m: error_parts(A, m, 0.5), "length must be at least 1 example.*got 0.5"),
        (lambda m: m.with_noise(-1.0), "noise_std must be finite and not negative, got -1.0"),
        (
            lambda m: JointMoments.of_function(cubic, LAMBDA, degree=-1),
            "degree must be at least 0, got -1",
        ),
        (
            lambda m: SampledMoments.draw(
                gaussian_pairs(LAMBDA, cubic), 10, generator=seeded(), groups=50
            ),
            "got 50 groups and 10 samples",
        ),
    ],
)
def test_bad_arguments_are_named(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(JointMoments.linear(LAMBDA, W))
