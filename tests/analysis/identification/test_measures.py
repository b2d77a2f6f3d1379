"""Measures and their intervals, from outside: hand-made errors, and coverage by simulation."""

import pytest
import torch

from innerloop.analysis.identification import Bootstrap, Interval, measures
from tests.samples import normal, seeded


def means(f, g, y):
    return measures.squares(f, g, y).mean(0)


def prompts(seed=0, count=100_000):
    y, first, second = (normal(count, 1, seed=3 * seed + i) for i in range(3))
    return y, first, second


def test_the_same_predictions_share_all_of_the_error():
    y, noise, _ = prompts()
    assert measures.error_share(means(y + noise, y + noise, y)) == 1


def test_learners_that_are_merely_equally_good_share_nothing_of_the_error():
    y, first, second = prompts()
    table = means(y + 0.01 * first, y + 0.01 * second, y)
    assert abs(measures.error_share(table)) < 4 / 100_000**0.5
    assert measures.prediction_share(table) > 0.999  # which cannot tell them apart


@pytest.mark.parametrize("r", [0.5, 2.0])
def test_an_error_of_another_size_is_shared_in_part(r):
    y, noise, _ = prompts()
    share = measures.error_share(means(y + noise, y + r * noise, y))
    assert share == pytest.approx(2 * r / (r**2 + 1), rel=1e-12)


def test_learners_that_know_nothing_share_their_error_and_not_their_prediction():
    y, first, _ = prompts()
    table = means(0.1 * first, torch.zeros_like(y), y)
    assert measures.error_share(table) > 0.98
    assert measures.prediction_share(table) == 0


def test_where_neither_errs_there_is_no_share_of_the_error():
    y, noise, _ = prompts(count=100)
    table = means(y + 1e-15 * noise, y, y)
    assert measures.error_share(table).isnan()
    assert Interval(float("nan"), 0.0, 0.0).percent() == "undefined"


def test_targets_of_a_prompt_are_averaged():
    f, g, y = (normal(7, 2, 3, seed=seed) for seed in range(3))
    columns = measures.squares(f, g, y)
    assert columns.shape == (7, 5)
    torch.testing.assert_close(columns[:, 0], (f - g).square().mean((1, 2)))


def test_an_interval_of_a_mean_is_two_standard_errors_wide_on_each_side():
    values = normal(2000, 1)
    drawn = Bootstrap.of(values, generator=seeded(1)).interval(lambda m: m[..., 0])
    error = values.std().item() / 2000**0.5
    assert drawn.value == pytest.approx(values.mean().item())
    assert drawn.high - drawn.low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_intervals_cover_the_true_share_as_often_as_they_say():
    """f and g share half of their errors' variance: the share is 1/2."""
    runs, covered = 200, 0
    for seed in range(runs):
        y, first, second = prompts(seed, 300)
        shared = normal(300, 1, seed=seed + 10_000)
        values = measures.squares(y + shared + first, y + shared + second, y)
        drawn = Bootstrap.of(values, generator=seeded(seed), resamples=300)
        covered += 0.5 in drawn.interval(measures.error_share)
    # Binomial with 200 trials: four standard errors are 6%.
    assert abs(covered / runs - 0.95) < 0.062


def test_paired_differences_are_sharper_than_the_numbers_they_compare():
    common = 100 * normal(500, 1)
    values = torch.cat([common, common + normal(500, 1, seed=1) + 1], dim=1)
    drawn = Bootstrap.of(values, generator=seeded())
    difference = drawn.interval(lambda m: m[..., 1] - m[..., 0])
    assert 0.0 not in difference
    assert difference.high - difference.low < 0.2


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        (Interval(0.981, 0.979, 0.983), "98.1% [97.9, 98.3]"),
        (Interval(1.0, 1.0, 1.0), "100.0% [100.0, 100.0]"),
        (Interval(0.999995, 0.99999, 0.999999), "99.9995% [99.9990, 99.9999]"),
        (Interval(0.0, -0.0, 0.0), "0.0% [0.0, 0.0]"),
    ],
)
def test_a_share_short_of_all_does_not_read_100(interval, words):
    assert interval.percent() == words
