"""The paper's own loss and learning rates."""

import pytest
import torch

from innerloop.models import DictionaryAttention
from innerloop.papers.yang2024.settings import ExactHalfLoss, SampledHalfLoss, two_rates
from innerloop.tasks import DictionaryRegression, GaussianCoefficients
from innerloop.training import Exact, Objective, Prompts, train
from tests.samples import assert_means, normal, seeded

TASK = DictionaryRegression.gaussian(3, 4, 8, 3, 0.2, generator=seeded())
OUT_OF_DOMAIN = DictionaryRegression(
    TASK.tokens, TASK.features, TASK.shown, TASK.tau, GaussianCoefficients(1.0, 2.0)
)


def model_of(heads=5):
    return DictionaryAttention(normal(heads, 3, 3, seed=1), normal(heads, 8, seed=2))


def gradient_of(loss, model):
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


@pytest.mark.parametrize("task", [TASK, OUT_OF_DOMAIN], ids=["in domain", "out of domain"])
def test_the_sampled_objective_agrees_with_the_exact_one(task):
    model, exact, prompts = model_of(), ExactHalfLoss(task), SampledHalfLoss(task, 500)
    assert isinstance(exact, Objective)
    assert isinstance(prompts, Objective)
    source, losses, gradients = seeded(4), [], []
    for _ in range(80):
        loss = prompts.loss(model, prompts.sample(source))
        losses.append(loss.detach())
        gradients.append(gradient_of(loss, model))
    loss = exact.loss(model, exact.sample(source))
    assert_means(torch.stack(losses), loss.detach())
    assert_means(torch.stack(gradients), gradient_of(loss, model))


def test_the_gradient_of_the_exact_loss_is_that_of_finite_differences():
    exact, model = ExactHalfLoss(TASK), model_of(2)

    def loss(q, w):
        return torch.func.functional_call(_Loss(exact, model), {"model.q": q, "model.w": w}, ())

    assert torch.autograd.gradcheck(loss, (model.q, model.w))


class _Loss(torch.nn.Module):
    def __init__(self, objective, model):
        super().__init__()
        self.objective, self.model = objective, model

    def forward(self):
        return self.objective.loss(self.model)


def test_the_gap_is_the_loss_above_its_infimum():
    exact, model = ExactHalfLoss(TASK), model_of()
    assert exact.gap(model).item() == pytest.approx(exact.loss(model).item() - exact.risk.infimum)


def test_a_step_with_two_rates_moves_each_parameter_by_its_own():
    model, before = model_of(), model_of()
    objective = ExactHalfLoss(TASK)
    gradients = torch.autograd.grad(objective.loss(before), [before.q, before.w])
    optimizer = two_rates(model, query_rate=0.1, weight_rate=0.3)
    train(model, objective, optimizer, steps=1, generator=seeded())
    torch.testing.assert_close(model.q, before.q - 0.1 * gradients[0])
    torch.testing.assert_close(model.w, before.w - 0.3 * gradients[1])


def test_training_with_as_many_heads_as_shown_tokens_reaches_the_infimum():
    model = DictionaryAttention.gaussian(8, 3, 8, generator=seeded(1))
    objective = ExactHalfLoss(TASK)
    start = objective.gap(model).item()
    optimizer = two_rates(model, query_rate=0.3, weight_rate=0.3)
    train(model, objective, optimizer, steps=1500, generator=seeded())
    assert objective.gap(model).item() < 1e-4 * start


@pytest.mark.parametrize("name", ["query_rate", "weight_rate"])
def test_a_negative_rate_is_refused(name):
    rates = {"query_rate": 0.1, "weight_rate": 0.1} | {name: -1.0}
    with pytest.raises(ValueError, match=f"{name} must be finite and not negative, got -1.0"):
        two_rates(model_of(), **rates)


def test_both_are_half_of_what_the_ordinary_objectives_say():
    model, prompt = model_of(), TASK.sample(30, generator=seeded())
    torch.testing.assert_close(2 * ExactHalfLoss(TASK).loss(model), Exact(TASK).loss(model))
    torch.testing.assert_close(
        2 * SampledHalfLoss(TASK, 30).loss(model, prompt), Prompts(TASK, 30).loss(model, prompt)
    )
