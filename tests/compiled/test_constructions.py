"""Compiled models against the explicit algorithms, through the ordinary road."""

import secrets
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import leaky_relu

from innerloop import compiled
from innerloop.algorithms import GDPlusPlus, GradientDescent, OnFeatures
from innerloop.algorithms.learner import example_by_example
from innerloop.models import EachPosition, InContext, Looped
from innerloop.sequence import TokenSequence
from innerloop.tasks import Autoregression, ChainOfThought, LeakyNetwork, LinearRegression
from tests.compiled.explicit import descent, newton
from tests.samples import DOUBLE, normal, random_prompt, seeded

pytestmark = pytest.mark.usefixtures("no_gradient")


@pytest.fixture
def no_gradient():
    with torch.no_grad():
        yield


def linear(d, n, noise_std=0.0, batch=16, seed=0):
    return LinearRegression.isotropic(d, n, noise_std).sample(batch, generator=seeded(seed))


def largest(difference):
    return difference.abs().max().item()


@pytest.mark.parametrize(
    ("form", "bound"), [("mirrored", 1e-9), ("refined", 1e-12), ("sinks", 1e-8), ("printed", 1e-5)]
)
def test_descent_is_the_algorithm_up_to_a_thousand_steps(form, bound):
    prompt, counts = linear(4, 12, batch=5), [1, 10, 100, 1000]
    program = compiled.gradient_descent(4, 12, loops=1000, step_size=0.4, form=form)
    answers = InContext(program.model()).after_loops(prompt, counts)
    for count, answer in zip(counts, answers, strict=True):
        assert largest(answer - GradientDescent.repeated(0.4, count)(prompt)) < bound
    assert program.counts.at_most(program.stated) or form == "refined"


@pytest.mark.parametrize("form", ["mirrored", "refined", "sinks", "printed"])
def test_noise_makes_errors_add_up_and_no_more(form):
    """What cannot be fitted stays in the residual, and every step rounds it anew."""
    prompt = linear(4, 12, noise_std=0.5, seed=1)
    program = compiled.gradient_descent(4, 12, loops=300, step_size=0.4, form=form)
    error = largest(InContext(program.model())(prompt) - GradientDescent.repeated(0.4, 300)(prompt))
    scale = prompt.y.abs().max().item()
    assert error < program.expected_error * scale


@given(
    d=st.integers(1, 5), n=st.integers(1, 7), p=st.integers(1, 3), short=st.integers(0, 7),
    penalty=st.sampled_from([0.0, 0.2]), form=st.sampled_from(["mirrored", "sinks"]),
    seed=st.integers(0, 10**6),
)  # fmt: skip
def test_any_size_several_outputs_shorter_prompts_and_a_penalty(
    d, n, p, short, penalty, form, seed
):
    k = min(short, n)
    x, y = normal(3, k + 1, d, seed=seed) / d**0.5, normal(3, k, p, seed=seed + 1)
    tokens = torch.zeros(3, 2 * k + 1, d + p, dtype=DOUBLE)
    tokens[:, ::2, :d], tokens[:, 1::2, d:] = x, y
    sequence = TokenSequence(tokens, torch.tensor([2 * k]), torch.zeros(3, 1, p, dtype=DOUBLE))
    program = compiled.gradient_descent(
        d, n, loops=5, step_size=0.3, outputs=p, penalty=penalty, form=form, size=1.0
    )
    with torch.no_grad():
        answer = program.model()(sequence)[:, 0]
    steps = descent(x[:, :k], y, x[:, k], 5, 0.3 / max(k, 1), penalty * max(k, 1))
    assert largest(answer - steps) < 1e-7


def test_the_order_of_examples_does_not_matter():
    prompt = linear(3, 8)
    order = torch.tensor([3, 1, 7, 0, 2, 6, 5, 4])
    shuffled = replace(prompt, x=prompt.x[:, order], y=prompt.y[:, order])
    phi = LeakyNetwork.drawn(3, 2, orthogonal=True, slope=0.5, outputs=3, generator=seeded())
    for program in (
        compiled.gradient_descent(3, 8, loops=20, step_size=0.3),
        compiled.gradient_descent(3, 8, loops=20, step_size=0.3, representation=phi),
        compiled.newton(3, 8, loops=8, alpha=0.02),
        compiled.causal_gradient_descent(3, 8, loops=20, step_size=0.05),
    ):
        model = InContext(program.model())
        assert largest(model(prompt) - model(shuffled)) < 1e-8


def test_a_longer_prompt_is_refused():
    model = InContext(compiled.gradient_descent(3, 4, loops=1, step_size=0.3).model())
    with pytest.raises(ValueError, match="at most the 9 tokens"):
        model(linear(3, 5))


