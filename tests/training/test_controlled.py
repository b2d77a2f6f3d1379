import pytest
import torch

from innerloop.models import (
    DenseWeights,
    GDPlusPlusWeights,
    GradientDescentWeights,
    LinearAttention,
)
from innerloop.tasks import GaussianCovariates, LinearFunctions, LinearRegression, Regression
from innerloop.theory.linear import layered_risk, ray_risk
from innerloop.training import ControlledWishart
from tests.models.forms import weights
from tests.samples import DOUBLE, assert_means, covariance, normal, seeded

D, N = 2, 12
SIGMA = covariance(D, seed=1)
TASK = LinearRegression.with_inverse_prior(SIGMA, N)
STEPS = torch.tensor([0.5, 0.9], dtype=DOUBLE)
TRANSFORMS = torch.tensor([0.4, 0.2], dtype=DOUBLE)


def on_the_ray(transformed, off=0.0):
    identity = torch.eye(D, dtype=DOUBLE)
    inverse = torch.linalg.inv(SIGMA)
    a = STEPS[:, None, None] * (inverse + inverse.mT) / 2
    noise = normal(2, D, D, seed=2)
    a = a + off * (noise + noise.mT)
    if not transformed:
        return LinearAttention(GradientDescentWeights(a))
    b = TRANSFORMS[:, None, None] * identity + off * normal(2, D, D, seed=3)
    return LinearAttention(GDPlusPlusWeights(a, b))


def losses(objective, model, count=60):
    generator = seeded(4)
    with torch.no_grad():
        return torch.stack(
            [objective.loss(model, objective.sample(generator)) for _ in range(count)]
        )


@pytest.mark.parametrize("transformed", [False, True])
def test_on_the_ray_the_estimate_has_no_noise(transformed):
    model = on_the_ray(transformed)
    values = losses(ControlledWishart(TASK, 20), model, 5)
    exact = ray_risk(STEPS, N, D, TRANSFORMS if transformed else None)
    torch.testing.assert_close(values, exact.expand(5), rtol=1e-10, atol=0)


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("transformed", [False, True])
def test_off_the_ray_the_estimate_is_unbiased(transformed, control):
    model = on_the_ray(transformed, off=0.1)
    a = model.weights.preconditioners.detach()
    b = model.weights.transforms.detach() if transformed else None
    exact = layered_risk(a, SIGMA, N, TASK.prior, transforms=b, symmetric=True).item()
    assert_means(losses(ControlledWishart(TASK, 400, control=control), model), exact)


def test_the_control_lowers_the_variance_near_the_ray():
    model = on_the_ray(True, off=0.05)
    with_control, without = (
        losses(ControlledWishart(TASK, 100, control=c), model).var() for c in (True, False)
    )
    assert with_control < without / 4


def test_the_gradient_on_the_ray_points_along_the_ray():
    model = on_the_ray(True)
    objective = ControlledWishart(TASK, 10)
    objective.loss(model, objective.sample(seeded(5))).backward()
    # Theorem 5: the gradient in A is a multiple of Sigma, the gradient in B one of the identity.
    whitened = torch.linalg.solve(SIGMA, model.weights.preconditioners.grad)
    for matrix in (*whitened, *model.weights.transforms.grad):
        off = matrix - matrix.trace() / D * torch.eye(D, dtype=DOUBLE)
        assert off.abs().max() < 1e-10


def test_each_shifted_covariance_has_the_moments_of_a_sample_covariance():
    s, eigenvalues = ControlledWishart(TASK, 20_000).sample(seeded(6))
    assert eigenvalues.shape == (20_000, D)
    by_shift = s.view(20_000, D, D, D)
    for k in range(D):
        assert_means(by_shift[:, k], SIGMA)


def test_another_prior_is_refused():
    with pytest.raises(ValueError, match="task must have the inverse of its covariance as prior"):
        ControlledWishart(LinearRegression(SIGMA, N), 5)


def test_noise_is_refused():
    noisy = LinearRegression.with_inverse_prior(SIGMA, N, noise_std=0.5)
    with pytest.raises(ValueError, match=r"task must be without noise, got noise_std 0.5"):
        ControlledWishart(noisy, 5)


def test_a_composition_of_gaussians_is_accepted():
    parts = Regression(GaussianCovariates(SIGMA), LinearFunctions(TASK.prior), N)
    model = on_the_ray(True, off=0.1)
    one, other = (losses(ControlledWishart(task, 20), model, 2) for task in (parts, TASK))
    assert torch.equal(one, other)


def test_weights_without_a_ray_are_refused():
    objective = ControlledWishart(TASK, 5)
    model = LinearAttention(weights(DenseWeights, d=D))
    with pytest.raises(
        ValueError, match=r"GradientDescentWeights and GDPlusPlusWeights, got DenseWeights"
    ):
        objective.loss(model, objective.sample(seeded()))
