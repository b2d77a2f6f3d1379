"""Exact risks of one step under shifts, against the known special cases and a quadrature."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from innerloop import theory
from innerloop.theory.linear.shifted_risk import quadratic_moment
from tests.samples import DOUBLE, assert_means, covariance, normal, rotation, seeded
from tests.theory.gaussian_quadrature import normal_nodes

T, OMEGA, QUERY = (covariance(3, seed=s) for s in (1, 2, 3))
A = 0.5 * normal(3, 3, seed=4)


def test_without_shift_it_is_the_risk_of_one_layer():
    same = theory.linear.one_step_risk(A, T, 4, OMEGA, 0.6)
    layered = theory.linear.layered_risk(A.unsqueeze(0), T, 4, OMEGA, 0.6)
    torch.testing.assert_close(same, layered, rtol=1e-12, atol=0)


def test_the_best_preconditioner_of_the_shifted_task_has_no_slope():
    best = theory.linear.one_step_preconditioner(T, 4, OMEGA, 0.6).requires_grad_()
    (slope,) = torch.autograd.grad(theory.linear.one_step_risk(best, T, 4, OMEGA, 0.6), best)
    assert slope.abs().max() < 1e-12


def test_another_query_covariance_only_enters_linearly():
    risks = [
        theory.linear.one_step_risk(A, T, 4, OMEGA, 0.6, query_covariance=c)
        for c in (QUERY, T, (QUERY + T) / 2)
    ]
    torch.testing.assert_close(risks[2], (risks[0] + risks[1]) / 2)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.floats(0.2, 5.0))
def test_rotating_everything_changes_nothing_and_labels_scale(seed, factor):
    r = rotation(3, seed=seed)
    turned = [r @ m @ r.mT for m in (A, T, OMEGA)]
    for risk in (theory.linear.one_step_risk, theory.linear.in_context_query_risk):
        torch.testing.assert_close(
            risk(turned[0], turned[1], 4, turned[2], 0.3), risk(A, T, 4, OMEGA, 0.3)
        )
        torch.testing.assert_close(
            risk(A, T, 4, factor**2 * OMEGA, 0.3 * factor), factor**2 * risk(A, T, 4, OMEGA, 0.3)
        )


@pytest.mark.parametrize("count", [1, 2, 3])
def test_products_of_quadratic_forms_have_the_moments_of_samples(count):
    forms = [normal(3, 3, seed=s) for s in range(count)]
    x = normal(400_000, 3, seed=9) @ torch.linalg.cholesky(T).mT
    values = torch.stack([torch.einsum("bi,ij,bj->b", x, b, x) for b in forms]).prod(0)
    assert_means(values, quadratic_moment(forms, T))


def test_four_forms_are_refused():
    with pytest.raises(ValueError, match="one, two or three matrices, got 4"):
        quadratic_moment([A] * 4, T)


@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("noise_std", [0.0, 0.8])
def test_a_query_among_the_examples_in_one_dimension_by_quadrature(length, noise_std):
    a, variance, prior = 0.7, 1.3, 0.6

    z, mass = normal_nodes(2 * length + 1, degree=10)
    x, w, noise = z[:, :length] * math.sqrt(variance), z[:, length], z[:, length + 1 :]
    w = w * math.sqrt(prior)
    m = (x * (x * w[:, None] + noise_std * noise)).mean(1)
    exact = ((a * x[:, 0] * m - w * x[:, 0]).square() * mass).sum().item()
    one = torch.ones(1, 1, dtype=DOUBLE)
    risk = theory.linear.in_context_query_risk(
        a * one, variance * one, length, prior * one, noise_std
    )
    assert risk.item() == pytest.approx(exact, rel=1e-10)


def test_a_linear_response_has_the_risk_of_linear_regression():
    one = torch.eye(4, dtype=DOUBLE)
    exact = theory.linear.one_step_risk(0.4 * one, 1.3 * one, 5, 0.7 * one, 0.6).item()
    risk = theory.linear.response_risk(
        0.4, lambda s: s, variance=1.3, prior_variance=0.7, d=4, length=5, noise_std=0.6
    )
    assert risk == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("response", [torch.tanh, lambda s: s**3 - s], ids=["tanh", "cubic"])
def test_nonlinear_responses_against_the_moments_given_each_weight(response):
    """The mean over sampled w of the exact error given w, which another module computes."""
    covariance = 1.3 * torch.eye(2, dtype=DOUBLE)
    errors = []
    for w in normal(1500, 2, seed=5) * 0.5:
        moments = theory.linear.JointMoments.of_function(
            lambda x, w=w: response(x @ w), covariance, degree=12
        )
        errors.append(theory.linear.prediction_error(0.4 * torch.eye(2, dtype=DOUBLE), moments, 5))
    risk = theory.linear.response_risk(
        0.4, response, variance=1.3, prior_variance=0.25, d=2, length=5
    )
    assert_means(torch.stack(errors), risk)


def test_sampled_prompts_agree_with_every_exact_risk():
    from innerloop.algorithms import GradientDescent
    from innerloop.tasks import LinearRegression, with_query_covariance, with_query_in_context

    base = LinearRegression(T, 4, OMEGA, 0.6)
    cases = [
        (base, theory.linear.one_step_risk(A, T, 4, OMEGA, 0.6)),
        (
            with_query_covariance(base, QUERY),
            theory.linear.one_step_risk(A, T, 4, OMEGA, 0.6, query_covariance=QUERY),
        ),
        (
            with_query_in_context(base),
            theory.linear.in_context_query_risk(A, T, 4, OMEGA, 0.6),
        ),
    ]
    for task, exact in cases:
        prompt = task.sample(200_000, generator=seeded(8))
        assert_means((GradientDescent([A])(prompt) - prompt.y_query).square(), exact)


def response(**changes):
    sizes = {"variance": 1.0, "prior_variance": 1.0, "d": 3, "length": 4}
    return theory.linear.response_risk(0.4, torch.tanh, **(sizes | changes))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.linear.one_step_risk(A, T, -3), "length must be at least 1 .* got -3"),
        (lambda: theory.linear.one_step_risk(A, T, 0), "length must be at least 1 .* got 0"),
        (lambda: theory.linear.one_step_risk(A, T, 4, noise_std=-1.0), "noise_std must be finite"),
        (
            lambda: theory.linear.in_context_query_risk(A, T, -2),
            "length must be at least 1, got -2",
        ),
        (lambda: response(length=-3), "length must be at least 1 .* got -3"),
        (lambda: response(length=0), "length must be at least 1 .* got 0"),
        (lambda: response(variance=-1.0), "^variance must be positive and finite, got -1"),
        (lambda: response(prior_variance=0.0), "prior_variance must be positive"),
        (lambda: response(d=0), "d must be at least 1, got 0"),
    ],
)
def test_impossible_settings_are_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_at_infinite_length_only_the_bias_is_left():
    left = torch.eye(len(T), dtype=DOUBLE) - A @ T
    exact = (left.mT @ T @ left).trace().item()
    assert theory.linear.one_step_risk(A, T, float("inf"), noise_std=0.6).item() == pytest.approx(
        exact
    )
