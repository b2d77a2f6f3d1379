import pytest
import torch

from innerloop.tasks import DictionaryRegression, GaussianCoefficients
from innerloop.theory.softmax import (
    DictionaryRisk,
    one_head_floor,
    ridge_coefficients,
    ridge_matrix,
)
from tests.samples import DOUBLE, assert_means, normal, seeded

SHOWN, TOKENS, M, TAU = 4, 9, 5, 0.3
FEATURES = normal(TOKENS, M, seed=2)
COEFFICIENTS = [GaussianCoefficients(), GaussianCoefficients(mean=1.0, std=2.0)]
anywhere = pytest.mark.parametrize("coefficients", COEFFICIENTS, ids=["in domain", "out of domain"])


def risk_of(features=FEATURES, shown=SHOWN, tau=TAU, coefficients=COEFFICIENTS[0]):
    moment = coefficients.second_moment(features.shape[1])
    return DictionaryRisk.of(features, shown, tau, moment)


def losses(matrix, coefficients, samples=40_000, tau=TAU):
    """The loss (1/2K) |prediction - targets|^2 of every sampled prompt."""
    task = DictionaryRegression(normal(TOKENS, 2, seed=1), FEATURES, SHOWN, tau, coefficients)
    prompt = task.sample(samples, generator=seeded(7))
    return (prompt.y @ matrix - prompt.targets).square().mean(1) / 2


@anywhere
@pytest.mark.parametrize("matrix", [normal(SHOWN, TOKENS, seed=4), torch.zeros(SHOWN, TOKENS)])
def test_the_risk_is_the_mean_of_sampled_losses(matrix, coefficients):
    matrix = matrix.to(DOUBLE)
    assert_means(losses(matrix, coefficients), risk_of(coefficients=coefficients)(matrix))


@anywhere
def test_the_infimum_is_the_sampled_loss_of_the_optimum(coefficients):
    risk = risk_of(coefficients=coefficients)
    assert_means(losses(risk.optimum, coefficients), risk.infimum)


@anywhere
def test_the_risk_is_the_expanded_quadratic_form(coefficients):
    risk, a = risk_of(coefficients=coefficients), normal(SHOWN, TOKENS, seed=4)
    expanded = (a * (risk.gram @ a)).sum() - 2 * (a * risk.cross).sum() + risk.power.sum()
    torch.testing.assert_close(risk(a), expanded / (2 * TOKENS), rtol=1e-12, atol=0)


@anywhere
def test_the_gradient_vanishes_at_the_optimum(coefficients):
    risk = risk_of(coefficients=coefficients)
    matrix = risk.optimum.clone().requires_grad_()
    expanded = (matrix * (risk.gram @ matrix)).sum() - 2 * (matrix * risk.cross).sum()
    (gradient,) = torch.autograd.grad(expanded, matrix)
    assert gradient.abs().max() < 1e-11


def test_one_token_and_one_feature_by_hand():
    # One shown label of feature a, one query of feature b: a* = ab / (a^2 + tau),
    # and K L* is half of b^2 + tau - (ab)^2 / (a^2 + tau).
    a, b, tau = 2.0, 3.0, 0.5
    risk = DictionaryRisk.of(torch.tensor([[a], [b]], dtype=DOUBLE), 1, tau)
    assert risk.optimum.tolist() == [[1.0, pytest.approx(a * b / (a**2 + tau))]]
    assert risk.infimum == pytest.approx((b**2 + tau - (a * b) ** 2 / (a**2 + tau)) / 4)


def test_the_optimum_is_ridge_regression_with_penalty_m_tau():
    torch.testing.assert_close(risk_of().optimum, ridge_matrix(FEATURES, SHOWN, M * TAU))


def test_ridge_coefficients_minimise_the_penalised_squares():
    labels = normal(3, SHOWN, seed=5)
    coefficients = ridge_coefficients(FEATURES[:SHOWN], labels, 0.7).requires_grad_()
    objective = (labels - coefficients @ FEATURES[:SHOWN].mT).square().sum()
    (objective + 0.7 * coefficients.square().sum()).backward()
    assert coefficients.grad.abs().max() < 1e-12


def test_ridge_matrix_answers_by_ridge_coefficients():
    labels = normal(3, SHOWN, seed=5)
    predictions = labels @ ridge_matrix(FEATURES, SHOWN, 0.7)
    coefficients = ridge_coefficients(FEATURES[:SHOWN], labels, 0.7)
    torch.testing.assert_close(predictions[:, :SHOWN], labels)
    torch.testing.assert_close(predictions[:, SHOWN:], coefficients @ FEATURES[SHOWN:].mT)


@anywhere
def test_the_distance_of_two_predictors_is_the_mean_over_sampled_labels(coefficients):
    one, other = normal(SHOWN, TOKENS, seed=4), normal(SHOWN, TOKENS, seed=5)
    task = DictionaryRegression(normal(TOKENS, 2, seed=1), FEATURES, SHOWN, TAU, coefficients)
    labels = task.sample(40_000, generator=seeded(3)).y
    sampled = (labels @ (one - other)).square().mean(1)
    assert_means(sampled, risk_of(coefficients=coefficients).distance(one, other))


@pytest.mark.parametrize("shown", [3, 7])
def test_without_noise_the_optimum_is_the_limit_of_small_noise(shown):
    exact = DictionaryRisk.of(FEATURES, shown, 0.0)
    near = DictionaryRisk.of(FEATURES, shown, 1e-9)
    torch.testing.assert_close(exact.optimum, near.optimum, rtol=1e-6, atol=1e-6)
    assert exact.infimum == pytest.approx(near.infimum, abs=1e-7)


def test_the_floor_of_one_head_is_below_random_heads_and_above_zero():
    risk = risk_of()
    floor = one_head_floor(risk)
    softmax = normal(500, SHOWN, TOKENS, seed=6).softmax(1)
    # The best weight of every column for the given softmax, by its normal equation.
    white, target = risk.root @ softmax, risk.root @ risk.optimum
    weights = (white * target).sum(1, keepdim=True) / white.square().sum(1, keepdim=True)
    gaps = ((white * weights - target).square().sum((1, 2))) / (2 * TOKENS)
    assert 0.01 < floor < gaps.min()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shown": 10}, "shown must be between 1 and the 9 tokens, got 10"),
        ({"tau": -0.1}, "tau must be finite and not negative, got -0.1"),
        ({"features": FEATURES / 0}, "features must be finite"),
        ({"second_moment": torch.eye(4)}, r"second_moment must have shape \[5, 5\].*got \[4, 4"),
    ],
)
def test_settings_that_have_no_risk_are_refused(change, message, shapes_unchecked):
    settings = {"features": FEATURES, "shown": SHOWN, "tau": TAU}
    with pytest.raises(ValueError, match=message):
        DictionaryRisk.of(**(settings | change))


def test_one_head_has_no_floor_where_no_target_has_mixed_signs():
    diagonal = torch.eye(3, dtype=DOUBLE)[[0, 1, 2, 0, 1]]
    assert one_head_floor(DictionaryRisk.of(diagonal, 3, 0.2)) < 1e-28
