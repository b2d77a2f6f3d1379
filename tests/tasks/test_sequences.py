"""Tasks that sample token sequences: autoregression and chains of thought."""

import pytest
import torch
from torch.nn.functional import leaky_relu

from innerloop.tasks import Autoregression, ChainOfThought, LeakyNetwork
from tests.samples import DOUBLE, assert_means, seeded

Q, D = 2, 3
NETWORK = LeakyNetwork.drawn(Q * D, 2, outputs=D, generator=seeded(), orthogonal=True, slope=0.5)


def test_a_trajectory_follows_one_rotation():
    """A^T A = I: from d independent steps the rotation is found, and explains all the others."""
    task = Autoregression(NETWORK, 9)
    batch = task.sample(4, generator=seeded(1))
    path = torch.cat([batch.tokens, batch.targets[:, -1:]], dim=1)
    windows = torch.stack([path[:, t : t + Q] for t in range(9)], dim=1)
    phi = task.features(windows)
    a = torch.linalg.lstsq(phi[:, :D], batch.targets[:, :D]).solution  # phi A^T = next
    torch.testing.assert_close(phi @ a, batch.targets, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(a @ a.mT, torch.eye(D, dtype=DOUBLE).expand(4, D, D))


def test_a_trajectory_stays_bounded_however_long_it_is():
    batch = Autoregression(NETWORK, 300).sample(5, generator=seeded())
    norms = batch.targets.norm(dim=-1)
    torch.testing.assert_close(norms, torch.full_like(norms, D**0.5))


def test_noise_is_what_the_system_does_next():
    task = Autoregression(NETWORK, 1, noise_std=0.5)
    batch = task.sample(20_000, generator=seeded())
    assert_means(batch.targets.square().sum(-1), D + 0.25 * D)


def test_the_successor_of_a_token_is_asked_for():
    batch = Autoregression(NETWORK, 5).sample(2, generator=seeded())
    assert batch.tokens.shape == (2, Q + 4, D)
    assert batch.readout.tolist() == [1, 2, 3, 4, 5]
    assert torch.equal(batch.targets[:, :-1], batch.tokens[:, Q:])


def test_each_step_of_a_chain_is_one_layer_of_one_network():
    task = ChainOfThought(D, 12, layers=2, slope=0.1)
    batch = task.sample(3, generator=seeded())
    assert batch.tokens.shape == (3, 13 * 3 - 1, D)
    for layer in range(2):
        before = batch.tokens[:, layer::3]
        after = batch.targets[:, layer::2]
        linear = leaky_relu(after, 10.0)
        w = torch.linalg.lstsq(before[:, :D], linear[:, :D]).solution
        torch.testing.assert_close(before @ w, linear, rtol=1e-6, atol=1e-8)


def test_chains_keep_their_size_and_every_prompt_has_another_network():
    task = ChainOfThought(4, 1, layers=5)
    batch = task.sample(20_000, generator=seeded())
    assert_means(batch.targets[:, 4].square().sum(-1), 4.0)
    assert not torch.allclose(batch.targets[0], batch.targets[1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Autoregression(LeakyNetwork((torch.eye(5)[:3],)), 4), "q points of d = 3"),
        (lambda: Autoregression(NETWORK, 0), "n must be a whole number of at least 1, got 0"),
        (lambda: Autoregression(NETWORK, 2, -1.0), "noise_std must be finite"),
        (lambda: ChainOfThought(2, 2, 0), "layers must be a whole number of at least 1, got 0"),
        (lambda: ChainOfThought(2, 2, slope=2.0), "slope must be above 0 and at most 1, got 2.0"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
