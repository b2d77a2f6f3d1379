import math
from dataclasses import replace

import pytest
import torch

from innerloop.algorithms import curve_answers
from innerloop.models import DictionaryEncoder
from innerloop.tasks import DictionaryRegression
from innerloop.training import Prompts, train
from tests.samples import DOUBLE, normal, query, random_prompt, seeded, shared_prompt, written_out

TASK = DictionaryRegression.gaussian(3, 2, 8, 5, 0.1, generator=seeded())
SMALL = {"layers": 2, "width": 12, "hidden": 20, "dtype": DOUBLE}


def encoder(heads=3, d=3, seed=1, **sizes):
    return DictionaryEncoder(d, heads, generator=seeded(seed), **(SMALL | sizes))


def randomised(model):
    """The same encoder with nothing left at its special start, biases and norms included."""
    for i, parameter in enumerate(model.parameters()):
        parameter.data = normal(*parameter.shape, seed=i) / 2
    return model


def by_hand(model, tokens, labels):
    """The prediction for one prompt from loops over tokens and heads, with nothing of torch.nn."""
    w = dict(model.named_parameters())

    def linear(name, x):
        return w[f"{name}.weight"] @ x + w[f"{name}.bias"]

    def norm(name, x):
        centred = x - x.mean()
        scale = (centred.square().mean() + 1e-5).sqrt()
        return centred / scale * w[f"{name}.weight"] + w[f"{name}.bias"]

    def attention(name, states, heads, width):
        size, mixed = width // heads, []
        projected = [linear(f"{name}.query_key_value", x).view(3, heads, size) for x in states]
        for asking in projected:
            parts = []
            for h in range(heads):
                scores = [math.exp(asking[0, h] @ key[1, h] / size**0.5) for key in projected]
                weights = [score / sum(scores) for score in scores]
                pairs = zip(weights, projected, strict=True)
                parts.append(sum(weight * value[2, h] for weight, value in pairs))
            mixed.append(linear(f"{name}.merge", torch.cat(parts)))
        return mixed

    shown = len(labels)
    states = [
        linear("embed", torch.cat([token, normal(2) * 0 if k >= shown else _pair(labels[k])]))
        for k, token in enumerate(tokens)
    ]
    for i, layer in enumerate(model.layers.blocks):
        name = f"layers.blocks.{i}"
        mixed = attention(name, states, layer.shape.heads, len(states[0]))
        pairs = zip(states, mixed, strict=True)
        states = [norm(f"{name}.attention_norm", x + m) for x, m in pairs]
        fed = [linear(f"{name}.into_hidden", x).clamp_min(0) for x in states]
        fed = [linear(f"{name}.out_of_hidden", x) for x in fed]
        pairs = zip(states, fed, strict=True)
        states = [norm(f"{name}.feed_forward_norm", x + f) for x, f in pairs]
    return torch.cat([linear("read", x) for x in states])


def _pair(label):
    return torch.stack([label, torch.ones_like(label)])


@pytest.mark.parametrize("heads", [1, 3, 12])
def test_the_encoder_is_the_formula_of_vaswani_et_al_written_out(heads):
    model, prompt = randomised(encoder(heads)), TASK.sample(2, generator=seeded(3))
    answers = model(prompt).detach()
    with torch.no_grad():
        for labels, answer in zip(prompt.y, answers, strict=True):
            torch.testing.assert_close(by_hand(model, TASK.tokens, labels), answer)


def test_the_targets_are_never_read():
    model, prompt = encoder(), TASK.sample(4, generator=seeded(3))
    hidden = replace(prompt, y_query=torch.full_like(prompt.targets, float("nan")))
    assert torch.equal(model(hidden), model(prompt))


def test_prompts_are_answered_independently():
    model, prompt = encoder(), TASK.sample(4, generator=seeded(3))
    alone = replace(prompt, y=prompt.y[2:3], y_query=prompt.y_query[2:3])
    torch.testing.assert_close(model(alone), model(prompt)[2:3], rtol=1e-12, atol=1e-12)


def test_a_shown_label_of_zero_is_told_from_a_label_that_is_not_shown():
    model, prompt = randomised(encoder()), TASK.sample(1, generator=seeded(3))
    labels = torch.cat([prompt.y, torch.zeros(1, 1, dtype=DOUBLE)], dim=1)
    longer = replace(prompt, x=prompt.x_query[:, :6], y=labels)
    assert not torch.allclose(model(longer), model(prompt))