@pytest.mark.parametrize("form", ["mirrored", "sinks"])
def test_descent_on_a_representation(form):
    phi = LeakyNetwork.drawn(4, 3, orthogonal=True, slope=0.5, outputs=3, generator=seeded(4))
    covariates = linear(4, 12, batch=4)
    prompt = replace(covariates, y=(phi(covariates.x) @ normal(4, 3, 1)).squeeze(-1))
    program = compiled.gradient_descent(
        4, 12, loops=1000, step_size=0.2, representation=phi, form=form
    )
    counts = [1, 100, 1000]
    answers = InContext(program.model()).after_loops(prompt, counts)
    for count, answer in zip(counts, answers, strict=True):
        wanted = OnFeatures(GradientDescent.repeated(0.2, count), phi)(prompt)
        assert largest(answer - wanted) < 1e-8
    assert program.counts.at_most(program.stated)
    assert program.counts.before[0] == 4


@pytest.mark.parametrize("noise_std", [0.0, 0.5])
@pytest.mark.parametrize(
    ("form", "bound"),
    [("mirrored", 1e-8), ("refined", 1e-10), ("sinks", 1e-7), ("refined-sinks", 1e-9)],
)
def test_newton_is_the_algorithm_up_to_25_steps(noise_std, form, bound):
    """Sinks cost a digit: they make every logit a difference from 37."""
    prompt, counts = linear(4, 16, noise_std), [1, 5, 10, 15, 25]
    program = compiled.newton(4, 16, loops=25, alpha=0.05, form=form)
    answers = InContext(program.model()).after_loops(prompt, counts)
    for count, answer in zip(counts, answers, strict=True):
        assert largest(answer - newton(prompt, count, 0.05)) < bound
    assert program.counts.at_most(program.stated) == (form in ("mirrored", "sinks"))


def test_the_mirror_images_of_newton_have_keys_and_no_values():
    prompt = linear(3, 5)
    program = compiled.newton(3, 5, loops=4, alpha=0.05)
    trace = program.model().trace(prompt.interleave().last())
    for residual in trace.residuals[:5]:
        x, m = (residual[..., program.layout.place(rows)] for rows in ("x", "m"))
        torch.testing.assert_close(x[:, 1::2], -x[:, :-1:2], rtol=1e-14, atol=1e-14)
        assert (m[:, 1::2] == 0).all()
        assert (m[:, ::2] != 0).all()


@given(d=st.integers(1, 4), n=st.integers(4, 8), k=st.integers(4, 8), seed=st.integers(0, 10**6))
def test_newton_of_any_size_and_of_shorter_prompts(d, n, k, seed):
    prompt = random_prompt(3, min(k, n), d, seed=seed)
    with torch.no_grad():
        answer = InContext(compiled.newton(d, n, loops=6, alpha=0.01).model())(prompt)
    assert largest(answer - newton(prompt, 6, 0.01)) < 1e-7


@given(
    d=st.integers(1, 4), n=st.integers(1, 6), k=st.integers(0, 6), layers=st.integers(1, 3),
    outputs=st.integers(1, 4), form=st.sampled_from(["mirrored", "sinks"]),
    seed=st.integers(0, 10**6),
)  # fmt: skip
@settings(max_examples=15)
def test_descent_on_any_representation(d, n, k, layers, outputs, form, seed):
    """An orthogonal or narrowing network is no longer than its inputs."""
    phi = LeakyNetwork.drawn(
        d, layers, orthogonal=True, slope=0.5, outputs=min(outputs, d), generator=seeded(seed)
    )
    prompt = random_prompt(3, min(k, n), d, seed=seed)
    program = compiled.gradient_descent(d, n, loops=5, step_size=0.1, representation=phi, form=form)
    with torch.no_grad():
        answer = InContext(program.model())(prompt)
    wanted = OnFeatures(GradientDescent.repeated(0.1, 5), phi)(prompt)
    assert largest(answer - wanted) < 1e-7


@given(d=st.integers(1, 4), n=st.integers(1, 6), k=st.integers(1, 6), seed=st.integers(0, 10**6))
@settings(max_examples=15)
def test_a_decoder_of_any_size_and_shorter_prompts(d, n, k, seed):
    prompt = random_prompt(3, min(k, n), d, seed=seed)
    program = compiled.causal_gradient_descent(d, n, loops=5, step_size=0.02)
    with torch.no_grad():
        curve = InContext(program.model()).learning_curve(prompt)
    wanted = example_by_example(GradientDescent.repeated(0.02, 5), prompt)
    assert largest(curve - wanted) < 1e-7


