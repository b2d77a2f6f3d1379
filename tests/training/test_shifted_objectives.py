"""The objectives on models with shifts."""

import pytest
import torch

from innerloop.models import LinearAttention, ShiftedGradientDescentWeights
from innerloop.tasks import LinearRegression
from innerloop.theory.linear import ray_risk
from innerloop.training import ControlledWishart, Exact, Prompts, Wishart
from tests.samples import DOUBLE, assert_means, covariance, normal, seeded

D, N, LOOPS = 2, 14, 2
SIGMA = covariance(D, seed=1)
TASK = LinearRegression.with_inverse_prior(SIGMA, N)
ANY_PRIOR = LinearRegression(SIGMA, N, covariance(D, seed=2))
NOISY = LinearRegression(SIGMA, N, noise_std=0.5)
SHIFT = normal(1, D, seed=3)


def shifted(off=0.15, loops=LOOPS, layers=1):
    inverse = torch.linalg.inv(SIGMA)
    a = 0.6 * (inverse + inverse.mT).expand(layers, D, D) / 2 + off * normal(layers, D, D, seed=4)
    return LinearAttention(ShiftedGradientDescentWeights(a, SHIFT.repeat(layers, 1)), loops)


def losses(objective, model, count=60):
    generator = seeded(5)
    with torch.no_grad():
        return torch.stack(
            [objective.loss(model, objective.sample(generator)) for _ in range(count)]
        )


@pytest.mark.parametrize("task", [TASK, ANY_PRIOR], ids=["inverse prior", "any prior"])
@pytest.mark.parametrize("objective", [Wishart, Prompts])
def test_sampled_objectives_agree_with_the_exact_one(objective, task):
    exact = Exact(task).loss(shifted()).item()
    assert_means(losses(objective(task, 800), shifted()), exact)


def test_sampled_gradients_agree_with_the_exact_one():
    model, objective, generator = shifted(), Wishart(TASK, 400), seeded(6)
    parameters = list(model.parameters())

    def gradient(loss):
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])

    exact = gradient(Exact(TASK).loss(model))
    sampled = [gradient(objective.loss(model, objective.sample(generator))) for _ in range(60)]
    assert_means(torch.stack(sampled), exact)


def test_several_layers_and_noise_are_sampled_alike():
    model = shifted(layers=2, loops=1)
    one, other = (losses(objective(NOISY, 1500), model) for objective in (Wishart, Prompts))
    error = (one.var() / len(one) + other.var() / len(other)) ** 0.5
    assert abs(one.mean() - other.mean()) < 4 * error


@pytest.mark.parametrize("control", [False, True])
def test_the_controlled_estimate_is_unbiased(control):
    model = shifted()
    exact = Exact(TASK).loss(model).item()
    assert_means(losses(ControlledWishart(TASK, 400, control=control), model), exact)


def test_on_the_ray_the_controlled_estimate_has_no_noise():
    model = shifted(off=0.0)
    exact = Exact(TASK).loss(model).item()
    values = losses(ControlledWishart(TASK, 20), model, 5)
    torch.testing.assert_close(values, torch.full((5,), exact, dtype=DOUBLE), rtol=1e-10, atol=0)
    unshifted = ray_risk(torch.full((LOOPS,), 0.6, dtype=DOUBLE), N, D).item()
    assert exact > unshifted + 0.1


def test_the_exact_objective_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match=r"one layer without label noise, got layers = 2"):
        Exact(TASK).loss(shifted(layers=2))
    with pytest.raises(ValueError, match=r"noise_std = 0\.5; use the wishart objective"):
        Exact(NOISY).loss(shifted())


def test_the_ray_refuses_shifts_of_several_layers():
    with pytest.raises(ValueError, match="shifts are known for one layer, looped; got 2 layers"):
        ControlledWishart(TASK, 10).ray(shifted(layers=2))
