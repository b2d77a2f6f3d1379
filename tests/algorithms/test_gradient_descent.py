import pytest
import torch

from innerloop.algorithms import GDPlusPlus, GradientDescent, Ridge
from tests.samples import normal, random_prompt

CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def risk(w, x, y):
    """R(w) = (1/2n) sum_i (<w, x_i> - y_i)^2 of one prompt."""
    return sum((w @ x_i - y_i) ** 2 for x_i, y_i in zip(x, y, strict=True)) / (2 * len(y))


def test_iterates_follow_the_gradient_of_the_risk_on_the_examples():
    prompt = random_prompt(batch=3, n=5, d=4)
    preconditioners = [0.3, 0.2 * normal(4, 4, seed=1), 0.1 * normal(4, 4, seed=2)]
    iterates = GradientDescent(preconditioners).iterates(prompt)
    for b in range(3):
        w = torch.zeros(4, dtype=torch.float64)
        assert torch.equal(iterates[b, 0], w)
        for step, a in enumerate(preconditioners):
            w.requires_grad_()
            (gradient,) = torch.autograd.grad(risk(w, prompt.x[b], prompt.y[b]), w)
            w = (w - (a * gradient if isinstance(a, float) else a @ gradient)).detach()
            torch.testing.assert_close(iterates[b, step + 1], w, **CLOSE)


def test_the_last_iterate_predicts():
    prompt = random_prompt()
    learner = GradientDescent([0.3, 0.2])
    expected = torch.einsum("bd,bqd->bq", learner.iterates(prompt)[:, -1], prompt.x_query)
    torch.testing.assert_close(learner(prompt), expected, **CLOSE)


def test_repeated_is_the_same_step_again_and_again():
    prompt, a = random_prompt(), 0.1 * normal(4, 4)
    torch.testing.assert_close(
        GradientDescent.repeated(a, 3)(prompt), GradientDescent([a, a, a])(prompt), rtol=0, atol=0
    )


def test_a_number_is_a_multiple_of_the_identity():
    prompt, identity = random_prompt(), torch.eye(4, dtype=torch.float64)
    scalar = GDPlusPlus([0.3, 0.2], [0.5, 0.0])
    matrix = GDPlusPlus([0.3 * identity, 0.2 * identity], [0.5 * identity, 0 * identity])
    torch.testing.assert_close(scalar(prompt), matrix(prompt), **CLOSE)


def test_many_small_steps_reach_the_least_squares_solution():
    prompt = random_prompt(batch=3, n=12, d=3)
    solution = torch.linalg.lstsq(prompt.x, prompt.y.unsqueeze(-1)).solution.squeeze(-1)
    iterates = GradientDescent.repeated(0.3, 600).iterates(prompt)
    torch.testing.assert_close(iterates[:, -1], solution, rtol=1e-8, atol=1e-8)


def test_gd_plus_plus_without_transforms_is_gradient_descent():
    prompt = random_prompt()
    preconditioners = [0.2 * normal(4, 4, seed=s) for s in range(3)]
    plain = GradientDescent(preconditioners).iterates(prompt)
    moved = GDPlusPlus(preconditioners, [0.0, 0.0, 0.0]).predictions(prompt)
    expected = torch.einsum("bsd,bqd->bsq", plain, prompt.x_query)
    torch.testing.assert_close(moved, expected, **CLOSE)


def test_scalar_gd_plus_plus_is_the_loop_over_examples():
    prompt = random_prompt(batch=2, n=4, d=3)
    steps, transforms = [0.3, 0.5, 0.2], [0.7, -0.4, 0.0]
    predictions = GDPlusPlus(steps, transforms).predictions(prompt)
    for b in range(2):
        points = [x.clone() for x in prompt.x[b]]
        labels = [y.clone() for y in prompt.y[b]]
        query, prediction = prompt.x_query[b, 0].clone(), torch.zeros((), dtype=torch.float64)
        assert predictions[b, 0, 0] == 0
        for step, (a, c) in enumerate(zip(steps, transforms, strict=True)):
            m = sum(y * x for x, y in zip(points, labels, strict=True)) / 4
            s = sum(torch.outer(x, x) for x in points) / 4
            prediction = prediction + a * (query @ m)
            labels = [y - a * (x @ m) for x, y in zip(points, labels, strict=True)]
            points = [x - c * a * (s @ x) for x in points]
            query = query - c * a * (s @ query)
            torch.testing.assert_close(predictions[b, step + 1, 0], prediction, **CLOSE)


def test_matrix_gd_plus_plus_is_the_loop_over_examples():
    prompt = random_prompt(batch=1, n=4, d=3)
    steps = [0.4 * normal(3, 3, seed=s) for s in (1, 2, 3)]
    transforms = [0.4 * normal(3, 3, seed=s) for s in (4, 5, 6)]
    prediction = torch.zeros((), dtype=torch.float64)
    points, labels, query = prompt.x[0], prompt.y[0], prompt.x_query[0, 0]
    for a, c in zip(steps, transforms, strict=True):
        m = sum(y * x for x, y in zip(points, labels, strict=True)) / 4
        s = sum(torch.outer(x, x) for x in points) / 4
        prediction = prediction + query @ a @ m
        labels = torch.stack([y - x @ a @ m for x, y in zip(points, labels, strict=True)])
        points = torch.stack([x - c @ s @ a.mT @ x for x in points])
        query = query - c @ s @ a.mT @ query
    torch.testing.assert_close(GDPlusPlus(steps, transforms)(prompt)[0, 0], prediction, **CLOSE)


def test_the_last_transform_changes_no_prediction():
    prompt, steps = random_prompt(), [0.3, 0.2]
    torch.testing.assert_close(
        GDPlusPlus(steps, [0.5, 0.0])(prompt), GDPlusPlus(steps, [0.5, 9.0])(prompt), rtol=0, atol=0
    )


def test_no_steps_are_refused():
    with pytest.raises(ValueError, match="preconditioners must hold at least one step, got none"):
        GradientDescent([])
    with pytest.raises(ValueError, match="preconditioners must hold at least one step, got none"):
        GradientDescent.repeated(0.1, 0)
    with pytest.raises(ValueError, match="preconditioners must hold at least one step, got none"):
        GDPlusPlus([], [])


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 3, 3)])
def test_a_preconditioner_that_is_not_square_is_refused(shape):
    sentence = rf"a preconditioner must be a number or a \[d, d\] matrix, got shape \[{shape[0]}"
    with pytest.raises(ValueError, match=sentence):
        GradientDescent([0.1, torch.ones(shape)])


@pytest.mark.usefixtures("shapes_unchecked")
def test_a_transform_that_is_not_square_is_refused():
    with pytest.raises(ValueError, match=r"a transform must be a number or a \[d, d\] matrix"):
        GDPlusPlus([0.1], [torch.ones(2, 3)])


def test_a_missing_transform_is_refused():
    with pytest.raises(ValueError, match="transforms must be one per step, 2 in all, got 1"):
        GDPlusPlus([0.1, 0.2], [0.3])


def test_with_a_penalty_it_ends_at_ridge_regression():
    prompt = random_prompt(4, 8, 3)
    last = GradientDescent.repeated(0.2, 400, penalty=0.5)(prompt)
    torch.testing.assert_close(last, Ridge(0.5 * prompt.n)(prompt), rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="penalty must be finite and at least 0, got -1"):
        GradientDescent.repeated(0.2, 4, penalty=-1.0)