@given(
    d=st.integers(1, 3), n=st.integers(1, 6), q=st.integers(1, 3), layers=st.integers(1, 3),
    seed=st.integers(0, 10**6),
)  # fmt: skip
@settings(max_examples=10)
def test_autoregression_of_any_size(d, n, q, layers, seed):
    phi = LeakyNetwork.drawn(
        q * d, layers, orthogonal=True, slope=0.5, outputs=d, generator=seeded(seed)
    )
    tokens = normal(3, q + n - 1, d, seed=seed) / d**0.5
    with torch.no_grad():
        program = compiled.autoregression(phi, n, loops=5, step_size=0.1)
        answer = program.model()(read_at_the_end(tokens))[:, 0]
        f = phi(tokens.unfold(1, q, 1).mT.flatten(2))
    assert largest(answer - descent(f[:, :-1], tokens[:, q:], f[:, -1], 5, 0.1 / n)) < 1e-7


@given(
    d=st.integers(1, 3), n=st.integers(1, 4), levels=st.integers(1, 3), level=st.integers(0, 2),
    slope=st.sampled_from([0.1, 0.5, 1.0]), seed=st.integers(0, 10**6),
)  # fmt: skip
@settings(max_examples=10)
def test_chains_of_thought_of_any_size(d, n, levels, level, slope, seed):
    level = min(level, levels - 1)
    chains = normal(3, n + 1, levels + 1, d, seed=seed) / d**0.5
    shown = chains.flatten(1, 2)[:, : n * (levels + 1) + level + 1]
    with torch.no_grad():
        program = compiled.chain_of_thought(d, n, levels, slope, loops=5, step_size=0.1)
        answer = program.model()(read_at_the_end(shown))[:, 0]
    s, after = chains[:, :, level], leaky_relu(chains[:, :n, level + 1], 1 / slope)
    fitted = descent(s[:, :n], after, s[:, n], 5, 0.1 / n)
    assert largest(answer - leaky_relu(fitted, slope)) < 1e-6


def read_at_the_end(tokens):
    last = torch.tensor([tokens.shape[1] - 1])
    return TokenSequence(tokens, last, torch.zeros_like(tokens[:, :1]))


@pytest.mark.parametrize("form", ["mirrored", "refined", "sinks", "printed"])
def test_prompts_that_nobody_has_seen(form):
    """Seeded by the operating system; the bound holds for any prompt. If step_size |x|^2 <= 1 for
    all x, then a step enlarges no root mean square residual, products are at most 1 in size, and
    errors of the loops add up at most.
    """
    seed = secrets.randbits(48)
    prompt = random_prompt(8, 10, 4, seed=seed)
    length = prompt.x.norm(dim=-1).amax()
    prompt = replace(prompt, x=prompt.x / length, x_query=prompt.x_query / prompt.x_query.norm())
    program = compiled.gradient_descent(4, 10, loops=30, step_size=1.0, form=form, size=1.0)
    error = largest(InContext(program.model())(prompt) - GradientDescent.repeated(1.0, 30)(prompt))
    assert error < program.expected_error * prompt.y.abs().max(), f"seed {seed}"


@pytest.mark.parametrize("loops", [1, 10, 100])
def test_a_decoder_descends_at_every_example(loops):
    prompt = linear(4, 10, noise_std=0.3)
    program = compiled.causal_gradient_descent(4, 10, loops=loops, step_size=0.05)
    curve = InContext(program.model()).learning_curve(prompt)
    wanted = example_by_example(GradientDescent.repeated(0.05, loops), prompt)
    assert largest(curve - wanted) < 1e-9
    assert curve[:, 0].abs().max() == 0
    assert program.counts.at_most(program.stated)


def test_a_decoder_runs_newtons_iteration_at_every_example():
    """Left open by the paper. From d examples on; before, rounding doubles in every loop."""
    prompt = linear(3, 9, noise_std=0.3)
    program = compiled.causal_newton(3, 9, loops=12, alpha=0.01)
    curve = InContext(program.model()).learning_curve(prompt)
    wanted = torch.cat([newton(prompt.next_example(k), 12, 0.01) for k in range(10)], dim=1)
    assert largest((curve - wanted)[:, 4:]) < 1e-7
    assert largest((curve - wanted)[:, :4]) < 1e-5
    assert program.counts == compiled.Counts((2, 6), (2, 18), (2, 6))