def test_reordering_the_shown_tokens_reorders_the_answers():
    model, prompt = encoder(), TASK.sample(4, generator=seeded(3))
    order = torch.tensor([3, 1, 4, 0, 2, 5, 6, 7])
    tokens, labels = prompt.x_query[:, order], prompt.y_query[:, order]
    shuffled = replace(prompt, x=tokens[:, :5], y=labels[:, :5], x_query=tokens, y_query=labels)
    torch.testing.assert_close(model(shuffled), model(prompt)[:, order])


@pytest.mark.parametrize("n", [0, 1, 5])
def test_queries_that_are_no_dictionary_are_answered_independently(n):
    model, prompt = randomised(encoder()), random_prompt(batch=4, n=n, d=3, queries=3)
    together = model(prompt)
    assert together.shape == (4, 3)
    for i in range(3):
        torch.testing.assert_close(together[:, i : i + 1], model(query(prompt, i)))


def test_shared_covariates_are_read_as_if_written_out():
    model = randomised(encoder())
    for prompt in (shared_prompt(batch=4, n=5, d=3), TASK.sample(4, generator=seeded())):
        torch.testing.assert_close(model(prompt), model(written_out(prompt)))


def test_a_query_beside_the_examples_is_read_by_the_same_formula():
    model, prompt = randomised(encoder()), random_prompt(batch=2, n=4, d=3)
    with torch.no_grad():
        for b, answer in enumerate(model(prompt)):
            tokens = torch.cat([prompt.x[b], prompt.x_query[b]])
            torch.testing.assert_close(by_hand(model, tokens, prompt.y[b])[4:], answer)


def test_the_learning_curve_of_a_dictionary_asks_for_all_of_it_at_every_length():
    model, prompt = randomised(encoder()), TASK.sample(4, generator=seeded(3))
    curve = curve_answers(model, prompt)
    for k in range(1, 5):
        torch.testing.assert_close(curve[:, k], model(prompt.prefix(k))[:, k])


def test_the_learning_curve_of_other_prompts_is_that_of_any_learner():
    model, prompt = randomised(encoder()), random_prompt(batch=2, n=4, d=3, queries=2)
    plain = curve_answers(lambda p: model(p), prompt)
    torch.testing.assert_close(curve_answers(model, prompt), plain)


def test_predictions_are_not_linear_in_the_labels():
    model, prompt = randomised(encoder()), TASK.sample(4, generator=seeded(3))
    doubled = replace(prompt, y=2 * prompt.y)
    silent = replace(prompt, y=0 * prompt.y)
    assert not torch.allclose(model(doubled) - model(silent), 2 * (model(prompt) - model(silent)))


def test_the_weights_come_from_the_generator_alone():
    before = torch.get_rng_state()
    one, same, other = encoder(seed=1), encoder(seed=1), encoder(seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.embed.weight, other.embed.weight)


def test_the_first_weights_have_glorots_variance_and_the_sizes_of_the_paper():
    model = DictionaryEncoder(100, 8, generator=seeded())
    assert len(model.layers.blocks) == 4
    assert model.read.weight.dtype == torch.float32
    first = model.layers.blocks[0].into_hidden
    assert first.weight.shape == (512, 256)
    assert (first.bias == 0).all()
    variance = 2 / (512 + 256)
    # The square of a uniform variable has variance 4/5 of its squared mean.
    error = variance * (0.8 / first.weight.numel()) ** 0.5
    assert abs(first.weight.square().mean().item() - variance) < 4 * error


def test_training_lowers_the_loss():
    model, objective = encoder(4, width=16), Prompts(TASK, 64)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    history = train(model, objective, optimizer, steps=150, generator=seeded(), every=150)
    assert history["loss"][-1] < 0.3 * history["loss"][0]


@pytest.mark.parametrize("name", ["d", "heads", "layers", "width", "hidden"])
def test_sizes_below_one_are_refused(name):
    sizes = {"d": 3, "heads": 2} | {name: 0}
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        encoder(**sizes)


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(
        ValueError, match=r"divide the width 12 .* got 5; possible are 1, 2, 3, 4, "
    ):
        encoder(5)


def test_tokens_of_another_dimension_are_refused():
    prompt = DictionaryRegression.gaussian(4, 2, 8, 5, 0.1, generator=seeded()).sample(
        2, generator=seeded()
    )
    with pytest.raises(ValueError, match="the 3 coordinates that the encoder was made for, got 4"):
        encoder()(prompt)


def test_a_prompt_of_another_precision_is_refused():
    with pytest.raises(
        ValueError, match=r"dtype torch\.float32 of the encoder, got torch\.float64"
    ):
        encoder(dtype=torch.float32)(TASK.sample(2, generator=seeded()))
