from dataclasses import dataclass

import pytest
import torch

from innerloop.algorithms import (
    GDPlusPlus,
    GradientDescent,
    LeastSquares,
    Newton,
    Ridge,
    Zero,
    answers,
    curve_answers,
)
from innerloop.analysis import estimate_risk, learning_curve, prediction_distance
from innerloop.sequence import TokenSequence
from innerloop.tasks import FreshQueries, GaussianCovariates, LinearFunctions, Regression
from innerloop.training import Prompts
from tests.samples import DOUBLE, covariance, normal, random_prompt, seeded

LEARNERS = [
    Zero(),
    LeastSquares(),
    Ridge(0.5),
    GradientDescent([0.3, 0.2]),
    GDPlusPlus([0.3, 0.2], [0.5, 0.0]),
    Newton(4),
]
every_learner = pytest.mark.parametrize("learner", LEARNERS, ids=lambda each: type(each).__name__)


@dataclass
class Returns:
    """Least squares in another form."""

    change: object

    def __call__(self, prompt):
        return self.change(LeastSquares()(prompt))


def perfect(prompt):
    return prompt.y_query


WRONG = {
    "one number for each prompt": (lambda p: p[:, 0], r"\[6\]"),
    "one query of three": (lambda p: p[:, :1], r"\[6, 1\]"),
    "an axis too many": (lambda p: p.unsqueeze(-1), r"\[6, 3, 1\]"),
    "transposed": (lambda p: p.mT, r"\[3, 6\]"),
    "a tuple": (lambda p: (p,), "a tuple"),
    "a list": (lambda p: p.tolist(), "a list"),
    "nothing": (lambda p: None, "a NoneType"),
}
wrong_shapes = pytest.mark.parametrize(("change", "got"), WRONG.values(), ids=WRONG)
TASK = Regression(
    GaussianCovariates(covariance(2)),
    LinearFunctions(torch.eye(2, dtype=DOUBLE)),
    4,
    FreshQueries(3),
)
SENTENCE = r"Returns must return predictions of the shape \[6, 3\] of the targets, .* got "


@every_learner
def test_a_learning_curve_begins_at_zero_and_ends_with_the_prediction(learner):
    prompt = random_prompt(batch=3, n=5, d=4)
    curve = curve_answers(learner, prompt)
    assert curve.shape == (3, 6)
    assert (curve[:, 0] == 0).all()
    torch.testing.assert_close(curve[:, -1:], learner(prompt), rtol=0, atol=0)


@every_learner
def test_a_learning_curve_predicts_every_example_from_those_before_it(learner):
    prompt = random_prompt(batch=3, n=5, d=4, queries=2)
    curve = curve_answers(learner, prompt)
    for k in range(5):
        asked = type(prompt)(
            prompt.x[:, :k], prompt.y[:, :k], prompt.x[:, k : k + 1], prompt.y[:, k : k + 1]
        )
        torch.testing.assert_close(curve[:, k : k + 1], learner(asked), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(curve[:, 5], learner(prompt)[:, -1], rtol=1e-12, atol=1e-12)


def test_any_callable_has_a_learning_curve():
    prompt = random_prompt(n=5)
    curve = curve_answers(lambda prompt: prompt.y.sum(1, keepdim=True), prompt)
    torch.testing.assert_close(curve.diff(dim=1), prompt.y)


def test_a_learning_curve_of_the_learners_own_is_used():
    class Quick:
        def __call__(self, prompt):
            raise AssertionError("asked for each prefix by itself")

        def learning_curve(self, prompt):
            return prompt.curve_targets() + 2.0

    prompt = random_prompt(n=5)
    torch.testing.assert_close(curve_answers(Quick(), prompt), prompt.curve_targets() + 2.0)
    risks = learning_curve(Quick(), TASK, samples=20, generator=seeded())
    assert [risk.mean for risk in risks] == pytest.approx([4.0] * 5)


@pytest.mark.parametrize(
    ("made", "got"),
    [(lambda p: p.y, r"\[3, 5\]"), (lambda p: p.y[:, :1], r"\[3, 1\]"), (lambda p: None, "a None")],
)
def test_a_learning_curve_of_another_shape_is_refused(made, got):
    class Curved(Zero):
        def learning_curve(self, prompt):
            return made(prompt)

    sentence = r"learning_curve of Curved must return the shape \[3, 6\], \[batch, n \+ 1\], got "
    with pytest.raises(ValueError, match=sentence + got):
        curve_answers(Curved(), random_prompt(n=5))


@wrong_shapes
def test_predictions_of_another_shape_than_the_targets_are_refused(change, got):
    prompt = TASK.sample(6, generator=seeded())
    with pytest.raises(ValueError, match=SENTENCE + got):
        answers(Returns(change), prompt)


@wrong_shapes
@pytest.mark.parametrize(
    "measure",
    [
        lambda learner: estimate_risk(learner, TASK, samples=6, generator=seeded()),
        lambda learner: prediction_distance(
            learner, LeastSquares(), TASK, batch=6, generator=seeded()
        ),
        lambda learner: prediction_distance(
            LeastSquares(), learner, TASK, batch=6, generator=seeded()
        ),
        lambda learner: Prompts(TASK, 6).loss(learner, Prompts(TASK, 6).sample(seeded())),
    ],
    ids=["risk", "distance", "distance to", "training"],
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_such_a_learner_is_refused_wherever_predictions_meet_labels(measure, change, got):
    with pytest.raises(ValueError, match=SENTENCE + got):
        measure(Returns(change))


def test_such_a_learner_is_refused_in_its_learning_curve():
    with pytest.raises(ValueError, match=r"Returns must return .* shape \[6, 1\] .* got \[6\]"):
        learning_curve(Returns(lambda p: p[:, 0]), TASK, samples=6, generator=seeded())


def test_a_perfect_learner_has_no_risk_and_in_another_shape_none_is_made_up():
    assert estimate_risk(perfect, TASK, samples=50, generator=seeded()).mean == 0
    with pytest.raises(ValueError, match=r"must return predictions of the shape \[50, 3\]"):
        estimate_risk(lambda p: perfect(p)[:, 0], TASK, samples=50, generator=seeded())


def test_a_learner_of_sequences_returns_the_shape_of_their_targets():
    sequence = TokenSequence(normal(4, 5, 2), torch.tensor([1, 3]), normal(4, 2, 6))
    assert answers(lambda s: s.targets, sequence) is sequence.targets
    assert (answers(Zero(), sequence) == 0).all()
    with pytest.raises(ValueError, match=r"of the shape \[4, 2, 6\] of the targets, got \[4, 2\]"):
        answers(lambda s: s.targets[..., 0], sequence)


def test_zero_predicts_zero():
    assert (Zero()(random_prompt(queries=2)) == 0).all()