@pytest.mark.parametrize(("q", "layers"), [(1, 1), (2, 2), (3, 3)])
def test_autoregression_at_every_position(q, layers):
    d, n, loops = 3, 8, 50
    phi = LeakyNetwork.drawn(
        q * d, layers, orthogonal=True, slope=0.5, outputs=d, generator=seeded(q)
    )
    sequence = Autoregression(phi, n).sample(5, generator=seeded())
    program = compiled.autoregression(phi, n, loops=loops, step_size=0.1)
    answers = EachPosition(program.model())(sequence)
    f = phi(sequence.tokens.unfold(1, q, 1).mT.flatten(2))
    wanted = torch.stack(
        [
            descent(f[:, :k], sequence.tokens[:, q : q + k], f[:, k], loops, 0.1 / n)
            for k in range(n)
        ],
        dim=1,
    )
    assert largest(answers - wanted) < 1e-7
    assert program.counts.at_most(program.stated)
    assert program.counts.before == (layers + 1, q)


@pytest.mark.parametrize("loops", [1, 100])
def test_chains_of_thought_at_every_level(loops):
    d, n, levels, slope = 3, 5, 3, 0.2
    sequence = ChainOfThought(d, n, levels, slope).sample(5, generator=seeded())
    program = compiled.chain_of_thought(d, n, levels, slope, loops=loops, step_size=0.1)
    answers = EachPosition(program.model())(sequence).unflatten(1, (n + 1, levels))
    padded = torch.cat([sequence.tokens, torch.zeros(5, 1, d, dtype=DOUBLE)], dim=1)
    chains = padded.unflatten(1, (n + 1, levels + 1))
    for level in range(levels):
        s, after = chains[:, :, level], leaky_relu(chains[:, :, level + 1], 1 / slope)
        for k in range(n + 1):
            fitted = descent(s[:, :k], after[:, :k], s[:, k], loops, 0.1 / n)
            assert largest(answers[:, k, level] - leaky_relu(fitted, slope)) < 1e-7
    assert program.counts == compiled.Counts((2, 2), (1, 2), (1, 0))
    assert program.counts.at_most(program.stated)


def test_an_activation_without_inverse_is_refused():
    with pytest.raises(ValueError, match="a plain ReLU cannot be inverted"):
        compiled.chain_of_thought(3, 5, 3, 0.0, loops=1, step_size=0.1)


def test_single_precision_has_the_error_that_is_expected_of_it():
    prompt = linear(4, 12)
    program = compiled.gradient_descent(4, 12, loops=20, step_size=0.4, dtype=torch.float32)
    answer = InContext(program.model(torch.float32))(prompt.to(dtype=torch.float32))
    error = largest(answer.double() - GradientDescent.repeated(0.4, 20)(prompt))
    assert 1e-7 < error < program.expected_error * prompt.y.abs().max().item()


def test_float32_cannot_be_looped_a_thousand_times():
    program = compiled.gradient_descent(4, 12, loops=1000, step_size=0.4, dtype=torch.float32)
    with pytest.raises(ValueError, match="after 1000 loops in float32 an error of about"):
        compiled.require_error(program.expected_error, torch.float32, None, 1000)


def test_linear_attention_is_exact():
    prompt = linear(3, 6)
    model = compiled.linear_gradient_descent(3, loops=7, step_size=0.3)
    assert largest(model(prompt) - GradientDescent.repeated(0.3, 7)(prompt)) < 1e-13
    plus = compiled.linear_gd_plus_plus(3, loops=4, step_size=0.2, transform=0.5)
    assert largest(plus(prompt) - GDPlusPlus([0.2] * 4, [0.5] * 4)(prompt)) < 1e-13


def test_printing_a_program_names_rows_heads_and_what_they_do():
    text = str(compiled.newton(4, 16, loops=20, alpha=0.05))
    for word in ("rows 0-3", "m = alpha S x", "u = M S m", "stated: before 1 x 2", "feed-forward"):
        assert word in text


def test_a_compiled_model_is_an_ordinary_one_and_can_be_traced():
    program = compiled.gradient_descent(2, 3, loops=4, step_size=0.3)
    model = program.model()
    assert type(model) is Looped
    prompt = linear(2, 3)
    trace = model.trace(prompt.interleave().last())
    assert trace.names == ["before, layer 1", *(f"loop {t}, layer 1" for t in range(1, 5))]
    for t in range(1, 5):
        wanted = GradientDescent.repeated(0.3, t)(prompt)
        assert largest(trace.readout[t, :, 0] - wanted) < 1e-9
    partner = trace.attention[0][0, 0]  # x_i listens to y_i and y_i to x_i
    assert partner[:6].argmax(-1).tolist() == [1, 0, 3, 2, 5, 4]
