from dataclasses import replace

import pytest
import torch

from innerloop.algorithms import curve_answers
from innerloop.analysis import estimate_risk
from innerloop.models import DictionaryAttention, block_form_forward
from innerloop.prompt import Prompt
from innerloop.tasks import (
    DictionaryRegression,
    GaussianCoefficients,
    LinearRegression,
    NoClosedForm,
)
from innerloop.training.functional import functional
from tests.samples import DOUBLE, assert_means, normal, random_prompt, seeded

TASK = DictionaryRegression.gaussian(3, 2, 8, 5, 0.1, generator=seeded())


def model_of(heads=4, tokens=8, d=3):
    return DictionaryAttention(normal(heads, d, d, seed=1), normal(heads, tokens, seed=2))


@pytest.mark.parametrize("heads", [1, 4])
def test_the_short_form_is_the_transformer_written_out_in_blocks(heads):
    model, prompt = model_of(heads), TASK.sample(6, generator=seeded(3))
    blocks = block_form_forward(model.q, model.w, prompt)
    torch.testing.assert_close(model(prompt), blocks, rtol=1e-12, atol=1e-12)


def test_one_head_by_hand():
    q, w = normal(1, 2, 2, seed=1), normal(1, 3, seed=2)
    tokens, labels = normal(3, 2, seed=3), normal(1, 2, seed=4)
    prompt = Prompt(tokens[None, :2], labels, tokens[None], normal(1, 3))
    prediction = DictionaryAttention(q, w)(prompt)
    for k in range(3):
        scores = [torch.exp(tokens[i] @ q[0] @ tokens[k]) for i in range(2)]
        average = (scores[0] * labels[0, 0] + scores[1] * labels[0, 1]) / (scores[0] + scores[1])
        torch.testing.assert_close(prediction[0, k], w[0, k] * average)


def test_predictions_are_linear_in_the_labels_and_never_read_the_targets():
    model, prompt = model_of(), TASK.sample(6, generator=seeded(3))
    unknown = torch.full_like(prompt.targets, float("nan"))
    doubled = Prompt(prompt.x, 2 * prompt.y, prompt.x_query, unknown)
    torch.testing.assert_close(model(doubled), 2 * model(prompt))


def test_softmaxes_sum_to_one_over_the_shown_tokens():
    sums = model_of().softmaxes(TASK.tokens, 5).sum(1)
    torch.testing.assert_close(sums, torch.ones(4, 8, dtype=DOUBLE))


def test_the_learning_curve_asks_for_the_next_token_of_the_whole_dictionary():
    model, prompt = model_of(), TASK.sample(6, generator=seeded(3))
    curve = curve_answers(model, prompt)
    for k in range(5):
        weights = model.attention(TASK.tokens, k)  # [k, tokens]
        torch.testing.assert_close(curve[:, k], prompt.y[:, :k] @ weights[:, k])
    torch.testing.assert_close(curve[:, 5], model(prompt)[:, -1])


def test_training_starts_from_gaussian_queries_and_zero_weights():
    model = DictionaryAttention.gaussian(40, 3, 8, std=0.5, generator=seeded())
    assert model.heads == 40
    assert (model.w == 0).all()
    deviation = model.q.std().item()
    assert abs(deviation - 0.5) < 4 * 0.5 / (2 * model.q.numel()) ** 0.5
    prompt = TASK.sample(2, generator=seeded())
    assert (model(prompt) == 0).all()


def test_a_model_in_single_precision_answers_in_single_precision():
    model, prompt = model_of(), TASK.sample(6, generator=seeded(3))
    double = model(prompt)
    single = model.float()(prompt.to(dtype=torch.float32))
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-5)


