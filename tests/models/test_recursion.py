"""The recursion whose gradient is written by hand, and what is asked of the gradient elsewhere."""

import shutil
import subprocess
import sys

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call, grad, jacrev, vmap

from innerloop.models import GDPlusPlusWeights, LinearAttention, attention_matrix_forward
from tests.models.forms import FORMS, weights
from tests.samples import normal, random_prompt, seeded

forms = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
depths = pytest.mark.parametrize(
    ("layers", "loops"), [(1, 1), (2, 1), (3, 1), (4, 1), (1, 3), (2, 2)]
)


def answers_of(layers, loops, d=2, batch=2, queries=2):
    """Predictions of GD++ layers as a function of all they depend on, and a point to ask it at."""
    model = LinearAttention(weights(GDPlusPlusWeights, d=d, layers=layers), loops)

    def answers(a, b, x, y, x_query):
        tokens = torch.cat([x, y.unsqueeze(2)], dim=2)
        given = (tokens.mT @ tokens / x.shape[1], x_query)
        parameters = {"weights.preconditioners": a, "weights.transforms": b}
        return functional_call(_Answers(model), in_answers(parameters), given)

    shapes = [(layers, d, d), (layers, d, d), (batch, 3, d), (batch, 3), (batch, queries, d)]
    return answers, [0.5 * normal(*s, seed=i).requires_grad_() for i, s in enumerate(shapes)]


