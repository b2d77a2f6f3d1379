"""Muon beside Adam: against torch's own of each, and exact resume."""

import pytest
import torch
from torch import nn

from innerloop.training import MuonAdam
from innerloop.training.muon import orthogonal
from tests.samples import normal


def made(seed=0):
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3)).double()
    for parameter in model.parameters():
        parameter.data = normal(*parameter.shape, seed=seed + parameter.numel())
    return model


def trained(model, optimizer, steps=5):
    x, y = normal(8, 4, seed=1), normal(8, 3, seed=2)
    for _ in range(steps):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
    return model


def assert_same(one, other, tolerance):
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


def test_without_matrices_it_is_adam():
    ours, theirs = made(), made()
    trained(ours, MuonAdam(ours.parameters(), adam_lr=0.01, matrix=lambda p: False))
    trained(theirs, torch.optim.Adam(theirs.parameters(), lr=0.01))
    assert_same(ours, theirs, 1e-12)


@pytest.mark.parametrize("shape", [(3, 8), (8, 3), (5, 5)])
def test_singular_values_are_brought_to_about_one(shape):
    matrix = normal(*shape)
    values = torch.linalg.svdvals(orthogonal(matrix))
    assert values.min() > 0.6
    assert values.max() < 1.3
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    assert torch.linalg.matrix_norm(orthogonal(matrix) - u @ v, 2) < 0.4


def test_a_step_of_muon_has_the_length_that_its_rate_says():
    model = made()
    before = model[0].weight.detach().clone()
    trained(model, MuonAdam(model.parameters(), lr=0.1), steps=1)
    moved = (before - model[0].weight.detach()) / (0.1 * (6 / 4) ** 0.5)
    values = torch.linalg.svdvals(moved)
    assert values[2] > 0.6  # the gradient has rank 3, that of the labels
    assert values[0] < 1.3


def test_weights_without_gradient_stay():
    model = made()
    optimizer = MuonAdam(model.parameters())
    model[1].requires_grad_(False)
    before = model[1].weight.clone()
    trained(model, optimizer)
    assert torch.equal(model[1].weight, before)


def test_its_state_is_all_there_is_to_resume():
    whole, stopped = made(), made()
    trained(whole, MuonAdam(whole.parameters()), 6)
    first = MuonAdam(stopped.parameters())
    trained(stopped, first, 2)
    again = made(seed=9)
    again.load_state_dict(stopped.state_dict())
    second = MuonAdam(again.parameters())
    second.load_state_dict(first.state_dict())
    trained(again, second, 4)
    assert_same(whole, again, 0.0)
