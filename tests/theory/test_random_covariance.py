import math

import pytest
import torch
from scipy.special import roots_laguerre

from innerloop.theory import (
    VarianceMoments,
    one_step_preconditioner,
    random_covariance_risk,
    random_covariance_steps,
    single_layer_risk,
)
from tests.samples import DOUBLE, normal, relative_error


def exponential_grid(d, scale=1.0):
    """Variances [points, d] and weights: exact for polynomials of degree 5 in every one."""
    nodes, weights = (torch.as_tensor(v) for v in roots_laguerre(3))
    points = torch.cartesian_prod(*[scale * nodes] * d).view(-1, d)
    return points, torch.cartesian_prod(*[weights] * d).view(-1, d).prod(-1)


def risk_given(variances, steps, n):
    d = len(steps)
    b = torch.zeros(d + 1, dtype=DOUBLE)
    b[-1] = 1
    a = torch.cat([torch.diag(steps), torch.zeros(1, d, dtype=DOUBLE)])
    return single_layer_risk(b, a, torch.diag(variances), n)


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_the_risk_is_the_mean_of_the_risks_at_fixed_covariances(scale):
    d, n, steps = 3, 7, normal(3, seed=1).abs()
    points, weights = exponential_grid(d, scale)
    mean = sum(w * risk_given(p, steps, n) for p, w in zip(points, weights, strict=True))
    moments = VarianceMoments.exponential(d).scaled(scale)
    assert random_covariance_risk(steps, moments, n).item() == pytest.approx(mean.item(), rel=1e-12)


def test_the_stated_steps_have_zero_gradient():
    moments = VarianceMoments(*(normal(4, seed=s).abs() + s for s in (1, 2, 3)))
    steps = random_covariance_steps(moments, 9).requires_grad_()
    (gradient,) = torch.autograd.grad(random_covariance_risk(steps, moments, 9), steps)
    assert gradient.abs().max() < 1e-12


def test_a_fixed_covariance_gives_the_preconditioner_of_the_one_layer_theorem():
    spectrum = torch.tensor([1.5, 0.8, 0.4], dtype=DOUBLE)
    steps = random_covariance_steps(VarianceMoments.fixed(spectrum), 12)
    assert relative_error(steps, one_step_preconditioner(torch.diag(spectrum), 12).diagonal()) < (
        1e-12
    )


@pytest.mark.parametrize("c", [0.5, 1.0, 4.0, 9.0])
def test_the_limits_per_dimension_are_cubics_in_the_scale(c):
    d, inf = 5, math.inf
    random, fixed = VarianceMoments.exponential(d), VarianceMoments.fixed(torch.ones(d).double())
    on_random, on_fixed = (random_covariance_steps(m, inf) for m in (random, fixed))

    def per_dimension(steps, moments):
        return random_covariance_risk(steps, moments.scaled(c), inf).item() / d

    assert per_dimension(on_random, random) == pytest.approx(2 / 3 * c**3 - 4 / 3 * c**2 + c)
    assert per_dimension(on_fixed, random) == pytest.approx(6 * c**3 - 4 * c**2 + c)
    assert per_dimension(on_random, fixed) == pytest.approx(c**3 / 9 - 2 / 3 * c**2 + c)
    assert per_dimension(0 * on_fixed, random) == pytest.approx(c)


def test_a_prompt_without_examples_is_refused():
    with pytest.raises(ValueError, match="n must be at least 1 example"):
        random_covariance_steps(VarianceMoments.exponential(2), 0)
