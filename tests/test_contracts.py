"""What every task and every learner promises, checked for all that are exported.

A new task, part of a task, algorithm, model or form of weights has to be given an example below:
the first tests fail until it has one.
"""

import copy
import inspect
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import pytest
import torch
from sklearn.linear_model import Ridge as ScikitRidge
from torch import nn
from torch.utils import _pytree as pytree

from innerloop import algorithms, models, tasks
from innerloop.algorithms import (
    Averaging,
    GDPlusPlus,
    GradientDescent,
    LabelMap,
    Lasso,
    LeastSquares,
    NearestNeighbours,
    NetworkDescent,
    Newton,
    OnFeatures,
    PoolPosterior,
    Ridge,
    Scikit,
    StableGradientDescent,
    Zero,
    curve_answers,
)
from innerloop.corpora import Corpus
from innerloop.models import (
    BlockShape,
    Decoder,
    DictionaryAttention,
    DictionaryEncoder,
    InContext,
    LinearAttention,
    LinearAttentionWeights,
    Looped,
)
from innerloop.prompt import Prompt
from innerloop.sentences import SentencePairs
from innerloop.tasks import (
    Autoregression,
    ChainOfThought,
    ContextQueries,
    DictionaryRegression,
    FirstCoordinates,
    FreshQueries,
    GaussianCovariates,
    LeakyNetwork,
    LinearRegression,
    OrthogonalQueries,
    OtherQueries,
    PooledLinearFunctions,
    Regression,
    ReluNetworkFunctions,
    RepresentedFunctions,
    ScaledCovariates,
    SparseLinearFunctions,
    SphericalCoefficients,
    TabulatedCoefficients,
    Task,
    TransformedFunctions,
    Translation,
    TreeFunctions,
    with_random_covariance,
    with_response,
)
from tests.models.forms import FORMS, weights
from tests.samples import (
    DOUBLE,
    covariance,
    normal,
    query,
    random_prompt,
    seeded,
    shared_prompt,
    written_out,
)

D = 3
SKEW = LinearRegression(covariance(D, seed=1), 4, covariance(D, seed=2), noise_std=0.5)
DICTIONARY = DictionaryRegression.gaussian(D, 2, 9, 4, 0.1, generator=seeded())
SPARSE = Regression(GaussianCovariates(covariance(D)), SparseLinearFunctions(D, 2), 4)
SINGLE = SparseLinearFunctions(D, 1, torch.float32)
NETWORK = LeakyNetwork.drawn(D, 2, generator=seeded(), orthogonal=True, slope=0.5)
SENTENCES = Corpus.open("small")
TASKS = {
    "LinearRegression": [
        LinearRegression.isotropic(D, 6),
        LinearRegression.isotropic(D, 6, 0.3, dtype=torch.float32),
        SKEW,
        LinearRegression.with_inverse_prior(covariance(D, seed=1), 2),
        LinearRegression.distorted_view(normal(D, D), 5),
        LinearRegression(torch.diag(torch.tensor([1.0, 0.5, 0.0])), 4, noise_std=0.1),
    ],
    "Regression": [
        SKEW.law,
        SPARSE,
        Regression(GaussianCovariates(torch.eye(D)), SINGLE, 4, FreshQueries(3), 0.2),
        replace(SPARSE, queries=OtherQueries(GaussianCovariates(covariance(D, seed=3)))),
        replace(SPARSE, queries=OrthogonalQueries(), n=2),
        replace(SPARSE, queries=ContextQueries(), noise_std=0.1),
        replace(SPARSE, covariates=FirstCoordinates(SPARSE.covariates, 2)),
        with_response(SKEW, torch.tanh),
        with_random_covariance(SKEW),
        replace(SPARSE, functions=PooledLinearFunctions(normal(5, D))),
        replace(SPARSE, functions=ReluNetworkFunctions(D, 4)),
        replace(SPARSE, functions=TreeFunctions(D, 2)),
        replace(SPARSE, functions=RepresentedFunctions(NETWORK)),
    ],
    "Autoregression": [
        Autoregression(LeakyNetwork.drawn(2 * D, outputs=D, generator=seeded()), 4),
        Autoregression(NETWORK, 5, noise_std=0.1),
    ],
    "ChainOfThought": [ChainOfThought(D, 4), ChainOfThought(D, 2, 1, 0.5, torch.float32)],
    "DictionaryRegression": [
        DICTIONARY,
        DictionaryRegression.of(torch.tanh, normal(6, D).float(), 6, 0.0),
        replace(DICTIONARY, coefficients=SphericalCoefficients(2.0)),
        replace(DICTIONARY, coefficients=TabulatedCoefficients(normal(7, 2))),
    ],
    "Translation": [Translation.of(SENTENCES, SENTENCES.tokeniser(300), 48, dtype=DOUBLE)],
}


