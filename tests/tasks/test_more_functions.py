"""Functions of Garg et al., pools and representations: each against a way to compute it by hand."""

import pytest
import torch

from innerloop.tasks import (
    LeakyNetwork,
    PooledLinearFunctions,
    ReluNetworkFunctions,
    RepresentedFunctions,
    TreeFunctions,
)
from tests.samples import DOUBLE, assert_means, normal, seeded

SAMPLES = 20_000


def test_a_pool_gives_each_of_its_rows_equally_often():
    pool = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 0.0]], dtype=DOUBLE)
    unit = torch.eye(2, dtype=DOUBLE)[None]
    drawn = PooledLinearFunctions(pool).draw(SAMPLES, generator=seeded())(unit)
    same = (drawn[:, None] == pool).all(-1)
    assert (same.sum(1) == 1).all()
    assert_means(same.double(), 1 / 3)


def test_networks_have_the_stated_second_moment_and_are_homogeneous():
    function = ReluNetworkFunctions(3, hidden=20).draw(SAMPLES, generator=seeded())
    x = normal(SAMPLES, 1, 3, seed=1)
    assert_means(function(x).square(), 3.0)
    torch.testing.assert_close(function(2.5 * x), 2.5 * function(x))
    bent = function(x) + function(-x)
    assert bent.abs().max() > 1e-3  # a linear function would give 0


def test_a_tree_asks_one_coordinate_after_the_other():
    functions = TreeFunctions(3, depth=2)
    function = functions.draw(50, generator=seeded())
    source = seeded()
    asked = torch.randint(3, (50, 3), generator=source)
    leaves = torch.randn(50, 4, generator=source, dtype=DOUBLE)
    x = normal(50, 6, 3, seed=1)
    for b in range(50):
        for i in range(6):
            first = bool(x[b, i, asked[b, 0]] > 0)
            second = bool(x[b, i, asked[b, 1 + first]] > 0)
            assert function(x)[b, i] == leaves[b, 2 * first + second]


def test_leaves_of_a_tree_are_standard_normal():
    labels = TreeFunctions(4, depth=3).draw(SAMPLES, generator=seeded())(normal(1, 1, 4))
    assert_means(labels, 0.0)
    assert_means(labels.square(), 1.0)


@pytest.mark.parametrize("orthogonal", [False, True])
def test_a_representation_keeps_the_size_of_white_covariates(orthogonal):
    networks = [
        LeakyNetwork.drawn(6, 3, orthogonal=orthogonal, slope=0.3, generator=seeded(s))
        for s in range(200)
    ]
    x = normal(50, 6, seed=7)
    sizes = torch.stack([network(x).square().sum(-1).mean() for network in networks])
    assert_means(sizes[:, None], x.square().sum(-1).mean())


def test_a_represented_function_is_linear_in_the_features_alone():
    network = LeakyNetwork.drawn(3, 2, outputs=5, generator=seeded(), orthogonal=True, slope=0.5)
    function = RepresentedFunctions(network).draw(2, generator=seeded(3))
    a = torch.randn(2, 5, generator=seeded(3), dtype=DOUBLE)
    x = normal(2, 4, 3)
    by_hand = x
    for w in network.weights:
        v = by_hand @ w.T
        by_hand = torch.where(v > 0, v, network.slope * v)
    torch.testing.assert_close(function(x), torch.einsum("bk,bnk->bn", a, by_hand))


def test_the_spectrum_of_a_linear_network_is_that_of_its_matrix():
    """With slope 1 nothing is bent: E phi phi^T = W W^T."""
    network = LeakyNetwork.drawn(4, 1, slope=1.0, generator=seeded())
    exact = torch.linalg.svdvals(network.weights[0]) ** 2
    estimated = network.spectrum(samples=200_000, generator=seeded(1))
    torch.testing.assert_close(estimated, exact, rtol=0.03, atol=0.01)


def test_random_weights_lose_directions_that_orthogonal_ones_keep():
    """What Gao et al. leave unstated decides how many dimensions their regression has."""

    def condition(orthogonal, slope):
        """The smallest eigenvalue over the largest, the median of nine networks."""
        networks = [
            LeakyNetwork.drawn(3, 3, orthogonal=orthogonal, slope=slope, generator=seeded(s))
            for s in range(9)
        ]
        spectra = [n.spectrum(samples=20_000, generator=seeded(1)) for n in networks]
        return torch.stack([e[-1] / e[0] for e in spectra]).median()

    assert condition(False, 0.1) < 0.02
    assert condition(True, 0.5) > 0.2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PooledLinearFunctions(torch.zeros(0, 3)), "pool must have shape"),
        (lambda: ReluNetworkFunctions(3, 0), "hidden must be a whole number of at least 1, got 0"),
        (lambda: TreeFunctions(3, 40), "depth must be at most 16, got 40"),
        (lambda: LeakyNetwork(()), "weights must hold at least one matrix"),
        (lambda: LeakyNetwork((torch.eye(2),), slope=0.0), "slope must be above 0"),
        (lambda: LeakyNetwork((torch.eye(2), torch.eye(3))), "fit onto each other"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
