"""Learners to compare transformers with, each against another way to the same number."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor
from torch.nn.functional import leaky_relu

from innerloop.algorithms import (
    Averaging,
    GradientDescent,
    LeastSquares,
    NearestNeighbours,
    NetworkDescent,
    OnFeatures,
    PoolPosterior,
    Ridge,
    Scikit,
    SequenceDescent,
    SequenceRidge,
)
from innerloop.tasks import (
    ChainOfThought,
    GaussianCovariates,
    LeakyNetwork,
    LinearRegression,
    PooledLinearFunctions,
    Regression,
    ReluNetworkFunctions,
)
from tests.samples import DOUBLE, normal, random_prompt, seeded


def test_neighbours_are_those_of_scikit_learn():
    prompt = random_prompt(6, 9, 3, queries=2)
    other = Scikit(lambda: KNeighborsRegressor(3))
    torch.testing.assert_close(NearestNeighbours(3)(prompt), other(prompt))


def test_averaging_is_one_step_of_gradient_descent_from_zero():
    prompt = random_prompt(6, 9, 3)
    torch.testing.assert_close(Averaging()(prompt), GradientDescent([1.0])(prompt))


def test_a_noiseless_pool_is_recognised_from_one_example():
    pool = normal(20, 3)
    white = GaussianCovariates(torch.eye(3, dtype=DOUBLE))
    task = Regression(white, PooledLinearFunctions(pool), 1)
    prompt = task.sample(200, generator=seeded())
    torch.testing.assert_close(PoolPosterior(pool)(prompt), prompt.y_query, atol=1e-9, rtol=0)
    before = PoolPosterior(pool)(prompt.prefix(0))
    torch.testing.assert_close(before, (prompt.x_query @ pool.mean(0)))


def test_the_posterior_of_a_large_pool_is_that_of_a_gaussian_prior():
    """Many weights from N(0, I): their posterior mean is ridge regression's."""
    pool, noise = normal(200_000, 2, seed=3), 0.7
    prompt = LinearRegression.isotropic(2, 4, noise).sample(5, generator=seeded())
    close = PoolPosterior(pool, noise)(prompt) - Ridge(noise**2)(prompt)
    assert close.abs().max() < 0.03


def test_on_features_the_learner_never_sees_the_covariates():
    network = LeakyNetwork.drawn(3, 2, outputs=4, generator=seeded(), orthogonal=True, slope=0.5)
    prompt = random_prompt(4, 9, 3, queries=2)
    expected = []
    for x, y, q in zip(prompt.x, prompt.y, prompt.x_query, strict=True):
        f = network(x)
        w = torch.linalg.solve(f.T @ f + 0.3 * torch.eye(4, dtype=DOUBLE), f.T @ y)
        expected.append(network(q) @ w)
    answer = OnFeatures(Ridge(0.3), network)(prompt)
    torch.testing.assert_close(answer, torch.stack(expected))


@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_ridge_along_a_sequence_is_ridge_on_each_prefix(penalty):
    task = ChainOfThought(3, 5, layers=2, slope=0.2)
    batch = task.sample(2, generator=seeded())
    learner = SequenceRidge(
        lambda s: s.tokens[:, s.readout],
        penalty,
        groups=2,
        response=lambda v: leaky_relu(v, 0.2),
        inverse=lambda v: leaky_relu(v, 5.0),
    )
    answers = learner(batch)
    for b in range(2):
        for chain in range(6):
            for layer in range(2):
                f = batch.tokens[b, layer::3][:chain].numpy()
                y = leaky_relu(batch.targets[b, layer::2][:chain], 5.0).numpy()
                rows = np.vstack([f, penalty**0.5 * np.eye(3)])
                w = np.linalg.lstsq(rows, np.vstack([y, np.zeros((3, 3))]), rcond=None)[0]
                value = torch.as_tensor(batch.tokens[b, layer::3][chain].numpy() @ w)
                expected = leaky_relu(value, 0.2)
                torch.testing.assert_close(
                    answers[b, 2 * chain + layer], expected, atol=1e-8, rtol=1e-6
                )


