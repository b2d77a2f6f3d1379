"""What is exact is given for what it is exact of, and refused for all else, on every road."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from innerloop.analysis import one_step_risk
from innerloop.experiments import ALGORITHMS, Spec
from innerloop.models import DictionaryAttention, GradientDescentWeights, LinearAttention
from innerloop.tasks import (
    DictionaryRegression,
    GaussianCovariates,
    LinearFunctions,
    LinearRegression,
    NoClosedForm,
    Regression,
    SparseLinearFunctions,
    with_response,
)
from innerloop.training import ControlledWishart, Exact, Wishart
from tests.models.forms import weights
from tests.samples import DOUBLE, normal, seeded

D = 3
IDENTITY = torch.eye(D, dtype=DOUBLE)
LINEAR = LinearRegression.isotropic(D, 4)
MODEL = LinearAttention(weights(GradientDescentWeights, d=D))


class Cubed(LinearRegression):
    """Another distribution under the name of one that is known."""

    def sample(self, batch, *, generator):
        prompt = super().sample(batch, generator=generator)
        return replace(prompt, x=prompt.x**3, x_query=prompt.x_query**3)


class CubedComposition(Regression):
    def sample(self, batch, *, generator):
        prompt = super().sample(batch, generator=generator)
        return replace(prompt, x=prompt.x**3, x_query=prompt.x_query**3)


class CubedCovariates(GaussianCovariates):
    def draw(self, batch, count, *, generator):
        return super().draw(batch, count, generator=generator) ** 3


class Signs(LinearFunctions):
    def draw(self, batch, *, generator):
        function = super().draw(batch, generator=generator)
        return lambda x: function(x).sign()


GAUSSIAN, FUNCTIONS = GaussianCovariates(IDENTITY), LinearFunctions(IDENTITY)


class LawOfASubclass(LinearRegression):
    law = CubedComposition(GAUSSIAN, FUNCTIONS, 4)


IMPOSTORS = {
    "a subclass with prompts of its own": Cubed(IDENTITY, 4),
    "a subclass of compositions": CubedComposition(GAUSSIAN, FUNCTIONS, 4),
    "a law that is such a subclass": LawOfASubclass(IDENTITY, 4),
    "covariates of a subclass": Regression(CubedCovariates(IDENTITY), FUNCTIONS, 4),
    "functions of a subclass": Regression(GAUSSIAN, Signs(IDENTITY), 4),
    "sparse functions": Regression(GAUSSIAN, SparseLinearFunctions(D, 1), 4),
    "a dictionary": DictionaryRegression.gaussian(D, 2, 6, 4, 0.1, generator=seeded()),
}


def algorithm(name):
    return lambda task: Spec.parse("algorithm", name, ALGORITHMS).build(ALGORITHMS, task)


ROADS = {
    "the exact objective": lambda task: Exact(task).loss(MODEL),
    "the model's risk": lambda task: MODEL.risk(task),
    "the wishart objective": lambda task: Wishart(task, 5).sample(seeded()),
    "the controlled objective": lambda task: ControlledWishart(task, 5).sample(seeded()),
    "the best single step": algorithm("one-step"),
    "the best steps": algorithm("ray"),
    "the best looped step": algorithm("looped"),
    "the exact loss of a step": lambda task: one_step_risk(task, IDENTITY),
}
every_road = pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)


@every_road
def test_every_road_is_open_to_linear_regression(road):
    assert road(LINEAR) is not None
    assert road(LINEAR.law) is not None


@every_road
@pytest.mark.parametrize("task", IMPOSTORS.values(), ids=IMPOSTORS)
def test_no_road_is_open_to_what_only_looks_like_it(road, task):
    with pytest.raises(NoClosedForm):
        road(task)


@pytest.mark.parametrize("road", list(ROADS.values())[:-1], ids=list(ROADS)[:-1])
def test_labels_of_another_response_are_known_for_a_single_step_alone(road):
    task = with_response(LINEAR, torch.tanh)
    assert one_step_risk(task, IDENTITY) > 0
    with pytest.raises(NoClosedForm, match="got GaussianCovariates with TransformedFunctions"):
        road(task)


class AsALearner(nn.Module):
    """A model that is no linear attention, and knows no exact loss."""

    def forward(self, prompt):
        return MODEL(prompt)


SAMPLED = [Wishart(LINEAR, 3), ControlledWishart(LINEAR, 3)]
sampled_objectives = pytest.mark.parametrize("objective", SAMPLED, ids=["wishart", "controlled"])


@sampled_objectives
def test_gram_matrices_are_given_to_linear_attention_alone(objective):
    batch = objective.sample(seeded())
    assert objective.loss(MODEL, batch).isfinite()
    with pytest.raises(NoClosedForm, match=r"linear attention alone .* got AsALearner; use the"):
        objective.loss(AsALearner(), batch)


@sampled_objectives
def test_a_query_that_attends_to_itself_is_not_integrated_out(objective):
    unmasked = LinearAttention(MODEL.weights, masked=False)
    with pytest.raises(NoClosedForm, match="needs a model with masked=True"):
        objective.loss(unmasked, objective.sample(seeded()))


def test_a_dictionary_with_labels_of_its_own_has_no_exact_loss():
    class Cubic(DictionaryRegression):
        def sample(self, batch, *, generator):
            prompt = super().sample(batch, generator=generator)
            return replace(prompt, y=prompt.y**3, y_query=prompt.y_query**3)

    known = IMPOSTORS["a dictionary"]
    other = Cubic(known.tokens, known.features, known.shown, known.tau)
    model = DictionaryAttention(normal(2, D, D), normal(2, 6))
    assert model.risk(known) > 0
    for task in (other, LINEAR):
        with pytest.raises(NoClosedForm, match="a closed form is known for the loss on a Dict"):
            Exact(task).loss(model)
