"""A learner that returns another shape than the targets is refused wherever the two meet."""

from dataclasses import replace

import pytest
import torch

from innerloop.algorithms import LeastSquares
from innerloop.analysis import (
    estimate_risk,
    learning_curve,
    prediction_distance,
    shift_table,
    standard_shifts,
)
from innerloop.models import GradientDescentWeights, LinearAttention
from innerloop.tasks import DictionaryRegression, FreshQueries, LinearRegression
from innerloop.training import Ensemble, Prompts, Together, train
from tests.samples import seeded

LINEAR = LinearRegression.isotropic(2, 4)
SEVERAL = replace(LINEAR.law, queries=FreshQueries(3))
DICTIONARY = DictionaryRegression.gaussian(2, 2, 3, 2, 0.1, generator=seeded())


class Wrong(torch.nn.Module):
    """Least squares, changed; with a parameter, so that it can be trained."""

    def __init__(self, change):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones((), dtype=torch.float64))
        self.change = change

    def forward(self, prompt):
        return self.change(self.scale * LeastSquares()(prompt))


SHAPES = {
    "[batch]": lambda p: p[:, 0],
    "[batch, 1]": lambda p: p[:, :1],
    "[1, queries]": lambda p: p[:1],
    "a scalar": lambda p: p.sum(),
    "[batch, queries, 1]": lambda p: p.unsqueeze(-1),
}


def trained(learner, task):
    optimizer = torch.optim.SGD(learner.parameters(), lr=0.1)
    train(learner, Prompts(task, 6), optimizer, steps=1, generator=seeded())


def trained_together(learner, task):
    objective = Together(Prompts(task, 6), 2)
    objective.loss(Ensemble([learner, learner]), objective.sample(seeded()))


PLACES = {
    "risk": lambda learner, task: estimate_risk(learner, task, samples=6, generator=seeded()),
    "distance": lambda learner, task: prediction_distance(
        learner, LeastSquares(), task, batch=6, generator=seeded()
    ),
    "distance to": lambda learner, task: prediction_distance(
        LeastSquares(), learner, task, batch=6, generator=seeded()
    ),
    "shifts": lambda learner, task: shift_table(
        {"it": learner}, standard_shifts(task), samples=6, seed=0
    ),
    "training": trained,
    "training together": trained_together,
}


@pytest.mark.parametrize("task", [SEVERAL, DICTIONARY], ids=["regression", "dictionary"])
@pytest.mark.parametrize("change", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.usefixtures("shapes_unchecked")
def test_another_shape_is_refused_with_a_sentence(place, change, task):
    with pytest.raises(ValueError, match=r"Wrong must return predictions of the shape \[6, 3\]"):
        place(Wrong(change), task)
    place(Wrong(lambda p: p), task)


CURVED = {name: SHAPES[name] for name in SHAPES if name not in ("[batch, 1]",)}


@pytest.mark.parametrize("task", [LINEAR, SEVERAL, DICTIONARY], ids=["one", "several", "tokens"])
@pytest.mark.parametrize("change", CURVED.values(), ids=CURVED)
@pytest.mark.usefixtures("shapes_unchecked")
def test_another_shape_is_refused_along_a_curve(change, task):
    # Along a curve there is one query at a time, and [batch, 1] is right.
    with pytest.raises(ValueError, match=r"Wrong must return predictions of the shape \[6, 1\]"):
        learning_curve(Wrong(change), task, samples=6, generator=seeded())


def test_a_model_in_another_precision_than_its_prompts_is_refused_with_a_sentence():
    made = GradientDescentWeights.gaussian(2, 1, 0.1, generator=seeded(), dtype=torch.float32)
    sentence = "the prompt must have the dtype torch.float32 of the weights, got torch.float64"
    for masked in (True, False):
        with pytest.raises(ValueError, match=sentence):
            LinearAttention(made, masked=masked)(LINEAR.sample(3, generator=seeded()))