def test_a_chain_is_answered_exactly_once_the_network_is_determined():
    task = ChainOfThought(3, 6, layers=2, slope=0.2)
    batch = task.sample(5, generator=seeded())
    learner = SequenceRidge(
        lambda s: s.tokens[:, s.readout],
        groups=2,
        response=lambda v: leaky_relu(v, 0.2),
        inverse=lambda v: leaky_relu(v, 5.0),
    )
    errors = (learner(batch) - batch.targets).abs().amax((0, 2))
    assert errors[6:].max() < 1e-6
    assert errors[:6].min() > 1e-2


def test_a_network_learns_networks_better_than_least_squares_does():
    white = GaussianCovariates(torch.eye(3, dtype=DOUBLE))
    task = Regression(white, ReluNetworkFunctions(3, 20), 40)
    prompt = task.sample(60, generator=seeded())

    def error(learner):
        return (learner(prompt) - prompt.y_query).square().mean()

    assert error(NetworkDescent(100, 300)) < 0.3 * error(LeastSquares())


def test_a_network_that_has_not_moved_predicts_nothing():
    prompt = random_prompt(3, 5, 2)
    still = NetworkDescent(10, 1, lr=1e-12)(prompt)
    assert still.abs().max() < 1e-9


def test_an_estimator_is_fitted_anew_for_every_prompt():
    prompt = random_prompt(4, 9, 2)
    answers = Scikit(lambda: DecisionTreeRegressor(random_state=0))(prompt)
    for i in range(4):
        tree = DecisionTreeRegressor(random_state=0).fit(prompt.x[i], prompt.y[i])
        torch.testing.assert_close(answers[i], torch.as_tensor(tree.predict(prompt.x_query[i])))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NearestNeighbours(0), "k must be at least 1, got 0"),
        (lambda: NetworkDescent(0), "hidden must be at least 1, got 0"),
        (lambda: NetworkDescent(lr=0.0), "lr must be positive and finite, got 0.0"),
        (lambda: SequenceRidge(lambda s: s.tokens, -1.0), "penalty must be finite"),
        (lambda: SequenceDescent(lambda s: s.tokens, 0, 0.1), "steps must be at least 1, got 0"),
        (lambda: SequenceDescent(lambda s: s.tokens, 1, 0.0), "rate must be positive"),
        (lambda: SequenceDescent(lambda s: s.tokens, 1, 0.1, groups=0), "groups must be at least"),
        (lambda: SequenceRidge(lambda s: s.tokens, groups=0), "groups must be at least 1, got 0"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_descent_along_a_sequence_is_the_geometric_series_in_the_eigenbasis():
    """W_T = sum_{k<T} (I - rate G)^k rate F^T y = U (1 - (1 - rate s)^T) / s U^T F^T y."""
    batch = ChainOfThought(3, 5, layers=2, slope=0.5).sample(2, generator=seeded())
    learner = SequenceDescent(
        lambda s: s.tokens[:, s.readout],
        7,
        0.05,
        groups=2,
        response=lambda v: leaky_relu(v, 0.5),
        inverse=lambda v: leaky_relu(v, 2.0),
    )
    answers = learner(batch)
    assert answers[:, :2].abs().max() == 0  # nothing was seen of either layer
    for b in range(2):
        f, y = batch.tokens[b, 1::3].numpy(), leaky_relu(batch.targets[b, 1::2], 2.0).numpy()
        s, u = np.linalg.eigh(f[:5].T @ f[:5])
        w = u @ np.diag((1 - (1 - 0.05 * s) ** 7) / s) @ u.T @ f[:5].T @ y[:5]
        expected = leaky_relu(torch.as_tensor(f[5] @ w), 0.5)
        torch.testing.assert_close(answers[b, 11], expected, atol=1e-10, rtol=1e-9)