def ordinary(batch=8, n=5, queries=3):
    return random_prompt(batch, n, D, queries=queries)


def dictionary(batch=8):
    return DICTIONARY.sample(batch, generator=seeded(7))


@dataclass(frozen=True)
class Case:
    """A learner, and what it is to be held to."""

    learner: Any
    prompts: Any = ordinary
    """What it is asked, by the size of the batch."""
    unordered: bool = True
    """Whether the order of the examples must not matter."""
    any_length: bool = True
    """Whether prompts of other lengths are answered as well."""

    @property
    def any_dtype(self):
        """Whether it answers in any precision: it holds no matrices of its own."""
        values = (getattr(self.learner, f.name) for f in fields(self.learner))
        return not any(isinstance(v, torch.Tensor) for v in pytree.tree_leaves(list(values)))

    @property
    def any_query(self):
        """Whether any query is answered, or a whole dictionary at once."""
        return self.prompts is ordinary

    def __str__(self):
        name = type(self.learner).__name__
        if isinstance(self.learner, LinearAttention):
            mask = "masked" if self.learner.masked else "unmasked"
            name = f"{type(self.learner.weights).__name__}-{self.learner.loops}-{mask}"
        return name if self.any_query else f"{name}-dictionary"


ALGORITHMS = {
    "Zero": [Case(Zero())],
    "LeastSquares": [Case(LeastSquares())],
    "Ridge": [Case(Ridge(0.5))],
    "GradientDescent": [
        Case(GradientDescent([0.3, 0.2])),
        Case(GradientDescent([0.3, 0.2], penalty=0.5)),
        Case(GradientDescent([0.3 * normal(D, D, seed=s) for s in range(2)])),
    ],
    "GDPlusPlus": [
        Case(GDPlusPlus([0.3, 0.2], [0.5, 0.0])),
        Case(
            GDPlusPlus(
                [0.3 * normal(D, D, seed=s) for s in range(2)],
                [0.3 * normal(D, D, seed=s) for s in range(2, 4)],
            )
        ),
    ],
    "Lasso": [Case(Lasso(0.1, tolerance=1e-14))],
    "StableGradientDescent": [Case(StableGradientDescent(4))],
    # A matrix belongs to one length of prompts, and to its examples and queries in their order.
    "LabelMap": [
        Case(LabelMap(normal(4, 9)), dictionary, unordered=False, any_length=False),
        Case(LabelMap(normal(4, 9), lambda k: normal(k, 9)), dictionary, unordered=False),
    ],
    "Newton": [Case(Newton(3)), Case(Newton(0)), Case(Newton(3, alpha=0.01))],
    "NearestNeighbours": [Case(NearestNeighbours(2))],
    "Averaging": [Case(Averaging())],
    "NetworkDescent": [Case(NetworkDescent(hidden=4, steps=5))],
    "PoolPosterior": [Case(PoolPosterior(normal(5, D))), Case(PoolPosterior(normal(5, D), 0.3))],
    "OnFeatures": [Case(OnFeatures(Ridge(0.1), torch.tanh))],
    "Scikit": [Case(Scikit(lambda: ScikitRidge(0.1)))],
}
ENCODER = DictionaryEncoder(D, 2, layers=2, width=8, hidden=8, generator=seeded(), dtype=DOUBLE)
SHAPE, FRESH = BlockShape(width=8, heads=2), {"generator": seeded(), "dtype": DOUBLE}
MODELS = {
    "LinearAttention": [
        Case(LinearAttention(weights(form, d=D, layers=2, scale=0.2), loops, masked=masked))
        for form in FORMS
        for loops, masked in ((1, True), (2, True), (1, False))
    ],
    "DictionaryAttention": [
        # Its weights belong to the tokens in the order of the dictionary.
        Case(
            DictionaryAttention(normal(4, D, D, seed=1), normal(4, 9, seed=2)),
            dictionary,
            unordered=False,
        )
    ],
    # In a dictionary the examples are queries too, and cannot change places alone.
    "DictionaryEncoder": [Case(ENCODER), Case(ENCODER, dictionary, unordered=False)],
    # Positions, or a mask alone, tell the examples' order.
    "InContext": [
        Case(InContext(Decoder(D + 1, 1, SHAPE, layers=2, length=11, **FRESH)), unordered=False),
        Case(InContext(Decoder(D + 1, 1, SHAPE, layers=2, length=None, **FRESH)), unordered=False),
        Case(InContext(Looped(D + 1, 1, SHAPE, loops=3, length=11, **FRESH)), unordered=False),
        Case(
            InContext(Looped(D + 1, 1, SHAPE, loops=2, before=1, after=1, length=11, **FRESH)),
            unordered=False,
        ),
    ],
}
OF_SEQUENCES = {"Decoder", "EachPosition", "Looped", "Translator"}
"""Models of token sequences; as learners of prompts they are `InContext`. Of sentences, one."""
ALGORITHMS_OF_SEQUENCES = {"SequenceDescent", "SequenceRidge", "Unigram"}
CASES = [case for made in (ALGORITHMS | MODELS).values() for case in made]


