import pytest
import torch

from innerloop.algorithms import GDPlusPlus, GradientDescent
from innerloop.models import LinearAttention, SingleLayerWeights
from innerloop.tasks import LinearRegression
from innerloop.theory.linear import (
    layered_risk,
    layered_risk_polynomial,
    one_step_preconditioner,
    single_layer_risk,
)
from innerloop.theory.linear.layers import sandwich_moment
from innerloop.theory.wishart import TooLargeError, sample_wishart
from tests.samples import DOUBLE, assert_means, covariance, normal, seeded
from tests.theory.gaussian_quadrature import (
    linear_learner_risk,
    single_layer_quadrature,
    wishart_factors,
)

SIGMA = covariance(3, seed=1)
OMEGA = covariance(3, seed=2, smallest=0.5, largest=2.0)
N = 12


def squared_errors(learner, task, samples, seed):
    with torch.no_grad():
        prompt = task.sample(samples, generator=seeded(seed))
        return (learner(prompt) - prompt.y_query).square()[:, 0]


def chi_squared_moments(n, count):
    """E (W/n)^k in one dimension."""
    moments = [1.0]
    for k in range(count):
        moments.append(moments[-1] * (n + 2 * k) / n)
    return torch.tensor(moments, dtype=DOUBLE)


def polynomial_product(*factors):
    """The product of polynomials given by their coefficients, constant first."""
    product = torch.ones(1, dtype=DOUBLE)
    for factor in factors:
        longer = torch.zeros(len(product) + len(factor) - 1, dtype=DOUBLE)
        for i, c in enumerate(factor):
            longer[i : i + len(product)] += c * product
        product = longer
    return product


def test_the_sandwich_moment_matches_sampled_covariances():
    b, n = normal(3, 3, seed=3), 4
    root = torch.linalg.cholesky(SIGMA)
    s = root @ sample_wishart(100_000, n, 3, generator=seeded(4)) @ root.mT / n
    assert_means(s @ b @ s, sandwich_moment(b, SIGMA, n))


def test_the_sandwich_moment_is_exact():
    sigma, b, n = covariance(2, seed=3), normal(2, 2, seed=4), 4
    factor, weights = wishart_factors(n, 2, degree=2)
    root = torch.linalg.cholesky(sigma) @ factor / n**0.5
    s = root @ root.mT
    exact = torch.einsum("b,bij->ij", weights, s @ b @ s)
    torch.testing.assert_close(sandwich_moment(b, sigma, n), exact, rtol=1e-12, atol=1e-12)


def test_the_best_preconditioner_for_the_identity_prior_is_equation_8():
    gamma = (1 + 1 / N) * SIGMA + SIGMA.trace() / N * torch.eye(3, dtype=DOUBLE)
    for prior in (None, torch.eye(3, dtype=DOUBLE)):
        best = one_step_preconditioner(SIGMA, N, prior)
        torch.testing.assert_close(best @ gamma, torch.eye(3, dtype=DOUBLE), rtol=0, atol=1e-12)


def test_the_best_preconditioner_for_the_inverse_prior_is_a_multiple_of_the_inverse():
    task = LinearRegression.with_inverse_prior(SIGMA, N)
    best = one_step_preconditioner(SIGMA, N, task.prior)
    expected = N / (N + 3 + 1) * torch.linalg.inv(SIGMA)
    torch.testing.assert_close(best, expected, rtol=1e-12, atol=1e-12)


def test_long_prompts_give_the_inverse_covariance():
    best = one_step_preconditioner(SIGMA, 10**9, OMEGA, 0.5)
    torch.testing.assert_close(best, torch.linalg.inv(SIGMA), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("noise_std", [0.0, 0.6])
@pytest.mark.parametrize("prior", [None, OMEGA], ids=["identity", "general"])
def test_the_risk_is_stationary_at_the_best_preconditioner(prior, noise_std):
    best = one_step_preconditioner(SIGMA, N, prior, noise_std)
    b = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=DOUBLE).requires_grad_()
    a = torch.cat([best.mT, torch.zeros(1, 3, dtype=DOUBLE)]).requires_grad_()
    risk = single_layer_risk(b, a, SIGMA, N, prior, noise_std)
    for gradient in torch.autograd.grad(risk, (b, a)):
        assert gradient.abs().max() < 1e-12
    preconditioners = best.unsqueeze(0).requires_grad_()
    layered = layered_risk(preconditioners, SIGMA, N, prior, noise_std)
    (gradient,) = torch.autograd.grad(layered, preconditioners)
    assert gradient.abs().max() < 1e-12
    torch.testing.assert_close(layered, risk, rtol=1e-12, atol=0)


