import torch
from torch.func import grad, vmap

from innerloop.models import GradientDescentWeights, LinearAttention
from innerloop.training.functional import functional
from tests.models.forms import weights
from tests.samples import random_prompt


def test_a_function_of_a_model_becomes_one_of_its_parameters():
    made = [LinearAttention(weights(GradientDescentWeights, d=3, seed=s)) for s in range(2)]
    prompt = random_prompt(d=3)
    call = functional(made[0], lambda model, prompt: model(prompt).square().sum())
    for model in made:
        parameters = dict(model.named_parameters())
        torch.testing.assert_close(call(parameters, prompt), model(prompt).square().sum())


def test_the_transforms_of_torch_func_apply():
    models = [LinearAttention(weights(GradientDescentWeights, d=3, seed=s)) for s in range(3)]
    prompt = random_prompt(d=3)
    call = functional(models[0], lambda model: model(prompt).square().sum())
    name = "weights.preconditioners"
    stacked = {name: torch.stack([m.weights.preconditioners.detach() for m in models])}
    gradients = vmap(grad(call))(stacked)[name]
    for gradient, model in zip(gradients, models, strict=True):
        loss = model(prompt).square().sum()
        (expected,) = torch.autograd.grad(loss, model.weights.preconditioners)
        torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-12)


def test_the_model_itself_is_not_changed():
    model = LinearAttention(weights(GradientDescentWeights, d=3))
    before = model.weights.preconditioners.detach().clone()
    call = functional(model, lambda m: m.weights.preconditioners.sum())
    assert call({"weights.preconditioners": torch.zeros_like(before)}) == 0
    assert torch.equal(model.weights.preconditioners, before)
