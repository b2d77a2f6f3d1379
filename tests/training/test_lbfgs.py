import math

import pytest
import torch
from torch import nn

from innerloop.models import GradientDescentWeights, LinearAttention, SingleLayerWeights
from innerloop.models.linear_attention.closed_forms import white_error
from innerloop.tasks import LinearRegression
from innerloop.theory.linear import layered_risk, one_step_preconditioner
from innerloop.training import Exact, Wishart, gauss_newton_coordinates, minimise
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


class Vector(nn.Module):
    def __init__(self, *entries, dtype=DOUBLE):
        super().__init__()
        self.x = nn.Parameter(torch.tensor(entries, dtype=dtype))


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def quartic(x):
    return ((x - 1) ** 4).sum() + x.square().sum()


def as_torch_has_it(model, loss, steps, memory):
    """The parameters before every iteration of torch.optim.LBFGS, and after the last."""
    optimizer = torch.optim.LBFGS(
        [model.x],
        max_iter=1,
        max_eval=50,
        history_size=memory,
        tolerance_grad=0.0,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimizer.zero_grad()
        value = loss(model.x)
        value.backward()
        return value

    iterates = [model.x.tolist()]
    for _ in range(steps):
        optimizer.step(closure)
        iterates.append(model.x.tolist())
    return iterates


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
@pytest.mark.parametrize("memory", [2, 100])
@pytest.mark.parametrize("loss", [rosenbrock, quartic])
def test_the_iterates_on_an_ordinary_loss_are_those_of_torch_bit_for_bit(loss, memory, dtype):
    # Those of the search are offsets from the start: from zero they are the parameters.
    start = (0.0,) * 11
    expected = as_torch_has_it(Vector(*start, dtype=dtype), loss, 25, memory)
    model = Vector(*start, dtype=dtype)
    history = minimise(
        model,
        lambda: loss(model.x),
        steps=25,
        memory=memory,
        gradient_tolerance=0.0,
        metrics={"x": lambda m: m.x.detach()},
    )
    assert len(set(map(tuple, history["x"]))) > 5
    assert history["x"] == expected[: len(history)]


def log_barrier(x):
    """Nan beyond the wall at 1; least at 0.999."""
    return (-x - 1e-3 * torch.log(1 - x)).sum()


def falling_to_the_wall(x):
    """Ever steeper up to the wall at 2, beyond which it is nan."""
    return (2 - x).sqrt().sum()


def overflow(x):
    """Infinite beyond 5, while a parabola points to 144; least at 2."""
    centre = 2 + 16e-6 * math.exp(16)
    return ((x - centre).square() + 1e-6 * torch.exp(x**4)).sum()


@pytest.mark.parametrize(
    ("loss", "start", "least"),
    [
        (log_barrier, (0.0, 0.5), 0.999),
        (log_barrier, (-50.0, 0.9), 0.999),
        (falling_to_the_wall, (1.0, 1.0), 2.0),
        (overflow, (0.0, -1.0), 2.0),
    ],
)
@pytest.mark.parametrize("wall", [math.nan, math.inf, -math.inf])
def test_a_search_that_goes_too_far_steps_back_and_reaches_the_minimum(loss, start, least, wall):
    model, beyond = Vector(*start), []

    def value():
        result = loss(model.x)
        beyond.append(not result.isfinite())
        return torch.where(result.isfinite(), result, result * 0 + wall)

    history = minimise(model, value, steps=300)
    assert any(beyond)
    assert history["loss"] == sorted(history["loss"], reverse=True)
    torch.testing.assert_close(
        model.x.detach(), torch.full((2,), least, dtype=DOUBLE), rtol=0, atol=1e-4
    )


def test_a_gradient_that_is_not_finite_is_too_far_as_well():
    model, met = Vector(0.0), []

    def loss():
        met.append(model.x.item())
        # The first step, of length 1, lands on the cusp, where the slope is infinite.
        return (2 * (model.x - 0.5).square() + 1e-3 * (1 - model.x).abs().sqrt()).sum()

    minimise(model, loss, steps=100)
    assert 1.0 in met
    assert abs(model.x.item() - 0.5) < 0.01


@pytest.mark.parametrize(
    ("loss", "what"),
    [
        (lambda x: (x * float("nan")).sum(), "the loss is not finite at the start, .* is nan"),
        (lambda x: (x + 1e200).square().sum(), "the loss is not finite at the start, .* is inf"),
        (lambda x: x.sqrt().sum(), "the gradient is not finite at the start, .* is 0.0"),
    ],
)
def test_a_start_that_is_not_finite_is_an_error(loss, what):
    model = Vector(0.0, 0.0)
    with pytest.raises(FloatingPointError, match=what):
        minimise(model, lambda: loss(model.x), steps=5)
    assert (model.x == 0).all()


@pytest.mark.parametrize("bad", [{"steps": -1}, {"memory": 0}, {"every": 0}])
def test_counts_that_make_no_sense_are_refused(bad):
    point = Point()
    (name, value), *_ = bad.items()
    with pytest.raises(ValueError, match=f"{name} must be at least [01], got {value}"):
        minimise(point, lambda: quadratic(point), **{"steps": 3, **bad})


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