def task_name(task):
    parts = [type(getattr(task, f.name)).__name__ for f in fields(task)]
    return "-".join([type(task).__name__, *(p for p in parts if p in tasks.__all__)])


every_task = pytest.mark.parametrize(
    "task", [t for made in TASKS.values() for t in made], ids=task_name
)
every_learner = pytest.mark.parametrize("case", CASES, ids=str)
every_model = pytest.mark.parametrize(
    "case", [case for made in MODELS.values() for case in made], ids=str
)
any_query = pytest.mark.parametrize("case", [c for c in CASES if c.any_query], ids=str)
any_length = pytest.mark.parametrize("case", [c for c in CASES if c.any_length], ids=str)
unordered = pytest.mark.parametrize("case", [c for c in CASES if c.unordered], ids=str)
CLOSE = {"rtol": 1e-11, "atol": 1e-12}


def exported(package, method):
    """The exported classes, by name, that define this method and can be made."""
    classes = {name: getattr(package, name) for name in package.__all__}
    return {
        name: thing
        for name, thing in classes.items()
        if inspect.isclass(thing)
        and method in {m for c in thing.__mro__[:-1] if c is not nn.Module for m in vars(c)}
        and not getattr(thing, "_is_protocol", False)
        and not inspect.isabstract(thing)
    }


def require_examples(what, found, given):
    missing, extra = sorted({*found} - {*given}), sorted({*given} - {*found})
    assert not missing, f"{missing} needs an example in {what} of tests/test_contracts.py"
    assert not extra, f"{what} of tests/test_contracts.py names {extra}, which is not exported"


def parts_of(thing):
    """Classes of everything that a task is composed of, down to the innermost."""
    if not is_dataclass(thing):
        return set()
    inside = (parts_of(getattr(thing, f.name)) for f in fields(thing))
    return {type(thing).__name__}.union(*inside)


def select(prompt, index):
    """Some of the prompts of a batch."""

    def some(covariates):
        return covariates if len(covariates) == 1 else covariates[index]

    return Prompt(some(prompt.x), prompt.y[index], some(prompt.x_query), prompt.y_query[index])


def test_every_exported_task_is_checked_here():
    require_examples("TASKS", exported(tasks, "sample"), TASKS)
    assert all(type(t).__name__ == name for name, made in TASKS.items() for t in made)


def test_every_exported_part_is_in_a_task_that_is_checked_here():
    used = set().union(*(parts_of(task) for made in TASKS.values() for task in made))
    parts = set(exported(tasks, "draw")) | set(exported(tasks, "__call__"))
    assert {ScaledCovariates.__name__, TransformedFunctions.__name__} <= parts
    assert parts <= used, f"{parts - used} needs a task in TASKS of tests/test_contracts.py"


def test_every_exported_algorithm_is_checked_here():
    found = exported(algorithms, "__call__").keys() - ALGORITHMS_OF_SEQUENCES
    require_examples("ALGORITHMS", found, ALGORITHMS)
    for name, made in ALGORITHMS.items():
        assert all(type(case.learner).__name__ == name for case in made)


