import math

import pytest
import torch
from scipy.special import roots_laguerre

from innerloop.theory.flow import SingleLayerFlow
from innerloop.theory.linear import (
    CovarianceLaw,
    one_step_preconditioner,
    random_covariance_risk,
    single_layer_risk,
)
from tests.samples import DOUBLE, covariance, normal, relative_error


def exponential(d, scale=1.0):
    return CovarianceLaw.exponential(torch.full((d,), scale, dtype=DOUBLE))


def exponential_grid(d, scale=1.0):
    """Variances [points, d] and weights: exact for polynomials of degree 5 in every one."""
    nodes, weights = (torch.as_tensor(v) for v in roots_laguerre(3))
    points = torch.cartesian_prod(*[scale * nodes] * d).view(-1, d)
    return points, torch.cartesian_prod(*[weights] * d).view(-1, d).prod(-1)


def risk_given(fixed, preconditioner, n):
    d = len(fixed)
    b = torch.zeros(d + 1, dtype=DOUBLE)
    b[-1] = 1
    # A single layer predicts m^T U x_q, one step x_q^T A m.
    a = torch.cat([preconditioner.mT, torch.zeros(1, d, dtype=DOUBLE)])
    return single_layer_risk(b, a, fixed, n)


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_the_risk_is_the_mean_of_the_risks_at_fixed_covariances(scale):
    d, n, a = 3, 7, normal(3, 3, seed=1)
    points, weights = exponential_grid(d, scale)
    mean = sum(w * risk_given(torch.diag(p), a, n) for p, w in zip(points, weights, strict=True))
    risk = random_covariance_risk(a, exponential(d, scale), n)
    assert risk.item() == pytest.approx(mean.item(), rel=1e-12)


def test_the_same_for_covariances_that_do_not_commute():
    both = torch.stack([covariance(3, seed=1), covariance(3, seed=2)])
    law = CovarianceLaw.mixture(both, torch.tensor([0.3, 0.7], dtype=DOUBLE))
    a = normal(3, 3, seed=1)
    mean = 0.3 * risk_given(both[0], a, 5) + 0.7 * risk_given(both[1], a, 5)
    assert random_covariance_risk(a, law, 5).item() == pytest.approx(mean.item(), rel=1e-12)


def test_where_the_flow_ends_the_risk_has_no_slope():
    both = torch.stack([covariance(3, seed=1), covariance(3, seed=2)])
    mixture = CovarianceLaw.mixture(both, torch.tensor([0.3, 0.7], dtype=DOUBLE))
    for law in (mixture, exponential(4)):
        # The flow's v U is the transpose of the preconditioner.
        a = SingleLayerFlow(law, 9).product.mT.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(random_covariance_risk(a, law, 9), a)
        assert gradient.abs().max() < 1e-11


def test_a_fixed_covariance_gives_the_preconditioner_of_the_one_layer_theorem():
    fixed = covariance(3)
    product = SingleLayerFlow(CovarianceLaw.fixed(fixed), 12).product
    assert relative_error(product, one_step_preconditioner(fixed, 12)) < 1e-12


@pytest.mark.parametrize("c", [0.5, 1.0, 4.0, 9.0])
def test_the_limits_per_dimension_are_cubics_in_the_scale(c):
    d, inf = 5, math.inf
    fixed = CovarianceLaw.fixed(torch.eye(d, dtype=DOUBLE))
    on_random, on_fixed = (SingleLayerFlow(m, inf).product for m in (exponential(d), fixed))
    random = exponential(d, c)
    scaled = CovarianceLaw.fixed(c * torch.eye(d, dtype=DOUBLE))

    def per_dimension(a, law):
        return random_covariance_risk(a, law, inf).item() / d

    assert per_dimension(on_random, random) == pytest.approx(2 / 3 * c**3 - 4 / 3 * c**2 + c)
    assert per_dimension(on_fixed, random) == pytest.approx(6 * c**3 - 4 * c**2 + c)
    assert per_dimension(on_random, scaled) == pytest.approx(c**3 / 9 - 2 / 3 * c**2 + c)
    assert per_dimension(0 * on_fixed, random) == pytest.approx(c)


def test_a_prompt_without_examples_is_refused():
    with pytest.raises(ValueError, match="length must be at least 1 example"):
        random_covariance_risk(torch.eye(2, dtype=DOUBLE), exponential(2), 0)