def test_a_model_is_drawn_in_the_dtype_of_its_task():
    single = DictionaryAttention.gaussian(4, 3, 8, generator=seeded(), dtype=torch.float32)
    double = DictionaryAttention.gaussian(4, 3, 8, generator=seeded())
    torch.testing.assert_close(single.q, double.q.float(), rtol=0, atol=0)
    assert single.attention(TASK.tokens.float(), 5).dtype == torch.float32
    with pytest.raises(ValueError, match=r"dtype torch.float32 of the weights, got torch.float64"):
        single.attention(TASK.tokens, 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 0}, "heads must be at least 1, got 0"),
        ({"d": 0}, "d must be at least 1, got 0"),
        ({"tokens": 0}, "tokens must be at least 1, got 0"),
        ({"std": -1.0}, "std must be finite and not negative, got -1.0"),
    ],
)
def test_models_that_do_not_exist_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        DictionaryAttention.gaussian(
            **({"heads": 4, "d": 3, "tokens": 8} | change), generator=seeded()
        )


def test_weights_that_do_not_fit_are_refused(shapes_unchecked):
    with pytest.raises(ValueError, match=r"q must have shape \[heads, d, d\].*got \[2, 3, 4\]"):
        DictionaryAttention(normal(2, 3, 4), normal(2, 8))
    with pytest.raises(ValueError, match=r"with the 2 heads of q, got \[3, 8\]"):
        DictionaryAttention(normal(2, 3, 3), normal(3, 8))
    with pytest.raises(ValueError, match=r"w must have the dtype torch.float64 of q"):
        DictionaryAttention(normal(2, 3, 3), normal(2, 8).float())


OUT_OF_DOMAIN = replace(TASK, coefficients=GaussianCoefficients(1.0, 2.0))
in_and_out = pytest.mark.parametrize("task", [TASK, OUT_OF_DOMAIN], ids=["in", "out of domain"])


@in_and_out
def test_the_exact_risk_is_that_of_sampled_prompts(task):
    model = model_of()
    exact = model.risk(task).item()
    estimate = estimate_risk(model, task, samples=100_000, generator=seeded(4))
    assert abs(estimate.z(exact)) < 4
    assert abs(estimate.z(1.1 * exact)) > 4  # the sample is large enough to tell


@in_and_out
def test_the_gradient_of_the_exact_risk_is_that_of_sampled_prompts(task):
    model, source = model_of(), seeded(5)

    def gradient(loss):
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])

    sampled = []
    for _ in range(80):
        prompt = task.sample(500, generator=source)
        sampled.append(gradient((model(prompt) - prompt.targets).square().mean()))
    assert_means(torch.stack(sampled), gradient(model.risk(task)))


def test_the_exact_risk_of_another_task_is_not_that_of_the_one_before():
    model = model_of()
    first, second = model.risk(TASK), model.risk(OUT_OF_DOMAIN)
    assert first < second
    assert torch.equal(model.risk(TASK), first)


def test_the_exact_risk_maps_over_weights():
    q, w = normal(3, 4, 3, 3, seed=1), normal(3, 4, 8, seed=2)
    model = model_of()
    risks = torch.func.vmap(functional(model, lambda m: m.risk(TASK)))({"q": q, "w": w})
    for i in range(3):
        torch.testing.assert_close(risks[i], DictionaryAttention(q[i], w[i]).risk(TASK).detach())


class Drifting(DictionaryRegression):
    def sample(self, batch, *, generator):
        prompt = super().sample(batch, generator=generator)
        return replace(prompt, y_query=prompt.y_query + 1)


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize(
    "task",
    [LinearRegression.isotropic(3, 5), Drifting(TASK.tokens, TASK.features, 5, 0.1)],
    ids=lambda task: type(task).__name__,
)
def test_the_exact_risk_of_a_task_that_may_sample_anything_is_refused(task):
    sentence = f"known for the loss on a DictionaryRegression, got {type(task).__name__}"
    with pytest.raises(NoClosedForm, match=sentence):
        model_of().risk(task)


def test_prompts_that_are_no_dictionary_are_refused():
    sentence = "the prompt must ask for every token of one dictionary, with the examples first"
    for prompt in (
        random_prompt(batch=2, n=5, d=3, queries=8),
        replace(TASK.sample(2, generator=seeded()), x=TASK.tokens[None, 1:6]),
    ):
        with pytest.raises(ValueError, match=sentence):
            model_of()(prompt)


def test_another_dictionary_is_refused():
    with pytest.raises(ValueError, match=r"shape \[8, 3\] that the weights belong to, got \[7, 3"):
        model_of().attention(TASK.tokens[:7], 5)
