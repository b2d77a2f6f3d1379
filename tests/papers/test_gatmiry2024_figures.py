"""The figures of Gatmiry et al. (2024) at the smallest scale, and how their models are trained."""

import pytest
import torch
from scipy.integrate import solve_ivp

from innerloop import theory
from innerloop.analysis import estimate_risk
from innerloop.models import GradientDescentWeights, LinearAttention, ShiftedGradientDescentWeights
from innerloop.papers import Outcome, select
from innerloop.papers.common import DTYPE, generator
from innerloop.papers.gatmiry2024.figure3 import (
    SHIFTED_VARIANCES,
    shifted_lower_bound,
    shifted_means,
    shifted_task,
)
from innerloop.papers.gatmiry2024.training import (
    exactly_trained,
    looped_transformer,
    preconditioner_of,
    ray_flow,
    skew_curvature,
    symmetric_coordinates,
)
from innerloop.papers.verdict import SIGMAS
from innerloop.tasks import LinearRegression
from innerloop.training import ControlledWishart
from tests.papers.contract import assert_measured, each

FIGURES = [f"gatmiry2024/{name}" for name in ("figure1", "figure2", "figure3", "figure4")]


@pytest.mark.parametrize("entry", each(select(FIGURES)))
def test_the_figure_holds_as_corrected_and_every_control_is_told_apart(entry, tmp_path):
    assert_measured(entry, Outcome.CORRECTED, tmp_path)


@pytest.mark.parametrize("loops", [2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_no_sample_shows_a_symmetric_matrix_as_better_than_its_multiple_of_the_identity(
    loops, seed
):
    matrix = torch.randn(4, 4, generator=generator(seed), dtype=DTYPE)
    symmetric = 0.3 * (matrix + matrix.mT) + 0.5 * torch.eye(4, dtype=DTYPE)
    model = LinearAttention(GradientDescentWeights(symmetric[None]), loops)
    objective = ControlledWishart(LinearRegression.isotropic(4, 12), batch=1)
    loss = objective.loss(model, objective.sample(generator(seed)))
    assert loss > objective.ray_risk(model)


def test_symmetric_coordinates_keep_matrices_symmetric_and_leave_shifts_free():
    weights = ShiftedGradientDescentWeights.gaussian(3, 1, 1.0, generator=generator(0))
    model = LinearAttention(weights, 2)
    z = torch.randn(12, generator=generator(1), dtype=DTYPE)
    moved = symmetric_coordinates(model) @ z
    matrix = moved[:9].view(3, 3)
    torch.testing.assert_close(matrix, matrix.mT)
    torch.testing.assert_close(matrix, (z[:9].view(3, 3) + z[:9].view(3, 3).mT) / 2)
    torch.testing.assert_close(moved[9:], z[9:])


@pytest.mark.parametrize("n", [2, 20])
def test_training_ends_on_the_best_step_also_with_fewer_examples_than_dimensions(n):
    run = looped_transformer(5, n, 5, seed=3)
    assert abs(run.step / run.best.steps[0].item() - 1) < 1e-3
    assert run.history["dist"][-1] < 1e-2


def test_a_free_matrix_that_beats_the_best_multiple_of_the_identity_does_so_on_fresh_prompts():
    run = exactly_trained(10, 100, 3, seed=1)
    a = preconditioner_of(run.model)
    skew = (a - a.mT) / 2
    assert torch.linalg.matrix_norm(skew) > 0.1
    estimate = estimate_risk(run.model, run.task, samples=60_000, generator=generator(7))
    assert estimate.z(run.best.risk) < -SIGMAS
    assert abs(estimate.z(run.history["loss"][-1])) < SIGMAS


def test_skew_curvature_matches_a_difference_quotient_of_the_exact_loss():
    d, n, loops, e = 4, 60, 2, 1e-3
    best = theory.linear.looped_optimum(loops, n, d)
    skew = torch.zeros(d, d, dtype=DTYPE)
    skew[1, 3], skew[3, 1] = e, -e
    identity = torch.eye(d, dtype=DTYPE)
    moved = theory.linear.tied_risk(
        best.steps[0] * identity + skew, identity, n, loops=loops
    ).item()
    assert 2 * (moved - best.risk) / e**2 == pytest.approx(skew_curvature(d, n, loops), rel=1e-4)


def test_gradient_flow_solves_its_differential_equation():
    loops, n, d = 3, 30, 4
    times, steps = ray_flow(loops, n, d)

    def velocity(_, a):
        step = torch.full((loops,), float(a[0]), dtype=DTYPE, requires_grad=True)
        (slope,) = torch.autograd.grad(theory.linear.ray_risk(step, n, d), step)
        return [-slope.sum().item() / d]

    solution = solve_ivp(velocity, (0, times[-1].item()), [0.0], rtol=1e-9, atol=1e-12)
    assert solution.y[0, -1] == pytest.approx(steps[-1].item(), rel=1e-6)


@pytest.mark.parametrize("n", [20, 100])
def test_the_loss_under_another_covariance_is_exact_and_above_its_lower_bound(n):
    step = 0.6
    exact = shifted_means(step, n, 3)
    bound = shifted_lower_bound(step, n, 3).tolist()
    assert all(low < mean for low, mean in zip(bound, exact, strict=True))
    identity = torch.eye(len(SHIFTED_VARIANCES), dtype=DTYPE)
    model = LinearAttention(GradientDescentWeights(step * identity[None]), 2)
    estimate = estimate_risk(model, shifted_task(n), samples=50_000, generator=generator(0))
    assert abs(estimate.z(exact[1])) < SIGMAS
