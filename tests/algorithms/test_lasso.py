from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from innerloop.algorithms import Lasso, LeastSquares
from innerloop.prompt import Prompt
from tests.samples import DOUBLE, normal, random_prompt, rotation, shared_prompt, written_out

EXACT = {"tolerance": 1e-14, "most_steps": 100_000}


def orthogonal(n, d, seed=0):
    """Covariates with (1/n) sum_i x_i x_i^T = I."""
    x = n**0.5 * rotation(n, seed)[:, :d].unsqueeze(0)
    return Prompt(x, normal(4, n, seed=seed + 1), normal(4, 1, d), torch.zeros(4, 1, dtype=DOUBLE))


def objective(w, prompt, penalty):
    errors = (prompt.x @ w.unsqueeze(-1)).squeeze(-1) - prompt.y
    return errors.square().mean(1) / 2 + penalty * w.abs().sum(1)


@pytest.mark.parametrize("penalty", [0.05, 0.3, 2.0])
def test_with_orthogonal_covariates_least_squares_is_soft_thresholded(penalty):
    prompt = orthogonal(8, 3)
    _, m = prompt.moments()
    expected = m.sign() * (m.abs() - penalty).clamp_min(0)
    torch.testing.assert_close(Lasso(penalty, **EXACT).weights(prompt), expected)


@given(st.integers(1, 5), st.integers(1, 8), st.floats(1e-2, 1.0), st.integers(0, 10**6))
def test_the_conditions_of_optimality_hold_also_with_fewer_examples_than_dimensions(
    d, n, penalty, seed
):
    prompt = random_prompt(batch=3, n=n, d=d, seed=seed)
    w = Lasso(penalty).weights(prompt)
    s, m = prompt.moments()
    gradient = m - (s @ w.unsqueeze(-1)).squeeze(-1)  # of the fit; penalty times a subgradient
    largest = m.abs().max() + penalty
    assert (gradient.abs() <= penalty + 1e-5 * largest).all()
    active = w.abs() > 1e-4 * w.abs().max()
    torch.testing.assert_close(
        gradient[active], penalty * w.sign()[active], rtol=0, atol=1e-5 * largest.item()
    )


def test_a_general_solver_finds_the_same_minimum():
    prompt, penalty, d = random_prompt(batch=3, n=6, d=4), 0.2, 4
    w = Lasso(penalty, **EXACT).weights(prompt)
    for i in range(3):
        x, y = prompt.x[i].numpy(), prompt.y[i].numpy()

        def split(v, x=x, y=y):  # w = positive part - negative part: smooth, with bounds
            errors = x @ (v[:d] - v[d:]) - y
            gradient = x.T @ errors / len(y)
            value = errors @ errors / (2 * len(y)) + penalty * v.sum()
            return value, np.concatenate([gradient, -gradient]) + penalty

        found = minimize(
            split,
            np.zeros(2 * d),
            jac=True,
            bounds=[(0, None)] * (2 * d),
            method="L-BFGS-B",
            options={"ftol": 1e-15, "gtol": 1e-12},
        )
        assert w[i].numpy() == pytest.approx(found.x[:d] - found.x[d:], abs=1e-6)


def test_no_other_weights_are_better():
    prompt = random_prompt(batch=3, n=6, d=4)
    w = Lasso(0.2, **EXACT).weights(prompt)
    best = objective(w, prompt, 0.2)
    for seed in range(20):
        moved = w + 10.0 ** -(seed % 5) * normal(3, 4, seed=seed)
        assert (objective(moved, prompt, 0.2) >= best).all()


def test_a_small_penalty_tends_to_least_squares():
    prompt = random_prompt(batch=3, n=9, d=3)
    exact = LeastSquares().weights(prompt)
    distances = [
        (Lasso(penalty, **EXACT).weights(prompt) - exact).abs().max().item()
        for penalty in (1e-1, 1e-2, 1e-3, 1e-6)
    ]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 1e-4


def test_a_large_penalty_gives_0_and_the_border_is_the_largest_moment():
    prompt = random_prompt(batch=1, n=6, d=4)
    border = prompt.moments()[1].abs().max().item()
    assert (Lasso(1.001 * border).weights(prompt) == 0).all()
    assert (Lasso(0.999 * border).weights(prompt) != 0).any()


def test_a_prompt_that_takes_long_does_not_change_its_neighbours():
    prompt = random_prompt(batch=3, n=5, d=4)
    hard = torch.cat([prompt.x[:1, :, :1] + 1e-3 * prompt.x[:1], prompt.x[1:]])
    together = Lasso(0.01).weights(replace(prompt, x=hard))
    alone = Lasso(0.01).weights(replace(prompt, x=prompt.x))
    assert torch.equal(together[1:], alone[1:])


def test_shared_covariates_are_read_as_if_every_prompt_had_its_own():
    prompt = shared_prompt(batch=4, n=6, d=3)
    torch.testing.assert_close(
        Lasso(0.1, **EXACT)(prompt), Lasso(0.1, **EXACT)(written_out(prompt))
    )


def test_single_precision_stops_at_its_own_rounding():
    prompt = random_prompt(batch=200, n=4, d=3)
    single = prompt.to(dtype=torch.float32)
    found = Lasso(0.1).weights(single)
    enough = Lasso(0.1, most_steps=2000).weights(single)
    assert torch.equal(found, enough)  # it had stopped before
    best = objective(Lasso(0.1, **EXACT).weights(prompt), prompt, 0.1)
    assert (objective(found.double(), prompt, 0.1) <= best * (1 + 1e-5)).all()


@pytest.mark.parametrize("penalty", [0.0, -1.0, float("inf"), float("nan")])
def test_a_penalty_that_is_none_is_refused(penalty):
    with pytest.raises(ValueError, match=f"penalty must be positive and finite, got {penalty}"):
        Lasso(penalty)
