import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from innerloop.algorithms import GradientDescent, LeastSquares, Zero
from innerloop.analysis import distance_to_identity, prediction_distance
from innerloop.tasks import LinearRegression
from tests.samples import covariance, normal, rotation, seeded

seeds = st.integers(0, 2**16)
sizes = st.integers(2, 6)


@given(d=sizes, seed=seeds)
def test_the_distance_to_the_identity_lies_between_0_and_1(d, seed):
    distance = distance_to_identity(normal(d, d, seed=seed)).item()
    assert 0 < distance <= 1


@given(d=sizes, factor=st.floats(0.01, 100) | st.floats(-100, -0.01))
def test_a_multiple_of_the_identity_has_distance_0(d, factor):
    matrix = factor * torch.eye(d, dtype=torch.float64)
    assert distance_to_identity(matrix).item() == pytest.approx(0, abs=1e-14)


def test_a_matrix_without_trace_has_distance_1():
    matrix = torch.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=torch.float64)
    assert distance_to_identity(matrix).item() == pytest.approx(1, abs=1e-14)


@given(d=sizes, seed=seeds, factor=st.floats(0.01, 100) | st.floats(-100, -0.01))
def test_the_distance_does_not_change_with_scale_or_rotation(d, seed, factor):
    matrix, u = normal(d, d, seed=seed), rotation(d, seed + 1)
    distance = distance_to_identity(matrix)
    close = {"rtol": 1e-10, "atol": 1e-12}
    torch.testing.assert_close(distance_to_identity(factor * matrix), distance, **close)
    torch.testing.assert_close(distance_to_identity(u @ matrix @ u.mT), distance, **close)
    torch.testing.assert_close(distance_to_identity(matrix.mT), distance, **close)


@given(d=sizes, seed=seeds)
def test_no_other_multiple_of_the_identity_is_nearer(d, seed):
    matrix = normal(d, d, seed=seed) + torch.eye(d, dtype=torch.float64)
    distance = distance_to_identity(matrix).item()
    for multiple in torch.linspace(-3, 3, 61).tolist():
        rest = matrix - multiple * torch.eye(d, dtype=torch.float64)
        assert rest.norm() / matrix.norm() >= distance - 1e-12


def test_a_diagonal_matrix_by_hand():
    matrix = torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64))
    assert distance_to_identity(matrix).item() == pytest.approx((2 / 10) ** 0.5, rel=1e-14)


def test_the_zero_matrix_is_a_multiple_of_the_identity():
    assert distance_to_identity(torch.zeros(3, 3, dtype=torch.float64)).item() == 0


def test_batches_are_measured_one_by_one():
    matrices = normal(2, 4, 3, 3)
    distances = distance_to_identity(matrices)
    assert distances.shape == (2, 4)
    torch.testing.assert_close(distances[1, 2], distance_to_identity(matrices[1, 2]))


def test_the_distance_of_predictions_is_their_root_mean_square_difference():
    task = LinearRegression(covariance(3), 5)
    prompt = task.sample(300, generator=seeded(1))
    learner, other = GradientDescent([0.3]), LeastSquares()
    expected = (learner(prompt) - other(prompt)).square().mean().sqrt().item()
    distance = prediction_distance(learner, other, task, batch=300, generator=seeded(1))
    assert distance == pytest.approx(expected, rel=1e-14)


def test_a_learner_has_distance_0_from_itself_and_the_same_from_another_either_way():
    task, learner, other = LinearRegression(covariance(3), 5), GradientDescent([0.3]), Zero()

    def distance(one, two):
        return prediction_distance(one, two, task, batch=50, generator=seeded(1))

    assert distance(learner, learner) == 0
    assert distance(learner, other) == distance(other, learner) > 0