def test_the_least_risk_for_the_identity_covariance_is_known():
    d, n = 3, 7
    identity = torch.eye(d, dtype=DOUBLE)
    best = one_step_preconditioner(identity, n)
    risk = layered_risk(best.unsqueeze(0), identity, n).item()
    assert risk == pytest.approx(d * (d + 1) / (n + d + 1), rel=1e-13)


def test_the_least_risk_of_theorem_1_has_its_known_value():
    sigma = torch.diag(torch.tensor([1.2, 0.5, 0.3], dtype=DOUBLE))
    best = one_step_preconditioner(sigma, 7)
    assert layered_risk(best.unsqueeze(0), sigma, 7).item() == pytest.approx(0.696186, abs=5e-7)


def test_in_one_dimension_two_families_of_weights_have_the_same_least_risk():
    sigma = torch.full((1, 1), 0.8, dtype=DOUBLE)
    gamma = (1 + 1 / 4) * 0.8 + 0.8 / 4
    one = torch.tensor([0.0, 1.0], dtype=DOUBLE), torch.tensor([[1 / gamma], [0.0]], dtype=DOUBLE)
    other = torch.tensor([1.0, 0.0], dtype=DOUBLE), torch.tensor([[0.0], [1 / gamma]], dtype=DOUBLE)
    for b, a in (one, other):
        assert single_layer_risk(b, a, sigma, 4).item() == pytest.approx(4 / 15, rel=1e-12)


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "unmasked"])
@pytest.mark.parametrize("noise_std", [0.0, 0.7])
@pytest.mark.parametrize("prior", [None, OMEGA], ids=["identity", "general"])
def test_the_risk_of_one_layer_matches_sampled_prompts(prior, noise_std, masked):
    task = LinearRegression(SIGMA, 5, prior, noise_std)
    b, a = 0.6 * normal(4, seed=5), 0.6 * normal(4, 3, seed=6)
    learner = LinearAttention(SingleLayerWeights(b, a), masked=masked)
    exact = single_layer_risk(b, a, SIGMA, 5, prior, noise_std, masked=masked).item()
    assert_means(squared_errors(learner, task, 150_000, seed=7), exact)


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "unmasked"])
@pytest.mark.parametrize("noise_std", [0.0, 0.7])
def test_the_risk_of_one_layer_is_exact(noise_std, masked):
    sigma, omega, n = covariance(2, seed=3), covariance(2, seed=4), 3
    b, a = normal(3, seed=5), normal(3, 2, seed=6)
    model = LinearAttention(SingleLayerWeights(b, a), masked=masked)
    exact = single_layer_quadrature(model, sigma, n, omega, noise_std)
    risk = single_layer_risk(b, a, sigma, n, omega, noise_std, masked=masked).item()
    assert risk == pytest.approx(exact, rel=1e-11)


def test_the_mask_matters_only_through_the_query_in_the_gram_matrix():
    a = normal(4, 3, seed=6)
    b = torch.tensor([0.0, 0.0, 0.0, 0.8], dtype=DOUBLE)  # p = 0: the query's token is not read
    masked, unmasked = (single_layer_risk(b, a, SIGMA, 5, masked=m) for m in (True, False))
    torch.testing.assert_close(masked, unmasked, rtol=1e-14, atol=0)
    b = normal(4, seed=5)
    masked, unmasked = (single_layer_risk(b, a, SIGMA, 5, masked=m) for m in (True, False))
    assert (masked - unmasked).abs() > 0.1


@pytest.mark.parametrize("noise_std", [0.0, 0.7])
@pytest.mark.parametrize("prior", [None, OMEGA], ids=["identity", "general"])
def test_the_risk_of_two_layers_matches_sampled_gradient_descent(prior, noise_std):
    task = LinearRegression(SIGMA, N, prior, noise_std)
    a = 0.4 * torch.eye(3, dtype=DOUBLE) + 0.2 * normal(2, 3, 3, seed=8)
    exact = layered_risk(a, SIGMA, N, prior, noise_std).item()
    assert_means(squared_errors(GradientDescent(list(a)), task, 100_000, seed=9), exact)


