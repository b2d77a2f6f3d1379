"""The numbers that the four-layer figures of Yang et al. (2024) rest on."""

from dataclasses import replace

import pytest
import torch

from innerloop import theory
from innerloop.models import DictionaryAttention
from innerloop.papers import Scale
from innerloop.papers.yang2024 import encoder_training
from innerloop.papers.yang2024.encoder_training import DOMAINS
from tests.samples import assert_means, normal, seeded

PLAN = encoder_training.plan(Scale.SMOKE)
IN_DOMAIN, OUT_OF_DOMAIN = DOMAINS.values()


@pytest.fixture(scope="module")
def made():
    return encoder_training.dictionary(PLAN)


@pytest.mark.parametrize("scale", Scale)
def test_every_plan_keeps_the_papers_proportions(scale):
    sizes = encoder_training.plan(scale).sizes
    printed = encoder_training.plan(Scale.PAPER).sizes
    factor = printed.tokens / sizes.tokens
    assert (printed.d, printed.features, printed.shown) == tuple(
        factor * size for size in (sizes.d, sizes.features, sizes.shown)
    )
    assert (printed.d, printed.features, printed.shown, printed.tokens) == (100, 20, 30, 200)


@pytest.mark.parametrize("m", [1, 2, 7])
def test_no_linear_predictor_is_above_the_limit_out_of_domain(m):
    features, shown, tau = normal(9, m), 4, 0.2
    inside = theory.softmax.DictionaryRisk.of(features, shown, tau)
    outside = theory.softmax.DictionaryRisk.of(features, shown, tau, OUT_OF_DOMAIN.second_moment(m))
    # The largest ratio of the two quadratic forms is a generalised eigenvalue.
    worst = torch.linalg.eigvals(torch.linalg.solve(inside.gram, outside.gram)).real.max().item()
    assert 4 < worst <= m + 4 + 1e-12


@pytest.mark.parametrize("coefficients", [IN_DOMAIN, OUT_OF_DOMAIN], ids=["in", "out"])
def test_the_loss_of_repeating_labels_is_that_of_sampled_prompts(made, coefficients):
    prompt = replace(made.task, coefficients=coefficients).sample(20_000, generator=seeded(1))
    error = prompt.y @ made.risk.optimum
    error[:, : prompt.n] = 0
    assert_means(error.square().mean(1), made.copying(coefficients))


def test_ridge_regression_itself_has_no_inference_loss(made):
    class Ridge(torch.nn.Module):
        def forward(self, prompt):
            return prompt.y @ made.risk.optimum.to(prompt.y)

    assert made.inference(Ridge(), OUT_OF_DOMAIN, 400).mean < 1e-10


def test_training_is_the_same_each_time_and_records_every_loss():
    encoder_training.trained.cache_clear()
    _, one = encoder_training.trained(PLAN, 2, 3)
    encoder_training.trained.cache_clear()
    _, other = encoder_training.trained(PLAN, 2, 3)
    assert one.columns == other.columns
    assert set(one.columns) == {"step", "loss", "training", "in domain", "out of domain"}


def test_the_floor_is_about_that_of_the_printed_sizes(made):
    printed = encoder_training.dictionary(encoder_training.plan(Scale.PAPER))
    assert printed.seed == 0  # no dictionary had to be passed over
    here, there = (d.one_head_floor / d.gap for d in (made, printed))
    assert 0.5 < here / there < 2


def test_one_head_stays_above_its_floor(made):
    one_head = DictionaryAttention(normal(1, 10, 10), normal(1, 20, seed=1))
    assert made.risk.gap(one_head.attention(made.task.tokens, 3)) > made.one_head_floor


def test_steps_are_timed_for_every_number_of_heads():
    times = encoder_training.step_seconds(PLAN, (1, 2, 1), rounds=2)
    assert len(times) == 3
    assert min(times) > 0
