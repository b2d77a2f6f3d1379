import pytest
import torch
from torch import nn

from innerloop.models import GradientDescentWeights, LinearAttention, SingleLayerWeights
from innerloop.tasks import LinearRegression
from innerloop.theory.linear import layered_risk, one_step_preconditioner
from innerloop.training import Exact, Wishart, gauss_newton_coordinates, minimise
from innerloop.training.objectives import white_error
from tests.models.forms import weights
from tests.samples import DOUBLE, covariance, normal, seeded

HESSIAN = covariance(6, seed=1, smallest=0.01, largest=3.0)
CENTRE = normal(6, seed=2)
TASK = LinearRegression(covariance(3), 7, noise_std=0.2)


class Point(nn.Module):
    """Two parameters of different shapes; together a point in six dimensions."""

    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.zeros(2, 2, dtype=DOUBLE))
        self.second = nn.Parameter(torch.zeros(2, dtype=DOUBLE))

    def vector(self):
        return torch.cat([self.first.flatten(), self.second])


def quadratic(point):
    off = point.vector() - CENTRE
    return off @ HESSIAN @ off + 1.5


@pytest.mark.parametrize("coordinates", [None, torch.linalg.inv(torch.linalg.cholesky(HESSIAN)).mT])
def test_it_reaches_the_minimum_of_a_quadratic(coordinates):
    point = Point()
    history = minimise(point, lambda: quadratic(point), steps=100, coordinates=coordinates)
    torch.testing.assert_close(point.vector().detach(), CENTRE, rtol=1e-6, atol=1e-6)
    assert history["loss"][-1] == pytest.approx(1.5, abs=1e-12)
    assert history["step"][-1] < 100


def test_in_coordinates_that_make_the_loss_round_two_steps_are_enough():
    point, round_coordinates = Point(), torch.linalg.inv(torch.linalg.cholesky(HESSIAN)).mT
    minimise(point, lambda: quadratic(point), steps=2, coordinates=round_coordinates)
    torch.testing.assert_close(point.vector().detach(), CENTRE, rtol=1e-10, atol=1e-10)
    plain = Point()
    minimise(plain, lambda: quadratic(plain), steps=2)
    assert (plain.vector() - CENTRE).abs().max() > 0.1


def test_it_reaches_the_least_risk_of_one_layer():
    best = one_step_preconditioner(TASK.covariance, 7, None, 0.2)
    floor = layered_risk(best.unsqueeze(0), TASK.covariance, 7, None, 0.2).item()
    # From a start without structure some seeds end at a rank-one solution of twice the risk; this
    # one has the form of Zhang 2023, Theorem 4.1, plus a little noise in every entry.
    b, a = 0.02 * normal(4, seed=4), 0.02 * normal(4, 3, seed=5)
    b[3] += 0.3
    a[:3] += 0.3 * torch.eye(3, dtype=DOUBLE)
    model = LinearAttention(SingleLayerWeights(b, a))
    start = Exact(TASK).loss(model).item()
    history = minimise(model, lambda: Exact(TASK).loss(model), steps=500)
    assert start > 1.5 * floor
    assert history["loss"][-1] == pytest.approx(floor, rel=1e-10)
    assert Exact(TASK).loss(model).item() == history["loss"][-1]


def test_losses_in_the_history_belong_to_the_recorded_weights():
    model = LinearAttention(weights(GradientDescentWeights, d=3, layers=2, scale=0.1))
    history = minimise(
        model,
        lambda: Exact(TASK).loss(model),
        steps=12,
        metrics={"weights": lambda m: m.weights.preconditioners.detach()},
    )
    assert history["step"] == list(range(13))
    losses = history["loss"]
    for matrices, loss in zip(history["weights"], losses, strict=True):
        again = layered_risk(torch.tensor(matrices, dtype=DOUBLE), TASK.covariance, 7, None, 0.2)
        assert loss == pytest.approx(again.item(), rel=1e-12)
    assert losses == sorted(losses, reverse=True)
    assert model.weights.preconditioners.tolist() == history["weights"][-1]