@pytest.mark.parametrize("noise_std", [0.0, 0.5])
def test_the_risk_with_transforms_matches_sampled_gd_plus_plus(noise_std):
    sigma, n = covariance(2, seed=3), N
    task = LinearRegression(sigma, n, noise_std=noise_std)
    a = torch.stack([covariance(2, seed=s, smallest=0.2, largest=0.5) for s in (4, 5)])
    b = 0.3 * normal(2, 2, 2, seed=6)
    exact = layered_risk(a, sigma, n, None, noise_std, transforms=b, symmetric=True).item()
    without = layered_risk(a, sigma, n, None, noise_std).item()
    assert abs(exact / without - 1) > 0.02  # the transforms do something here
    errors = squared_errors(GDPlusPlus(list(a), list(b)), task, 100_000, seed=10)
    assert_means(errors, exact)


@pytest.mark.parametrize("noise_std", [0.0, 1.3])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_risk_of_layers_is_exact(layers, noise_std):
    sigma, omega, n = covariance(2, seed=3), covariance(2, seed=4), 5
    a = 0.5 * torch.eye(2, dtype=DOUBLE) + 0.5 * normal(layers, 2, 2, seed=5)
    exact = linear_learner_risk(
        GradientDescent(list(a)), sigma, n, omega, noise_std, degree=2 * layers
    )
    risk = layered_risk(a, sigma, n, omega, noise_std).item()
    assert risk == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("noise_std", [0.0, 0.5])
def test_the_risk_with_transforms_is_exact(noise_std):
    sigma, identity = covariance(2, seed=3), torch.eye(2, dtype=DOUBLE)
    a = torch.stack([covariance(2, seed=s, smallest=0.2, largest=1.0) for s in (4, 5)])
    b = 0.6 * normal(2, 2, 2, seed=6)
    learner = GDPlusPlus(list(a), list(b))
    exact = linear_learner_risk(learner, sigma, N, identity, noise_std, degree=8)
    risk = layered_risk(a, sigma, N, None, noise_std, transforms=b, symmetric=True).item()
    assert risk == pytest.approx(exact, rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("noise_std", [0.0, 0.5])
def test_the_risk_with_asymmetric_weights_and_transforms_is_exact(noise_std):
    sigma, omega = covariance(2, seed=3), covariance(2, seed=4)
    a = 0.5 * torch.eye(2, dtype=DOUBLE) + 0.3 * normal(2, 2, 2, seed=5)
    b = 0.6 * normal(2, 2, 2, seed=6)
    learner = GDPlusPlus(list(a), list(b))
    exact = linear_learner_risk(learner, sigma, N, omega, noise_std, degree=8)
    risk = layered_risk(a, sigma, N, omega, noise_std, transforms=b).item()
    assert risk == pytest.approx(exact, rel=1e-10)


def test_layers_in_another_order_have_another_risk():
    a = 0.5 * torch.eye(3, dtype=DOUBLE) + 0.3 * normal(2, 3, 3, seed=8)
    risk, swapped = layered_risk(a, SIGMA, N, OMEGA), layered_risk(a.flip(0), SIGMA, N, OMEGA)
    assert abs(swapped / risk - 1) > 1e-3


@pytest.mark.parametrize("noise_std", [0.0, 0.7])
def test_loops_are_layers_with_equal_weights(noise_std):
    a = 0.4 * torch.eye(3, dtype=DOUBLE) + 0.2 * normal(3, 3, seed=8)
    looped = layered_risk(a.unsqueeze(0), SIGMA, N, OMEGA, noise_std, loops=3)
    stacked = layered_risk(a.expand(3, 3, 3), SIGMA, N, OMEGA, noise_std)
    torch.testing.assert_close(looped, stacked, rtol=1e-11, atol=0)


def test_loops_with_transforms_are_layers_with_equal_weights():
    sigma = covariance(2, seed=3)
    a, b = covariance(2, seed=4, smallest=0.2, largest=0.5), 0.3 * normal(2, 2, seed=6)
    looped = layered_risk(
        a.unsqueeze(0), sigma, N, transforms=b.unsqueeze(0), loops=2, symmetric=True
    )
    stacked = layered_risk(
        a.expand(2, 2, 2), sigma, N, transforms=b.expand(2, 2, 2), symmetric=True
    )
    torch.testing.assert_close(looped, stacked, rtol=1e-10, atol=0)


def test_symmetric_preconditioners_have_the_same_risk_when_it_is_known():
    a = torch.stack([covariance(3, seed=s, smallest=0.2, largest=0.8) for s in (4, 5)])
    known = layered_risk(a, SIGMA, N, OMEGA, 0.3, symmetric=True)
    torch.testing.assert_close(known, layered_risk(a, SIGMA, N, OMEGA, 0.3), rtol=1e-12, atol=0)


def test_a_batch_of_weights_is_evaluated_like_a_loop():
    a = 0.3 * normal(4, 2, 3, 3, seed=8)
    risks = layered_risk(a, SIGMA, N, OMEGA, 0.3)
    assert risks.shape == (4,)
    for risk, one in zip(risks, a, strict=True):
        torch.testing.assert_close(
            risk, layered_risk(one, SIGMA, N, OMEGA, 0.3), rtol=1e-12, atol=0
        )


def test_a_batch_of_transforms_is_evaluated_like_a_loop():
    sigma = covariance(2, seed=3)
    a = torch.stack([covariance(2, seed=s, smallest=0.2, largest=0.5) for s in range(6)])
    a, b = a.view(3, 2, 2, 2), 0.3 * normal(3, 2, 2, 2, seed=6)
    risks = layered_risk(a, sigma, N, transforms=b, symmetric=True)
    mapped = torch.func.vmap(lambda a, b: layered_risk(a, sigma, N, transforms=b, symmetric=True))(
        a, b
    )
    for i in range(3):
        one = layered_risk(a[i], sigma, N, transforms=b[i], symmetric=True)
        torch.testing.assert_close(risks[i], one, rtol=1e-10, atol=0)
        torch.testing.assert_close(mapped[i], one, rtol=1e-10, atol=0)


def test_the_gradient_matches_finite_differences():
    a = (0.3 * normal(2, 3, 3, seed=8)).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda a: layered_risk(a, SIGMA, N, OMEGA, 0.3), (a,), atol=1e-7
    )


