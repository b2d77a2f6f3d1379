from dataclasses import replace

import pytest
import torch

from innerloop.algorithms import GradientDescent, LeastSquares, Ridge, Zero
from innerloop.analysis import Estimate, estimate_risk, learning_curve
from innerloop.tasks import DictionaryRegression, FreshQueries, LinearRegression
from innerloop.theory.linear import layered_risk
from tests.samples import DOUBLE, covariance, normal, seeded

TASK = LinearRegression(covariance(4), 20, noise_std=0.5)
LEARNER = GradientDescent([0.6])
EXACT = layered_risk(
    0.6 * torch.eye(4, dtype=DOUBLE).unsqueeze(0), TASK.covariance, 20, None, 0.5
).item()


def test_an_estimate_is_a_mean_and_its_standard_error():
    values = normal(50)
    estimate = Estimate.of(values)
    mean = sum(values.tolist()) / 50
    variance = sum((v - mean) ** 2 for v in values.tolist()) / 49
    assert estimate.mean == pytest.approx(mean, rel=1e-12)
    assert estimate.standard_error == pytest.approx((variance / 50) ** 0.5, rel=1e-12)
    assert estimate.samples == 50


def test_z_counts_standard_errors_above():
    assert Estimate(3.0, 0.5, 10).z(2.0) == 2.0
    assert Estimate(3.0, 0.5, 10).z(4.0) == -2.0


def test_an_estimate_prints_its_error():
    assert str(Estimate(0.123456, 0.00321, 10)) == "0.1235 ± 0.003"


def test_the_standard_error_covers_the_exact_risk_as_often_as_it_should():
    generator = seeded(1)
    estimates = [
        estimate_risk(LEARNER, TASK, samples=1500, generator=generator) for _ in range(200)
    ]
    covered = sum(abs(e.z(EXACT)) < 1.96 for e in estimates)
    # Binomial(200, 0.95): mean 190, standard deviation 3.1.
    assert abs(covered - 190) < 4 * (200 * 0.95 * 0.05) ** 0.5
    means = torch.tensor([e.mean for e in estimates])
    reported = torch.tensor([e.standard_error for e in estimates]).square().mean().sqrt()
    # The standard deviation of 200 means is itself known to one part in sqrt(400).
    assert abs(means.std() / reported - 1) < 4 / 400**0.5


def test_the_estimate_is_of_the_exact_risk():
    estimate = estimate_risk(LEARNER, TASK, samples=50_000, generator=seeded(2))
    assert abs(estimate.z(EXACT)) < 4
    assert abs(estimate.z(EXACT * 1.1)) > 4  # the sample is large enough to tell


def test_chunks_change_nothing_but_the_order_of_drawing():
    whole = estimate_risk(LEARNER, TASK, samples=1000, generator=seeded(3))
    chunked = estimate_risk(LEARNER, TASK, samples=1000, generator=seeded(3), chunk=300)
    assert whole.samples == chunked.samples == 1000
    difference = abs(whole.mean - chunked.mean)
    assert difference < 4 * (whole.standard_error**2 + chunked.standard_error**2) ** 0.5


@pytest.mark.parametrize("chunk", [1, 7, 10, 100])
def test_every_sample_is_drawn_once(chunk):
    class Counting:
        drawn, d, n = 0, TASK.d, TASK.n

        def sample(self, batch, *, generator):
            assert batch <= chunk
            self.drawn += batch
            return TASK.sample(batch, generator=generator)

    task = Counting()
    estimate = estimate_risk(LEARNER, task, samples=20, generator=seeded(), chunk=chunk)
    assert task.drawn == estimate.samples == 20


def test_the_learning_curve_ends_with_the_risk_and_begins_with_that_of_predicting_nothing():
    curve = learning_curve(LEARNER, TASK, samples=20_000, generator=seeded(4))
    assert len(curve) == 21
    assert abs(curve[-1].z(EXACT)) < 4
    assert abs(curve[0].z(TASK.covariance.trace().item())) < 4


def test_the_learning_curve_of_least_squares_falls_to_zero_at_d_examples():
    task = LinearRegression(covariance(3), 5)
    curve = [e.mean for e in learning_curve(LeastSquares(), task, samples=500, generator=seeded(5))]
    assert curve[0] > curve[1] > curve[2] > 0.1
    assert max(curve[3:]) < 1e-15


@pytest.mark.parametrize("noise_std", [0.0, 0.5])
def test_the_learning_curve_is_the_error_of_predicting_example_k_plus_1(noise_std):
    task = LinearRegression(covariance(3), 4, noise_std=noise_std)
    curve = learning_curve(Ridge(0.5), task, samples=50, generator=seeded(6))
    prompt = task.sample(50, generator=seeded(6))
    x = torch.cat([prompt.x, prompt.x_query], dim=1)
    clean = torch.cat([prompt.y if prompt.y_clean is None else prompt.y_clean, prompt.y_query], 1)
    for k in range(5):
        w = Ridge(0.5).weights(prompt.prefix(k))
        errors = ((w * x[:, k]).sum(-1) - clean[:, k]).square()
        assert curve[k].mean == pytest.approx(errors.mean().item(), rel=1e-12)
        assert curve[k].samples == 50


def test_a_risk_is_averaged_over_the_queries_of_a_prompt():
    task = replace(TASK.law, queries=FreshQueries(3))
    prompt = task.sample(400, generator=seeded(2))
    errors = (LEARNER(prompt) - prompt.y_query).square().mean(1)
    estimate = estimate_risk(LEARNER, task, samples=400, generator=seeded(2))
    # Queries of a prompt share its examples: it is the prompts that are independent.
    assert estimate.mean == pytest.approx(errors.mean().item(), rel=1e-12)
    assert estimate.standard_error == pytest.approx(errors.std().item() / 20, rel=1e-12)


def test_several_queries_have_the_risk_of_one():
    task = replace(TASK.law, queries=FreshQueries(3))
    estimate = estimate_risk(LEARNER, task, samples=30_000, generator=seeded(2))
    assert abs(estimate.z(EXACT)) < 4


def test_the_learning_curve_of_a_dictionary_is_measured_like_any():
    task = DictionaryRegression.gaussian(3, 2, 6, 4, 0.1, generator=seeded())
    curve = learning_curve(LeastSquares(), task, samples=50, generator=seeded(1))
    prompt = task.sample(50, generator=seeded(1))
    assert len(curve) == 5
    assert curve[0].mean == pytest.approx(prompt.y[:, 0].square().mean().item(), rel=1e-12)


def test_predicting_nothing_risks_the_whole_label():
    estimate = estimate_risk(Zero(), TASK, samples=20_000, generator=seeded(7))
    assert abs(estimate.z(TASK.covariance.trace().item())) < 4


@pytest.mark.parametrize("measure", [estimate_risk, learning_curve])
@pytest.mark.parametrize("samples", [0, 1])
def test_too_few_samples_are_refused(measure, samples):
    with pytest.raises(ValueError, match=f"samples must be at least 2 .*, got {samples}"):
        measure(Zero(), TASK, samples=samples, generator=seeded())


def test_an_empty_chunk_is_refused():
    with pytest.raises(ValueError, match="chunk must be at least 1, got 0"):
        estimate_risk(Zero(), TASK, samples=5, generator=seeded(), chunk=0)


def test_no_gradient_is_kept():
    step = torch.nn.Parameter(torch.eye(4, dtype=DOUBLE))
    estimate = estimate_risk(GradientDescent([step]), TASK, samples=10, generator=seeded())
    assert isinstance(estimate.mean, float)
    assert step.grad is None