def test_every_so_many_iterations_are_recorded_and_the_last():
    model = LinearAttention(weights(GradientDescentWeights, d=3, layers=2, scale=0.1))
    history = minimise(model, lambda: Exact(TASK).loss(model), steps=8, every=3)
    assert history["step"] == [0, 3, 6, 8]


def test_it_stops_where_the_gradient_vanishes():
    point = Point()
    with torch.no_grad():
        point.first.copy_(CENTRE[:4].view(2, 2))
        point.second.copy_(CENTRE[4:])
    history = minimise(point, lambda: quadratic(point), steps=50)
    assert history["step"][-1] <= 1
    assert torch.equal(point.vector(), CENTRE)


def test_a_loss_tolerance_stops_it_early():
    ends = []
    for tolerance in (0.0, 1e-2):
        model = LinearAttention(weights(GradientDescentWeights, d=3, layers=2, scale=0.1))
        history = minimise(
            model, lambda m=model: Exact(TASK).loss(m), steps=200, loss_tolerance=tolerance
        )
        ends.append((history["step"][-1], history["loss"][-1]))
    assert ends[1][0] < ends[0][0]
    assert ends[1][1] == pytest.approx(ends[0][1], rel=0.05)


def test_it_minimises_the_loss_on_a_fixed_sample():
    model = LinearAttention(weights(GradientDescentWeights, d=3, layers=1, scale=0.1))
    objective = Wishart(TASK, 200)
    batch = objective.sample(seeded(5))
    minimise(model, lambda: objective.loss(model, batch), steps=100)
    loss = objective.loss(model, batch)
    (gradient,) = torch.autograd.grad(loss, list(model.parameters()))
    assert gradient.abs().max() < 1e-7


def test_parameters_that_are_held_fixed_do_not_move():
    point = Point()
    point.first.requires_grad_(False)
    minimise(point, lambda: quadratic(point), steps=50)
    assert (point.first == 0).all()
    assert (point.second != 0).all()


def test_watch_is_called_after_every_iteration():
    point, calls = Point(), []
    minimise(
        point, lambda: quadratic(point), steps=3, watch=lambda s, loss: calls.append((s, loss))
    )
    assert [step for step, _ in calls] == [1, 2, 3]
    assert calls[0][1] == pytest.approx(quadratic(Point()).item())


def test_a_loss_that_is_not_finite_stops_it():
    point = Point()
    with pytest.raises(FloatingPointError, match="the loss became nan"):
        minimise(point, lambda: quadratic(point) * float("nan"), steps=5)


def test_gauss_newton_coordinates_are_an_inverse_root_of_the_gauss_newton_matrix():
    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.matrix = nn.Parameter(torch.zeros(2, 3, dtype=DOUBLE))

    samples = normal(50, 3, seed=3)
    t = gauss_newton_coordinates(Linear(), lambda model, x: x @ model.matrix.mT, samples, ridge=0.0)
    # r = A x: the Gauss-Newton matrix is I_2 (x) E x x^T.
    g = torch.kron(torch.eye(2, dtype=DOUBLE), samples.mT @ samples / 50)
    torch.testing.assert_close(t @ t.mT @ g, torch.eye(6, dtype=DOUBLE), rtol=0, atol=1e-10)


def test_gauss_newton_coordinates_quicken_the_fit_of_a_fixed_sample():
    task = LinearRegression.with_inverse_prior(covariance(3, smallest=0.02, largest=2.0), 12)
    objective = Wishart(task, 300)
    batch = objective.sample(seeded(6))
    s = batch[0][:, :3, :3]
    counts = []
    for use in (False, True):
        model = LinearAttention(weights(GradientDescentWeights, d=3, layers=1, scale=0.1))
        coordinates = None
        if use:
            coordinates = gauss_newton_coordinates(
                model, lambda m, s: white_error(m.weights.operators(s, 1)[0], task), s
            )
        history = minimise(
            model, lambda m=model: objective.loss(m, batch), steps=200, coordinates=coordinates
        )
        counts.append(history["step"][-1])
    assert counts[1] < counts[0] / 2
