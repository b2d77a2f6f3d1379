"""The claims of Zhang et al. (2023) about the error on new prompts, at the smallest scale."""

import pytest
import torch

from innerloop.papers import Outcome, select
from innerloop.papers.zhang2023 import prediction, prompt_lengths
from innerloop.papers.zhang2023.labels import LABELS
from innerloop.tasks import Exponential
from innerloop.theory.linear import JointMoments, SampleComplexity
from tests.papers.contract import assert_measured, assert_typeset
from tests.samples import assert_means, relative_error, seeded

CORRECTED = {"eq4.13-limit"}
HOLDING = {
    *("eq4.3", "eq4.4", "theorem4.2", "appendixB", "theorem4.2-linear", "corollary4.3", "eq4.13"),
    *("error-lengths", "random-covariance"),
}
ENTRIES = select([f"zhang2023/{name}" for name in sorted(CORRECTED | HOLDING)])


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_the_verdict_is_the_known_one_and_every_control_is_told_apart(entry, tmp_path):
    name = entry.id.removeprefix("zhang2023/")
    assert_measured(entry, Outcome.CORRECTED if name in CORRECTED else Outcome.HOLDS, tmp_path)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_formulas_can_be_typeset(entry):
    assert_typeset(entry)


@pytest.mark.parametrize("name", LABELS)
def test_every_prompt_has_the_moments_of_the_distribution(name):
    labels, sigma = LABELS[name], prediction.SMALL
    prompt, weights = labels.every_prompt(1, sigma)
    x, y = prompt.x_query[:, 0], prompt.y_query[:, 0]
    exact = labels.moments(sigma)
    assert weights.sum().item() == pytest.approx(1, rel=1e-12)
    assert relative_error(torch.einsum("p,pi,pj->ij", weights, x, x), exact.second) < 1e-12
    assert relative_error(torch.einsum("p,pi->i", weights * y, x), exact.cross) < 1e-12
    assert (weights * y**2).sum().item() == pytest.approx(exact.label_power.item(), rel=1e-12)


@pytest.mark.parametrize("name", ["linear", "linear with noise"])
def test_sampled_prompts_have_the_moments_of_the_distribution(name):
    labels, sigma = LABELS[name], prediction.LAMBDA
    prompt = labels.sample(50_000, 2, sigma, generator=seeded(3))
    exact = labels.moments(sigma)
    assert_means(prompt.x_query[:, 0] * prompt.y_query, exact.cross)
    assert_means(prompt.y[:, 0] ** 2, exact.label_power)


def test_the_display_for_linear_labels_is_quadratic_in_the_weight():
    w = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    once = prompt_lengths.displayed_error(w, prediction.LAMBDA, 7, 5)
    assert prompt_lengths.displayed_error(3 * w, prediction.LAMBDA, 7, 5) == pytest.approx(9 * once)


def test_the_average_of_the_display_over_unit_vectors_is_the_error_averaged_over_tasks():
    # A quadratic form in w, averaged over N(0, I), is its sum over unit vectors.
    lam = prediction.LAMBDA
    total = sum(
        prompt_lengths.displayed_error(w, lam, 7, 5) for w in torch.eye(3, dtype=torch.float64)
    )
    setting = SampleComplexity(tuple(prediction.SPECTRUM))
    assert total == pytest.approx(setting.error(7, 5), rel=1e-11)


def test_the_terms_of_the_theorem_add_up_to_the_error():
    moments = JointMoments.linear(prediction.LAMBDA, torch.ones(3, dtype=torch.float64))
    best = torch.linalg.inv(prediction.gamma(prediction.LAMBDA, 12))
    terms = prediction.brackets(moments, prediction.LAMBDA, 12, 9)
    exact = prediction.theory.linear.prediction_error(best, moments, 9).item()
    assert sum(terms.values()) == pytest.approx(exact, rel=1e-12)


def test_the_mean_variance_given_a_coordinate_matches_sampled_pairs():
    variances = Exponential(1)(200_000, seeded(4))
    x = variances.sqrt() * torch.randn(200_000, 1, generator=seeded(5), dtype=torch.float64)
    assert_means(variances, 1.0)
    for low, high in ((0.1, 0.3), (0.9, 1.1), (2.0, 2.5)):
        inside = (x.abs() > low) & (x.abs() < high)
        stated = x.abs() / 2**0.5 + 0.5
        assert_means((variances - stated)[inside], 0.0)