def test_zero_preconditioners_leave_the_whole_label():
    zero = torch.zeros(2, 3, 3, dtype=DOUBLE)
    risk = layered_risk(zero, SIGMA, N, OMEGA, 0.3)
    torch.testing.assert_close(risk, (SIGMA @ OMEGA).trace(), rtol=1e-13, atol=0)


@pytest.mark.parametrize("noise_std", [0.0, 0.5])
def test_in_one_dimension_two_layers_are_computed_by_hand(noise_std):
    sigma, omega, n, (a1, a2) = 0.8, 1.7, 6, (0.5, 1.1)
    moments = chi_squared_moments(n, 8)
    # S = sigma u with u = chi^2_n / n; w = K m with K = a1 + a2 - a1 a2 S.
    p = polynomial_product([1, -a1 * sigma], [1, -a2 * sigma])
    k = torch.tensor([a1 + a2, -a1 * a2 * sigma], dtype=DOUBLE)
    square, noise = polynomial_product(p, p), polynomial_product(k, k, [0, sigma])
    expected = omega * sigma * (square * moments[: len(square)]).sum()
    expected += noise_std**2 / n * sigma * (noise * moments[: len(noise)]).sum()
    a = torch.tensor([a1, a2], dtype=DOUBLE).view(2, 1, 1)
    risk = layered_risk(
        a,
        torch.full((1, 1), sigma, dtype=DOUBLE),
        n,
        torch.full((1, 1), omega, dtype=DOUBLE),
        noise_std,
    )
    torch.testing.assert_close(risk, expected, rtol=1e-12, atol=0)


def test_in_one_dimension_transforms_are_computed_by_hand():
    sigma, n, (a1, a2), b = 0.8, N, (0.5, 1.1), 0.6
    moments = chi_squared_moments(n, 10)
    g = polynomial_product([0, sigma], [1, -a1 * b * sigma], [1, -a1 * b * sigma])
    second = -a2 * g
    second[0] += 1
    p = polynomial_product([1, -a1 * sigma], second)
    square = polynomial_product(p, p)
    expected = sigma * (square * moments[: len(square)]).sum()
    risk = layered_risk(
        torch.tensor([a1, a2], dtype=DOUBLE).view(2, 1, 1),
        torch.full((1, 1), sigma, dtype=DOUBLE),
        n,
        transforms=torch.tensor([b, 0.3], dtype=DOUBLE).view(2, 1, 1),
        symmetric=True,
    )
    torch.testing.assert_close(risk, expected, rtol=1e-11, atol=0)


def test_too_many_layers_are_refused_with_what_to_do_instead():
    with pytest.raises(TooLargeError, match="the exact risk of 6 layers has degree 12") as error:
        layered_risk_polynomial(2, N, loops=3)
    assert "`wishart` objective" in str(error.value)
    sentence = "the exact risk of 3 layers with transforms has degree 26"
    with pytest.raises(TooLargeError, match=sentence):
        layered_risk_polynomial(3, N, transformed=True)
