import pytest
import torch

from innerloop.algorithms import (
    GDPlusPlus,
    GradientDescent,
    LeastSquares,
    Newton,
    Ridge,
    Zero,
    prefix_predictions,
)
from tests.samples import random_prompt

LEARNERS = [
    Zero(),
    LeastSquares(),
    Ridge(0.5),
    GradientDescent([0.3, 0.2]),
    GDPlusPlus([0.3, 0.2], [0.5, 0.0]),
    Newton(4),
]


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)
def test_a_learning_curve_begins_at_zero_and_ends_with_the_prediction(learner):
    prompt = random_prompt(batch=3, n=5, d=4)
    curve = learner.learning_curve(prompt)
    assert curve.shape == (3, 6)
    assert (curve[:, 0] == 0).all()
    torch.testing.assert_close(curve[:, -1], learner(prompt), rtol=0, atol=0)


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)
def test_a_learning_curve_is_the_prediction_after_every_prefix(learner):
    prompt = random_prompt(batch=3, n=5, d=4)
    curve = learner.learning_curve(prompt)
    for k in range(6):
        torch.testing.assert_close(curve[:, k], learner(prompt.prefix(k)), rtol=1e-12, atol=1e-12)


def test_prefix_predictions_work_for_any_callable():
    curve = prefix_predictions(lambda prompt: prompt.y.sum(-1), random_prompt(n=5))
    torch.testing.assert_close(curve[:, 1:].diff(dim=1), random_prompt(n=5).y[:, 1:])


def test_zero_predicts_zero():
    assert (Zero()(random_prompt()) == 0).all()
