import pytest
import torch

from innerloop.theory.flow import descend
from innerloop.theory.flow.minima import least_squares
from tests.samples import DOUBLE, covariance, normal


def test_descent_ends_at_the_minimum_of_a_quadratic():
    hessian, centre = covariance(4), normal(4, seed=1)
    value, place = descend(
        lambda v: (v - centre) @ hessian @ (v - centre) + 2.5, torch.zeros(4).double()
    )
    assert value == pytest.approx(2.5, abs=1e-12)
    torch.testing.assert_close(place, centre, rtol=1e-6, atol=1e-6)


def test_descent_ends_at_the_minimum_of_a_bent_valley():
    def rosenbrock(v):
        return (1 - v[0]) ** 2 + 100 * (v[1] - v[0] ** 2) ** 2

    value, place = descend(rosenbrock, torch.tensor([-1.2, 1.0], dtype=DOUBLE))
    assert value < 1e-12
    torch.testing.assert_close(place, torch.ones(2, dtype=DOUBLE), rtol=1e-5, atol=1e-5)


def test_linear_least_squares_are_solved_from_every_start():
    matrix, right = normal(6, 3, seed=1), normal(6, seed=2)
    values, places = least_squares(lambda v: matrix @ v - right, normal(5, 3, seed=3))
    expected = torch.linalg.lstsq(matrix, right.unsqueeze(-1)).solution.squeeze(-1)
    torch.testing.assert_close(places, expected.expand(5, 3), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(values, (matrix @ expected - right).square().sum().expand(5))


def test_least_squares_values_belong_to_their_places_and_never_exceed_the_start():
    def residuals(v):
        return torch.stack([v[0] ** 2 - v[1], v[1] ** 3 - 2, v.sum() ** 2 - 1])

    starts = 2 * normal(7, 2, seed=4)
    values, places = least_squares(residuals, starts, rounds=2)
    for value, place, start in zip(values, places, starts, strict=True):
        torch.testing.assert_close(value, residuals(place).square().sum())
        assert value <= residuals(start).square().sum()
