import pytest
import torch

from innerloop.models import DictionaryAttention, block_form_forward
from innerloop.tasks import DictionaryPrompt, DictionaryRegression
from tests.samples import DOUBLE, normal, seeded

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
    prediction = DictionaryAttention(q, w)(DictionaryPrompt(tokens, labels, normal(1, 3)))
    for k in range(3):
        scores = [torch.exp(tokens[i] @ q[0] @ tokens[k]) for i in range(2)]
        average = (scores[0] * labels[0, 0] + scores[1] * labels[0, 1]) / (scores[0] + scores[1])
        torch.testing.assert_close(prediction[0, k], w[0, k] * average)


def test_predictions_are_linear_in_the_labels_and_never_read_the_targets():
    model, prompt = model_of(), TASK.sample(6, generator=seeded(3))
    unknown = torch.full_like(prompt.targets, float("nan"))
    doubled = DictionaryPrompt(prompt.tokens, 2 * prompt.labels, unknown)
    torch.testing.assert_close(model(doubled), 2 * model(prompt))


def test_softmaxes_sum_to_one_over_the_shown_tokens():
    sums = model_of().softmaxes(TASK.tokens, 5).sum(1)
    torch.testing.assert_close(sums, torch.ones(4, 8, dtype=DOUBLE))


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
    single = model.float()(
        DictionaryPrompt(prompt.tokens.float(), prompt.labels.float(), prompt.targets.float())
    )
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


def test_another_dictionary_is_refused():
    with pytest.raises(ValueError, match=r"shape \[8, 3\] that the weights belong to, got \[7, 3"):
        model_of().attention(TASK.tokens[:7], 5)