def test_every_exported_model_is_checked_here():
    modules = {
        name for name, thing in exported(models, "forward").items() if issubclass(thing, nn.Module)
    }
    require_examples("MODELS", modules - OF_SEQUENCES, MODELS)
    for name, made in MODELS.items():
        assert all(type(case.learner).__name__ == name for case in made)


def test_every_exported_form_of_weights_is_checked_here():
    forms = {
        name
        for name, thing in exported(models, "answer").items()
        if issubclass(thing, LinearAttentionWeights)
    }
    assert forms == {form.__name__ for form in FORMS}


def test_no_exported_module_is_neither_a_model_nor_weights_of_one():
    modules = {
        name
        for name in models.__all__
        if inspect.isclass(thing := getattr(models, name)) and issubclass(thing, nn.Module)
    }
    weights = {*(form.__name__ for form in FORMS), "LinearAttentionWeights"}
    assert modules == {*MODELS, *OF_SEQUENCES} | weights


@every_task
def test_a_task_knows_its_sizes(task):
    assert isinstance(task, Task)
    prompt = task.sample(2, generator=seeded())
    if isinstance(prompt, Prompt):
        assert (prompt.d, prompt.n) == (task.d, task.n)
    elif isinstance(prompt, SentencePairs):
        assert prompt.vocabulary == task.d
        assert prompt.tokens.shape[-1] <= task.n + 1
    else:
        assert prompt.tokens.shape[-1] == task.d
    assert task.d == (300 if isinstance(prompt, SentencePairs) else D)