class _Answers(torch.nn.Module):
    """`model.answer` as a forward pass, which is what functional_call takes."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, gram, queries):
        return self.model.answer(gram, queries)


def in_answers(parameters):
    return {f"model.{name}": value for name, value in parameters.items()}


def relative_to_largest(one, other):
    return ((one - other).abs().max() / other.abs().max()).item()


@forms
def test_gradients_are_those_of_the_attention_matrix_to_rounding(form):
    prompt = random_prompt(batch=50, n=20, d=5)
    model = LinearAttention(weights(form, d=5, layers=3, scale=0.1))
    parameters = list(model.parameters())
    target = normal(50, seed=9)
    ours, theirs = (
        torch.autograd.grad((predictions - target).square().mean(), parameters)
        for predictions in (
            model(prompt),
            attention_matrix_forward(*model.weights.matrices(), prompt),
        )
    )
    for one, other in zip(ours, theirs, strict=True):
        assert relative_to_largest(one, other) < 1e-12


@depths
def test_first_and_second_derivatives_match_finite_differences(layers, loops):
    answers, point = answers_of(layers, loops)
    assert gradcheck(answers, point)
    assert gradgradcheck(answers, point)


@pytest.mark.parametrize("frozen", [(0, 1), (2, 3, 4), (1, 2, 3), (0, 3, 4)])
def test_derivatives_do_not_depend_on_what_else_is_differentiated(frozen):
    answers, point = answers_of(3, 1)
    everything = torch.autograd.grad(answers(*point).square().sum(), point)
    some = [p.detach() if i in frozen else p for i, p in enumerate(point)]
    asked = [i for i in range(5) if i not in frozen]
    gradients = torch.autograd.grad(answers(*some).square().sum(), [point[i] for i in asked])
    for i, gradient in zip(asked, gradients, strict=True):
        torch.testing.assert_close(gradient, everything[i], rtol=1e-13, atol=1e-14)


@depths
def test_models_that_are_mapped_are_models_one_by_one(layers, loops):
    prompt = random_prompt(batch=4, n=6, d=3)
    model = LinearAttention(weights(GDPlusPlusWeights, d=3, layers=layers), loops)
    stacked = {
        name: 0.3 * normal(5, layers, 3, 3, seed=i).requires_grad_()
        for i, (name, _) in enumerate(model.named_parameters())
    }

    def loss(parameters, prompt):
        return functional_call(model, parameters, (prompt,)).square().sum()

    mapped = vmap(loss, in_dims=(0, None))(stacked, prompt)
    gradients = torch.autograd.grad(mapped.sum(), list(stacked.values()))
    inside = vmap(grad(loss), in_dims=(0, None))(stacked, prompt)
    for i in range(5):
        one = {name: p[i].detach().requires_grad_() for name, p in stacked.items()}
        value = loss(one, prompt)
        torch.testing.assert_close(mapped[i], value, rtol=1e-12, atol=1e-13)
        alone = torch.autograd.grad(value, list(one.values()))
        for name, together, expected in zip(stacked, gradients, alone, strict=True):
            torch.testing.assert_close(together[i], expected, rtol=1e-11, atol=1e-12)
            torch.testing.assert_close(inside[name][i], expected, rtol=1e-11, atol=1e-12)


def test_every_prompt_has_its_own_jacobian():
    prompt = random_prompt(batch=4, n=6, d=3)
    model = LinearAttention(weights(GDPlusPlusWeights, d=3))
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def prediction(parameters, gram, queries):
        given = (gram.unsqueeze(0), queries.unsqueeze(0))
        return functional_call(_Answers(model), in_answers(parameters), given)[0, 0]

    queries = prompt.x_query.reshape(4, 1, 3)
    jacobians = vmap(jacrev(prediction), in_dims=(None, 0, 0))(parameters, prompt.gram(), queries)
    answers = model.answer(prompt.gram(), queries)
    for i in range(4):
        alone = torch.autograd.grad(answers[i, 0], list(model.parameters()), retain_graph=True)
        for name, expected in zip(parameters, alone, strict=True):
            torch.testing.assert_close(jacobians[name][i], expected, rtol=1e-11, atol=1e-12)


@forms
@pytest.mark.parametrize("batch", [0, 1])
def test_small_batches_have_predictions_and_gradients(form, batch):
    gram, queries = torch.eye(4).double().expand(batch, 4, 4), normal(batch, 2, 3)
    model = LinearAttention(weights(form, d=3), 2)
    answers = model.answer(gram, queries)
    assert answers.shape == (batch, 2)
    answers.square().sum().backward()
    for parameter in model.parameters():
        assert parameter.grad.isfinite().all()
        assert batch or (parameter.grad == 0).all()


@forms
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_with_its_prompt(form, value):
    gram = random_prompt(batch=3, n=6, d=3).gram().clone()
    model = LinearAttention(weights(form, d=3))
    queries = normal(3, 1, 3)
    expected = model.answer(gram, queries)
    gram[1] = value
    answers = model.answer(gram, queries)
    assert not answers[1].isfinite().any()
    torch.testing.assert_close(answers[[0, 2]], expected[[0, 2]], rtol=1e-13, atol=1e-14)


@forms
def test_draws_are_the_same_in_every_dtype(form):
    size = {"d": 3} if form.__name__ == "SingleLayerWeights" else {"d": 3, "layers": 2}
    double, single = (
        form.gaussian(**size, std=0.5, generator=seeded(1), dtype=dtype)
        for dtype in (torch.float64, torch.float32)
    )
    for one, other in zip(double.parameters(), single.parameters(), strict=True):
        assert other.dtype == torch.float32
        assert torch.equal(one.to(torch.float32), other)


COMPILED = """
import torch
from innerloop.models import GDPlusPlusWeights, LinearAttention
from tests.models.forms import weights
from tests.samples import random_prompt, relative_error

prompt = random_prompt(batch=50, n=6, d=3)
eager = LinearAttention(weights(GDPlusPlusWeights, d=3, scale=0.1))
compiled = LinearAttention(eager.weights)
compiled.compile()
print(float(relative_error(compiled(prompt), eager(prompt))))
parameters = list(eager.parameters())
ours, theirs = (
    torch.autograd.grad(model(prompt).square().sum(), parameters) for model in (compiled, eager)
)
for one, other in zip(ours, theirs, strict=True):
    print(((one - other).abs().max() / other.abs().max()).item())
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_a_compiled_model_predicts_the_same():
    """In a process of its own: checks of shapes and compiled code do not go together."""
    command = [sys.executable, "-c", COMPILED]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    errors = [float(line) for line in output.split()]
    assert len(errors) >= 2
    assert max(errors) < 1e-12
