import math

import pytest
import torch

from innerloop.theory.linear import SampleComplexity, mean_error_parts, one_step_preconditioner
from tests.samples import DOUBLE, rotation

SPECTRUM = (1.5, 0.8, 0.4)
SETTINGS = [
    SampleComplexity(SPECTRUM),
    SampleComplexity(SPECTRUM, noise_std=0.5),
    SampleComplexity((1.0,) * 5, noise_std=1.0),
    # Noise far above the labels: with N = M the error first rises with the length.
    SampleComplexity((0.5,) + (1.0,) * 9, noise_std=5.0),
]
ids = [f"d={len(s.spectrum)}, noise {s.noise_std}" for s in SETTINGS]


def eps_values(setting):
    return [setting.floor + share * sum(setting.spectrum) for share in (0.1, 0.2, 0.7, 0.99, 1.2)]


@pytest.mark.parametrize("setting", SETTINGS, ids=ids)
@pytest.mark.parametrize(("train", "test"), [(1, 1), (12, 9), (5, math.inf)])
def test_the_error_is_that_of_the_trained_layer_in_any_basis(setting, train, test):
    u = rotation(len(setting.spectrum), seed=1)
    sigma = u @ torch.diag(torch.tensor(setting.spectrum, dtype=DOUBLE)) @ u.mT
    sigma = (sigma + sigma.mT) / 2
    best = one_step_preconditioner(sigma, train)
    parts = mean_error_parts(best, sigma, test, noise_std=setting.noise_std)
    assert setting.error(train, test) == pytest.approx(parts.total, rel=1e-12)


def first(reached, limit=20_000):
    return next(n for n in range(1, limit) if reached(n))


@pytest.mark.parametrize("setting", SETTINGS, ids=ids)
def test_the_lengths_are_those_that_trying_one_after_another_finds(setting):
    for eps in eps_values(setting):
        train = setting.train_length(eps)
        assert train == first(lambda n, eps=eps: setting.error(n, math.inf) < eps)
        for given in (train, 3 * train, math.inf):
            test = first(lambda m, eps=eps, given=given: setting.error(given, m) <= eps)
            assert setting.test_length(eps, given) == test
        assert setting.equal_length(eps) == first(lambda n, eps=eps: setting.error(n, n) <= eps)


def test_with_strong_noise_the_error_rises_before_it_falls():
    errors = [SETTINGS[-1].error(n, n) for n in (1, 4, 1_000)]
    assert errors[0] < errors[1] > errors[2]


def test_training_longer_than_the_test_raises_the_error():
    setting = SampleComplexity(SPECTRUM)
    errors = {train: setting.error(train, 20) for train in (10, 19, 20, 21, 40, math.inf)}
    assert min(errors, key=errors.__getitem__) == 20
    assert errors[21] < errors[40] < errors[math.inf]


@pytest.mark.parametrize("setting", SETTINGS, ids=ids)
def test_a_frontier_with_all_lengths_holds_the_shortest_tests_of_all(setting):
    eps = setting.floor + 0.25 * sum(setting.spectrum)
    equal = setting.equal_length(eps)
    pairs = setting.frontier(eps, points=4 * equal)
    trains, tests = [p.train for p in pairs], [p.test for p in pairs]
    assert trains == sorted(set(trains))
    assert tests == sorted(set(tests), reverse=True)
    assert all(p.error == setting.error(p.train, p.test) <= eps for p in pairs)
    assert max(trains) <= equal
    every = {n: setting.test_length(eps, n) for n in range(trains[0], 3 * equal)}
    assert tests[-1] == min(every.values())
    assert all(every[n] == m for n, m in zip(trains, tests, strict=True))


@pytest.mark.parametrize("setting", SETTINGS, ids=ids)
def test_the_stated_lengths_suffice(setting):
    for eps in eps_values(setting):
        stated = setting.stated(eps)
        assert stated.error <= eps
        assert stated.train >= setting.train_length(eps)


def test_the_stated_lengths_are_those_of_the_corollary():
    stated = SampleComplexity(SPECTRUM).stated(0.1)
    assert stated.test == math.ceil(2 * 4 * 2.7 / 0.1)
    assert stated.train == math.ceil(math.sqrt(2 * (1 + 6 + 9 * 1.5 / 0.4) * 2.7 / 0.1))


def test_tiny_errors_are_reached_without_loss_of_digits():
    setting = SampleComplexity(SPECTRUM)
    train = setting.train_length(1e-20)
    assert setting.error(train, math.inf) < 1e-20 <= setting.error(train - 1, math.inf)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: SampleComplexity(()), "spectrum must be one or more positive"),
        (lambda: SampleComplexity((1.0, -1.0)), r"positive finite numbers, got \[1.0, -1.0\]"),
        (lambda: SampleComplexity((1.0,), -0.5), "noise_std must be finite and not negative"),
        (
            lambda: SampleComplexity((1.0,), 0.5).equal_length(0.25),
            r"eps must be finite and above noise_std\^2 = 0.25.*got 0.25",
        ),
        (lambda: SampleComplexity((1.0,)).train_length(0.0), "got 0.0"),
        (lambda: SampleComplexity((1.0,)).stated(math.nan), "got nan"),
        (
            lambda: SampleComplexity(SPECTRUM).test_length(0.1, 10),
            "after training on 10 examples, got 0.1; train on 18 or more",
        ),
        (lambda: SampleComplexity(SPECTRUM).error(0, 5), "train must be at least 1 example"),
        (lambda: SampleComplexity(SPECTRUM).frontier(0.1, points=1), "points must be at least 2"),
    ],
)
def test_bad_arguments_are_named(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