@every_task
def test_the_same_generator_gives_the_same_prompt(task):
    one, other = (task.sample(4, generator=seeded(5)) for _ in range(2))
    for a, b in zip(pytree.tree_leaves(one), pytree.tree_leaves(other), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(one.targets, task.sample(4, generator=seeded(6)).targets)


@every_task
def test_a_task_uses_no_other_source_of_randomness(task):
    before = torch.get_rng_state()
    torch.manual_seed(1)
    one = task.sample(4, generator=seeded(5))
    torch.manual_seed(2)
    other = task.sample(4, generator=seeded(5))
    assert torch.equal(one.targets, other.targets)
    torch.set_rng_state(before)


@every_task
def test_a_task_makes_as_many_prompts_as_asked(task):
    for batch in (1, 7):
        prompt = task.sample(batch, generator=seeded())
        assert len(prompt) == batch
        assert all(tensor.isfinite().all() for tensor in pytree.tree_leaves(prompt))


@every_task
def test_algorithms_answer_every_task(task):
    prompt = task.sample(3, generator=seeded())
    of_prompts = (LeastSquares(), Ridge(0.1), GradientDescent([0.1]), Newton(3))
    for algorithm in (Zero(), *(of_prompts if isinstance(prompt, Prompt) else ())):
        prediction = algorithm(prompt)
        assert list(prediction.shape) == prompt.answer_shape
        assert prediction.dtype == prompt.dtype
        assert prediction.isfinite().all()


@every_learner
def test_predictions_are_one_number_for_each_query_of_each_prompt(case):
    prompt = case.prompts()
    prediction = case.learner(prompt)
    assert prediction.shape == prompt.targets.shape
    assert prompt.queries > 1
    assert prediction.dtype == DOUBLE
    assert prediction.isfinite().all()


@every_learner
def test_the_queries_labels_are_never_read(case):
    prompt = case.prompts()
    hidden = replace(prompt, y_query=torch.full_like(prompt.y_query, float("nan")))
    assert torch.equal(case.learner(hidden), case.learner(prompt))


@every_learner
def test_clean_labels_are_never_read(case):
    prompt = case.prompts()
    told = replace(prompt, y_clean=torch.full_like(prompt.y, float("nan")))
    assert torch.equal(case.learner(told), case.learner(prompt))


@every_learner
def test_prompts_are_answered_independently(case):
    prompt = case.prompts()
    together = case.learner(prompt)
    for i in range(8):
        alone = case.learner(select(prompt, slice(i, i + 1)))
        torch.testing.assert_close(alone, together[i : i + 1], **CLOSE)


@any_query
@pytest.mark.parametrize("n", [0, 2, 5])
def test_queries_are_answered_independently(case, n):
    prompt = case.prompts(n=n)
    together = case.learner(prompt)
    for i in range(3):
        alone = case.learner(query(prompt, i))
        torch.testing.assert_close(alone, together[:, i : i + 1], **CLOSE)


@any_query
def test_shared_covariates_are_read_as_if_every_prompt_had_its_own(case):
    prompt = shared_prompt(batch=4, n=5, d=D)
    torch.testing.assert_close(case.learner(prompt), case.learner(written_out(prompt)), **CLOSE)


@any_query
def test_the_order_of_queries_does_not_matter(case):
    prompt, order = case.prompts(), torch.tensor([2, 0, 1])
    asked = replace(prompt, x_query=prompt.x_query[:, order], y_query=prompt.y_query[:, order])
    torch.testing.assert_close(case.learner(asked), case.learner(prompt)[:, order], **CLOSE)


@every_learner
def test_permuting_the_prompts_permutes_the_answers(case):
    prompt = case.prompts()
    order = torch.randperm(8, generator=seeded(1))
    torch.testing.assert_close(
        case.learner(select(prompt, order)), case.learner(prompt)[order], **CLOSE
    )


@unordered
@pytest.mark.parametrize("n", [2, 5])
def test_the_order_of_examples_does_not_matter(case, n):
    prompt = case.prompts(n=n)
    order = torch.randperm(n, generator=seeded(2)).roll(1)
    shuffled = replace(prompt, x=prompt.x[:, order], y=prompt.y[:, order])
    torch.testing.assert_close(case.learner(shuffled), case.learner(prompt), rtol=1e-9, atol=1e-10)


@every_learner
def test_the_prompt_is_not_changed(case):
    prompt = case.prompts()
    before = [tensor.clone() for tensor in pytree.tree_leaves(prompt)]
    gram = prompt.gram().clone()
    case.learner(prompt)
    for tensor, kept in zip(pytree.tree_leaves(prompt), before, strict=True):
        assert torch.equal(tensor, kept)
    assert torch.equal(prompt.gram(), gram)


@every_learner
def test_asking_twice_gives_the_same_answer(case):
    prompt = case.prompts()
    assert torch.equal(case.learner(prompt), case.learner(prompt))


@any_length
def test_without_examples_the_prediction_is_finite(case):
    prediction = case.learner(case.prompts(batch=3).prefix(0))
    assert prediction.shape == (3, case.prompts().queries)
    assert prediction.isfinite().all()


@any_length
def test_a_learning_curve_ends_with_the_prediction(case):
    prompt = case.prompts(batch=3)
    curve = curve_answers(case.learner, prompt)
    assert curve.shape == (3, prompt.n + 1)
    torch.testing.assert_close(curve[:, -1], case.learner(prompt)[:, -1], **CLOSE)


@any_length
def test_a_learning_curve_never_reads_the_label_it_predicts(case):
    prompt = case.prompts(batch=3)
    changed = torch.cat([prompt.y[:, :2], -prompt.y[:, 2:]], dim=1)
    other = replace(prompt, y=changed, y_query=torch.full_like(prompt.y_query, float("nan")))
    one, two = (curve_answers(case.learner, p)[:, :3] for p in (prompt, other))
    torch.testing.assert_close(one, two, **CLOSE)


@pytest.mark.parametrize(
    "case", [c for made in ALGORITHMS.values() for c in made if c.any_dtype], ids=str
)
def test_single_precision_prompts_have_single_precision_answers(case):
    prompt = case.prompts()
    single = case.learner(prompt.to(dtype=torch.float32))
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), case.learner(prompt), rtol=1e-2, atol=1e-3)


@every_model
def test_models_in_single_precision_answer_in_single_precision(case):
    prompt = case.prompts()
    double = case.learner(prompt).detach()
    single = copy.deepcopy(case.learner).float()(prompt.to(dtype=torch.float32))
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.detach().double(), double, rtol=1e-3, atol=1e-4)


@every_model
def test_every_parameter_of_a_model_that_matters_has_a_gradient(case):
    model = case.learner
    loss = model(case.prompts()).square().sum()
    gradients = torch.autograd.grad(
        loss, list(model.parameters()), allow_unused=True, materialize_grads=True
    )
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert any(gradient.abs().max() > 0 for gradient in gradients)


def test_what_has_no_example_is_named_with_the_file_to_touch():
    with pytest.raises(
        AssertionError, match=r"\['New'\] needs an example in MODELS of tests/test_"
    ):
        require_examples("MODELS", {"New", "Old"}, {"Old": []})
    with pytest.raises(AssertionError, match=r"names \['Old'\], which is not exported"):
        require_examples("MODELS", {}, {"Old": []})
