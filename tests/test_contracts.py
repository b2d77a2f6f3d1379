"""What every task and every learner promises, checked for all that are exported.

A new task or learner has to be given an example below: the first tests fail until it has one.
"""

import inspect
from dataclasses import fields, replace

import pytest
import torch

from innerloop import algorithms, models, tasks
from innerloop.algorithms import (
    GDPlusPlus,
    GradientDescent,
    LeastSquares,
    Newton,
    Ridge,
    Zero,
)
from innerloop.models import LinearAttention, LinearAttentionWeights
from innerloop.prompt import Prompt
from innerloop.tasks import (
    DictionaryRegression,
    Exponential,
    InContextQuery,
    LinearRegression,
    NonlinearLabels,
    OrthogonalQuery,
    OtherQuery,
    RandomCovariance,
)
from tests.models.forms import FORMS, weights
from tests.samples import DOUBLE, covariance, normal, random_prompt, seeded

D = 3
SKEW = LinearRegression(covariance(D, seed=1), 4, covariance(D, seed=2), noise_std=0.5)
TASKS = {
    "LinearRegression": [
        LinearRegression.isotropic(D, 6),
        LinearRegression(covariance(D, seed=1), 4, covariance(D, seed=2), noise_std=0.5),
        LinearRegression.with_inverse_prior(covariance(D, seed=1), 2),
        LinearRegression.distorted_view(normal(D, D), 5),
        LinearRegression(torch.eye(D), 4, noise_std=0.1),
    ],
    "DictionaryRegression": [
        DictionaryRegression.gaussian(D, 2, 9, 4, 0.1, generator=seeded()),
        DictionaryRegression.of(torch.tanh, normal(6, D).float(), 6, 0.0),
    ],
    "NonlinearLabels": [NonlinearLabels(SKEW, torch.tanh)],
    "OtherQuery": [OtherQuery(SKEW, covariance(D, seed=3))],
    "OrthogonalQuery": [OrthogonalQuery(replace(SKEW, n=2))],
    "InContextQuery": [InContextQuery(SKEW)],
    "RandomCovariance": [RandomCovariance(SKEW, Exponential(D))],
}
ALGORITHMS = {
    "Zero": [Zero()],
    "LeastSquares": [LeastSquares()],
    "Ridge": [Ridge(0.5)],
    "GradientDescent": [
        GradientDescent([0.3, 0.2]),
        GradientDescent([0.3 * normal(D, D, seed=s) for s in range(2)]),
    ],
    "GDPlusPlus": [
        GDPlusPlus([0.3, 0.2], [0.5, 0.0]),
        GDPlusPlus(
            [0.3 * normal(D, D, seed=s) for s in range(2)],
            [0.3 * normal(D, D, seed=s) for s in range(2, 4)],
        ),
    ],
    "Newton": [Newton(3), Newton(0)],
}
MODELS = [
    LinearAttention(weights(form, d=D, layers=2, scale=0.2), loops, masked=masked)
    for form in FORMS
    for loops, masked in ((1, True), (2, True), (1, False))
]
LEARNERS = [learner for made in ALGORITHMS.values() for learner in made] + MODELS
ANY_DTYPE = [
    Zero(),
    LeastSquares(),
    Ridge(0.5),
    GradientDescent([0.3]),
    GDPlusPlus([0.3, 0.2], [0.5, 0.0]),
    Newton(3),
]


def name_of(thing):
    name = type(thing).__name__
    if isinstance(thing, LinearAttention):
        name = type(thing.weights).__name__
        name += f"-{thing.loops}-{'masked' if thing.masked else 'unmasked'}"
    return name


every_task = pytest.mark.parametrize(
    "task", [t for made in TASKS.values() for t in made], ids=name_of
)
every_learner = pytest.mark.parametrize("learner", LEARNERS, ids=name_of)


def exported(package, method):
    """Names of the exported classes with this method that can be made."""
    classes = {name: getattr(package, name) for name in package.__all__}
    return {
        name
        for name, thing in classes.items()
        if inspect.isclass(thing)
        and hasattr(thing, method)
        and method in {m for c in thing.__mro__[:-1] for m in vars(c)}
        and not getattr(thing, "_is_protocol", False)
        and not inspect.isabstract(thing)
    }


def select(prompt, index):
    """Some of the prompts of a batch."""
    return Prompt(prompt.x[index], prompt.y[index], prompt.x_query[index], prompt.y_query[index])


def labels_of(prompt):
    """What a prompt shows, whichever kind of prompt it is."""
    return prompt.y if isinstance(prompt, Prompt) else prompt.labels


def test_every_exported_task_is_checked_here():
    assert exported(tasks, "sample") == set(TASKS)


def test_every_exported_algorithm_is_checked_here():
    assert exported(algorithms, "__call__") == set(ALGORITHMS)


