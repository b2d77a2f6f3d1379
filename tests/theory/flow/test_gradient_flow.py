import math

import pytest
import torch

from innerloop.theory.flow import gradient_flow
from tests.samples import DOUBLE, covariance, normal

HESSIAN, CENTRE = covariance(4, smallest=0.01, largest=10.0), normal(4, seed=1)


def quadratic(theta):
    return (theta - CENTRE) @ HESSIAN @ (theta - CENTRE) / 2


def saddle(theta):
    """Two minima at (+-1, 0) and a saddle at the origin."""
    return (theta[0] ** 2 - 1) ** 2 / 4 + theta[1] ** 2


def test_the_flow_of_a_stiff_quadratic_is_the_matrix_exponential():
    start = normal(4, seed=2)
    flow = gradient_flow(quadratic, start)
    times = torch.tensor([0.0, 0.01, 0.3, 2.0, 50.0, 400.0], dtype=DOUBLE)
    exact = torch.stack(
        [CENTRE + torch.linalg.matrix_exp(-t * HESSIAN) @ (start - CENTRE) for t in times]
    )
    torch.testing.assert_close(flow.at(times), exact, rtol=0, atol=1e-8)
    assert flow.converged
    torch.testing.assert_close(flow.end, CENTRE, rtol=0, atol=1e-7)  # 1e-10 over curvature 0.01


def test_the_flow_is_where_tiny_steps_of_gradient_descent_are():
    start, step, steps = torch.tensor([0.1, 0.7], dtype=DOUBLE), 1e-4, 20_000
    theta = start.clone()
    for _ in range(steps):
        x, y = theta.tolist()
        theta = theta - step * torch.tensor([x * (x * x - 1), 2 * y], dtype=DOUBLE)
    at = gradient_flow(saddle, start).at(torch.tensor([step * steps], dtype=DOUBLE))
    torch.testing.assert_close(at[0], theta, rtol=0, atol=5 * step)


def test_a_gradient_in_closed_form_gives_the_same_path():
    start = normal(4, seed=2)
    closed = gradient_flow(quadratic, start, gradient=lambda theta: HESSIAN @ (theta - CENTRE))
    automatic = gradient_flow(quadratic, start)
    times = torch.tensor([0.1, 1.0, 30.0], dtype=DOUBLE)
    torch.testing.assert_close(closed.at(times), automatic.at(times), rtol=0, atol=1e-9)
    torch.testing.assert_close(closed.pl_ratios(0.0, times), automatic.pl_ratios(0.0, times))


def test_losses_and_gradients_along_the_path_are_those_of_the_loss():
    flow = gradient_flow(quadratic, normal(4, seed=2))
    for times in (None, torch.tensor([0.1, 1.0], dtype=DOUBLE)):
        points = flow.path if times is None else flow.at(times)
        off = points - CENTRE
        losses = torch.einsum("ti,ij,tj->t", off, HESSIAN, off) / 2
        gradients = (off @ HESSIAN).square().sum(-1)
        torch.testing.assert_close(flow.losses(times), losses)
        torch.testing.assert_close(flow.squared_gradients(times), gradients)


def test_the_loss_falls_at_the_speed_of_the_squared_gradient():
    flow = gradient_flow(saddle, torch.tensor([0.3, -0.5], dtype=DOUBLE))
    times = torch.linspace(0, 3, 4001, dtype=DOUBLE)
    fallen = torch.trapezoid(flow.squared_gradients(times), times)
    losses = flow.losses(times)
    assert losses[0] - losses[-1] == pytest.approx(fallen.item(), rel=1e-5)


def test_the_pl_ratio_of_a_quadratic_lies_between_twice_its_curvatures():
    flow = gradient_flow(quadratic, normal(4, seed=2))
    ratios = flow.pl_ratios(0.0)
    assert ratios.min() >= 2 * 0.01 * (1 - 1e-9)
    assert ratios.max() <= 2 * 10 * (1 + 1e-9)
    assert ratios[-1] == pytest.approx(0.02, rel=1e-3)  # the slowest direction is left


def test_pl_ratios_are_unknown_where_the_loss_is_its_minimum_up_to_rounding():
    flow = gradient_flow(lambda theta: quadratic(theta) + 5, normal(4, seed=2))
    ratios = flow.pl_ratios(5.0)
    assert math.isnan(ratios[-1])
    assert not math.isnan(ratios[0])


def test_a_start_on_the_ridge_ends_at_the_saddle_and_says_that_it_rests():
    flow = gradient_flow(saddle, torch.tensor([0.0, 1.0], dtype=DOUBLE))
    assert flow.converged
    assert flow.end.abs().max() < 1e-9
    assert "below 1e-10" in flow.ended_because


def test_a_flow_that_starts_at_rest_stays_there():
    flow = gradient_flow(saddle, torch.tensor([1.0, 0.0], dtype=DOUBLE))
    assert flow.converged
    assert "at the start" in flow.ended_because
    torch.testing.assert_close(
        flow.at(torch.tensor([0.0, 7.0], dtype=DOUBLE)), flow.path.expand(2, 2)
    )


def test_after_its_end_a_converged_flow_stays_and_another_is_refused():
    converged = gradient_flow(saddle, torch.tensor([0.3, 0.1], dtype=DOUBLE))
    later = converged.at(converged.times[-1:] + 100)
    torch.testing.assert_close(later[0], converged.end, rtol=0, atol=1e-12)
    stopped = gradient_flow(saddle, torch.tensor([0.3, 0.1], dtype=DOUBLE), until=1.0)
    assert not stopped.converged
    assert "came to time 1" in stopped.ended_because
    with pytest.raises(ValueError, match=r"times must be at most 1, .* got 2"):
        stopped.at(torch.tensor([2.0], dtype=DOUBLE))
    with pytest.raises(ValueError, match="times must not be negative, got -1"):
        stopped.at(torch.tensor([-1.0], dtype=DOUBLE))


def test_a_flow_that_runs_off_to_infinity_ends_where_it_still_was_finite():
    """theta' = theta^2: theta = 1 / (1 - t)."""
    flow = gradient_flow(lambda theta: -(theta**3).sum() / 3, torch.ones(1, dtype=DOUBLE))
    assert not flow.converged
    assert "gave up at time 1" in flow.ended_because
    at = flow.at(torch.tensor([0.5], dtype=DOUBLE))
    assert at.item() == pytest.approx(2)


def test_too_many_steps_are_said_so():
    flow = gradient_flow(saddle, torch.tensor([0.3, 0.1], dtype=DOUBLE), most_steps=5)
    assert not flow.converged
    assert len(flow.times) == 6
    assert "5 steps" in flow.ended_because


@pytest.mark.parametrize(
    "start", [torch.zeros(2), torch.zeros(2, 2, dtype=DOUBLE), torch.zeros(0, dtype=DOUBLE)]
)
def test_a_start_that_is_no_float64_vector_is_refused(shapes_unchecked, start):
    with pytest.raises(ValueError, match="start must be one vector of float64, got shape"):
        gradient_flow(saddle, start)


def test_numbers_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="start must be finite"):
        gradient_flow(saddle, torch.tensor([0.0, math.nan], dtype=DOUBLE))
    with pytest.raises(ValueError, match="rtol must be positive and finite, got 0"):
        gradient_flow(saddle, torch.zeros(2, dtype=DOUBLE), rtol=0.0)
    with pytest.raises(ValueError, match=r"must stay finite; at time 0 it is \[nan, nan\]"):
        gradient_flow(lambda theta: theta.sum().log(), -torch.ones(2, dtype=DOUBLE))