def test_every_exported_form_of_weights_is_checked_here():
    forms = exported(models, "answer") - {"LinearAttention"}
    assert forms == {form.__name__ for form in FORMS}
    assert all(issubclass(form, LinearAttentionWeights) for form in FORMS)


@every_task
def test_the_same_generator_gives_the_same_prompt(task):
    one, other = (task.sample(4, generator=seeded(5)) for _ in range(2))
    for field in fields(one):
        assert torch.equal(getattr(one, field.name), getattr(other, field.name))
    another = task.sample(4, generator=seeded(6))
    assert not torch.equal(labels_of(one), labels_of(another))


@every_task
def test_a_task_uses_no_other_source_of_randomness(task):
    before = torch.get_rng_state()
    torch.manual_seed(1)
    one = task.sample(4, generator=seeded(5))
    torch.manual_seed(2)
    other = task.sample(4, generator=seeded(5))
    assert torch.equal(labels_of(one), labels_of(other))
    torch.set_rng_state(before)


@every_task
def test_a_task_makes_as_many_prompts_as_asked(task):
    for batch in (1, 7):
        prompt = task.sample(batch, generator=seeded())
        assert len(prompt) == batch
        assert all(getattr(prompt, f.name).isfinite().all() for f in fields(prompt))


@every_learner
def test_predictions_are_one_number_per_prompt(learner):
    prompt = random_prompt(batch=8, n=5, d=D)
    prediction = learner(prompt)
    assert prediction.shape == (8,)
    assert prediction.dtype == DOUBLE
    assert prediction.isfinite().all()


@every_learner
def test_the_querys_label_is_never_read(learner):
    prompt = random_prompt(batch=8, n=5, d=D)
    unknown = torch.full((8,), float("nan"), dtype=DOUBLE)
    hidden = Prompt(prompt.x, prompt.y, prompt.x_query, unknown)
    assert torch.equal(learner(hidden), learner(prompt))


@every_learner
def test_prompts_are_answered_independently(learner):
    prompt = random_prompt(batch=8, n=5, d=D)
    together = learner(prompt)
    for i in range(8):
        alone = learner(select(prompt, slice(i, i + 1)))
        torch.testing.assert_close(alone, together[i : i + 1], rtol=1e-12, atol=1e-12)


@every_learner
def test_permuting_the_prompts_permutes_the_answers(learner):
    prompt = random_prompt(batch=8, n=5, d=D)
    order = torch.randperm(8, generator=seeded(1))
    torch.testing.assert_close(
        learner(select(prompt, order)), learner(prompt)[order], rtol=1e-12, atol=1e-12
    )


@every_learner
@pytest.mark.parametrize("n", [2, 5])
def test_the_order_of_examples_does_not_matter(learner, n):
    prompt = random_prompt(batch=8, n=n, d=D)
    order = torch.randperm(n, generator=seeded(2)).roll(1)
    shuffled = Prompt(prompt.x[:, order], prompt.y[:, order], prompt.x_query, prompt.y_query)
    torch.testing.assert_close(learner(shuffled), learner(prompt), rtol=1e-9, atol=1e-10)


@every_learner
def test_the_prompt_is_not_changed(learner):
    prompt = random_prompt(batch=8, n=5, d=D)
    before = {name: getattr(prompt, name).clone() for name in ("x", "y", "x_query", "y_query")}
    gram = prompt.gram().clone()
    learner(prompt)
    for name, tensor in before.items():
        assert torch.equal(getattr(prompt, name), tensor)
    assert torch.equal(prompt.gram(), gram)


@every_learner
def test_asking_twice_gives_the_same_answer(learner):
    prompt = random_prompt(batch=8, n=5, d=D)
    assert torch.equal(learner(prompt), learner(prompt))


@every_learner
def test_without_examples_the_prediction_is_finite(learner):
    assert learner(random_prompt(batch=3, n=4, d=D).prefix(0)).isfinite().all()


@every_learner
def test_a_learning_curve_ends_with_the_prediction(learner):
    prompt = random_prompt(batch=3, n=4, d=D)
    curve = learner.learning_curve(prompt)
    assert curve.shape == (3, 5)
    torch.testing.assert_close(curve[:, -1], learner(prompt), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("learner", ANY_DTYPE, ids=name_of)
def test_single_precision_prompts_have_single_precision_answers(learner):
    prompt = random_prompt(batch=8, n=5, d=D)
    single = learner(prompt.to(dtype=torch.float32))
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), learner(prompt), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_models_in_single_precision_answer_in_single_precision(form):
    model = LinearAttention(weights(form, d=D, layers=2, scale=0.2))
    prompt = random_prompt(batch=8, n=5, d=D)
    double = model(prompt).detach()
    single = model.float()(prompt.to(dtype=torch.float32))
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.detach().double(), double, rtol=1e-3, atol=1e-4)
