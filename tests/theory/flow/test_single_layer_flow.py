import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from innerloop.models.conventions import ZHANG
from innerloop.prompt import Prompt
from innerloop.theory.flow import (
    SingleLayerFlow,
    balanced_direction,
    gradient_flow,
    whole_layer_loss,
)
from innerloop.theory.linear import CovarianceLaw, one_step_preconditioner, single_layer_risk
from tests.samples import DOUBLE, assert_means, covariance, normal, rotation, seeded

N = 5
COVARIANCES = torch.stack([covariance(3, 1), covariance(3, 2, 0.2, 2.0), covariance(3, 3)])
PROBABILITIES = torch.tensor([0.5, 0.3, 0.2], dtype=DOUBLE)
MIXED = SingleLayerFlow(CovarianceLaw.mixture(COVARIANCES, PROBABILITIES), N)
FIXED = SingleLayerFlow(CovarianceLaw.fixed(COVARIANCES[0]), N)
RANDOM = SingleLayerFlow(CovarianceLaw.exponential(torch.tensor([1.0, 0.5], dtype=DOUBLE)), N)
MODELS = [FIXED, MIXED, RANDOM]


def weights(d, seed=0):
    return normal(d, d, seed=seed), normal(1, seed=seed + 100)[0]


def half_risk(u, v):
    """Half the exact risk of (U, v) with p = r = 0, averaged over the mixture."""
    d = len(u)
    b = torch.cat([torch.zeros(d, dtype=DOUBLE), v.view(1)])
    a = torch.cat([u, torch.zeros(1, d, dtype=DOUBLE)])
    risks = [single_layer_risk(b, a, c, N, masked=False) for c in COVARIANCES]
    return PROBABILITIES @ torch.stack(risks) / 2


def test_loss_is_half_the_exact_risk_up_to_a_constant():
    for seed in range(5):
        u, v = weights(3, seed)
        constant = MIXED.law.mean.trace() / 2
        torch.testing.assert_close(MIXED.loss(u, v) + constant, half_risk(u, v))


@pytest.mark.parametrize("model", MODELS)
def test_gradient_is_that_of_autograd(model):
    u, v = weights(model.law.d)
    u.requires_grad_(), v.requires_grad_()
    for function in (model.loss, model.excess):
        expected = torch.autograd.grad(function(u, v), (u, v))
        torch.testing.assert_close(model.gradient(u.detach(), v.detach()), expected)


@pytest.mark.parametrize("model", MODELS)
def test_excess_is_the_loss_above_its_minimum(model):
    u, v = weights(model.law.d)
    torch.testing.assert_close(model.excess(u, v), model.loss(u, v) - model.minimum)
    assert model.excess(*model.limit()) < 1e-24


def test_sampled_prompts_have_the_stated_gradient_in_all_weights():
    """The prediction of the paper's own layer, differentiated prompt by prompt."""
    model, samples, d = RANDOM, 60_000, 2
    source = seeded(0)
    uniform = torch.rand(samples, d, generator=source, dtype=DOUBLE)
    spread = (-torch.tensor([1.0, 0.5], dtype=DOUBLE) * torch.log1p(-uniform)).sqrt()
    x = torch.randn(samples, N + 1, d, generator=source, dtype=DOUBLE) * spread[:, None]
    w = torch.randn(samples, d, generator=source, dtype=DOUBLE)
    y = torch.einsum("bnd,bd->bn", x, w)
    prompt = Prompt(x[:, :-1], y[:, :-1], x[:, -1:], y[:, -1:])
    u, v = 0.3 * normal(d, d, seed=3), torch.tensor(0.6, dtype=DOUBLE)
    # One copy of the weights for each prompt, so that each has its own gradient.
    pv = torch.zeros(d + 1, d + 1, dtype=DOUBLE)
    kq = torch.zeros(d + 1, d + 1, dtype=DOUBLE)
    pv[d, d], kq[:d, :d] = v, u
    copies = [m.expand(samples, d + 1, d + 1).clone().requires_grad_() for m in (pv, kq)]
    error = ZHANG.predict(copies[0].unsqueeze(0), copies[1].unsqueeze(0), prompt) - prompt.y_query
    for_pv, for_kq = torch.autograd.grad(error.square().sum() / 2, copies)
    u_gradient, v_gradient = model.gradient(u, v)
    assert_means(for_kq[:, :d, :d], u_gradient)
    assert_means(for_pv[:, d, d], v_gradient)
    assert_means(for_pv[:, d, :d], torch.zeros(d))
    assert_means(for_kq[:, d, :d], torch.zeros(d))


def test_product_at_the_minimum_in_the_three_closed_forms():
    expected = one_step_preconditioner(COVARIANCES[0], N)
    torch.testing.assert_close(FIXED.product, expected)
    # Exp(1), d = 3, n = 8: gamma = 9/8 6 + (6 + 2 + 2)/8 = 8 and xi = 2.
    exponential = SingleLayerFlow(CovarianceLaw.exponential(torch.ones(3, dtype=DOUBLE)), 8)
    torch.testing.assert_close(exponential.product, torch.eye(3, dtype=DOUBLE) / 4)
    # Columns one below the other, as in the paper.
    gammas = [(1 + 1 / N) * c + c.trace() / N * torch.eye(3, dtype=DOUBLE) for c in COVARIANCES]
    operator = sum(
        p * torch.kron(c, g @ c) for p, c, g in zip(PROBABILITIES, COVARIANCES, gammas, strict=True)
    )
    columns = torch.linalg.solve(operator, MIXED.law.square.mT.flatten())
    torch.testing.assert_close(MIXED.product, columns.view(3, 3).mT)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("imbalance", [0.0, 0.4, -0.4])
def test_the_limit_is_a_minimum_with_the_imbalance_of_the_start(model, imbalance):
    u, v = model.limit(imbalance)
    assert max(g.abs().max() for g in model.gradient(u, v)) < 1e-12
    assert (v**2 - u.square().sum()).item() == pytest.approx(imbalance, abs=1e-12)


@pytest.mark.parametrize("model", MODELS)
def test_the_flow_ends_at_the_limit_of_its_start(model):
    direction = balanced_direction(model.law.d, seeded(4))
    sigma = 0.6 * model.largest_scale(direction)
    u, v = model.start(direction, sigma)
    for start in ((u, v), (1.5 * u, v)):
        flow = model.flow(*start)
        imbalance = float(start[1] ** 2 - start[0].square().sum())
        assert flow.converged
        for found, stated in zip(model.unpacked(flow.end), model.limit(imbalance), strict=True):
            torch.testing.assert_close(found, stated, rtol=0, atol=1e-7)


@pytest.mark.parametrize("model", MODELS)
def test_the_flow_follows_the_gradient_of_its_loss(model):
    u, v = weights(model.law.d)
    flow = model.flow(u, v)
    expected = torch.stack([g.square().sum() for g in model.gradient(u, v)]).sum()
    now = torch.zeros(1, dtype=DOUBLE)
    torch.testing.assert_close(flow.squared_gradients(now)[0], expected)
    automatic = gradient_flow(flow.loss, flow.path[0])
    torch.testing.assert_close(automatic.end, flow.end, rtol=0, atol=1e-7)


@pytest.mark.parametrize("model", MODELS)
def test_the_papers_bounds_lie_below_the_flow(model):
    direction = balanced_direction(model.law.d, seeded(5))
    for fraction in (0.2, 0.9):
        sigma = fraction * model.largest_scale(direction)
        flow = model.flow(*model.start(direction, sigma))
        assert flow.path[:, 0].min() >= model.smallest_v(direction, sigma) > 0
        assert flow.pl_ratios(0.0).min() >= model.pl_constant(direction, sigma) > 0


def test_bounds_by_hand_in_one_dimension():
    """Lambda = 2, n = 4: Gamma = 3; sigma^2 < 2/3, and at sigma = 1/2 the bracket is 2 - 3/4."""
    model = SingleLayerFlow(CovarianceLaw.fixed(torch.full((1, 1), 2.0, dtype=DOUBLE)), 4)
    one = torch.ones(1, 1, dtype=DOUBLE)
    assert model.largest_scale(one) == pytest.approx((2 / 3) ** 0.5)
    assert model.smallest_v(one, 0.5) == pytest.approx((0.25 / 8 * 4 * 1.25) ** 0.5)
    assert model.pl_constant(one, 0.5) == pytest.approx(0.25 * 4 * 1.25 / (4 * (1 / 6) * (1 / 2)))


def test_the_constant_for_random_covariances_by_hand():
    """Exp(1), d = 1, n = 1: Gamma = 3 l, gamma = 18; E |Gamma| l^2 = 18; sigma^2 < 2/18."""
    model = SingleLayerFlow(CovarianceLaw.exponential(torch.ones(1, dtype=DOUBLE)), 1)
    one = torch.ones(1, 1, dtype=DOUBLE)
    assert model.largest_scale(one) == pytest.approx(1 / 3)
    assert model.smallest_v(one, 0.2) == pytest.approx((0.04 / 4 * (2 - 0.04 * 18)) ** 0.5)
    assert model.pl_constant(one, 0.2) == pytest.approx(18 * 0.04 / 4 * (2 - 0.04 * 18))


@given(seed=st.integers(0, 10_000))
def test_rotated_covariances_have_rotated_minima_and_the_same_bounds(seed):
    q = rotation(3, seed)
    turned = SingleLayerFlow(CovarianceLaw.mixture(q @ COVARIANCES @ q.mT, PROBABILITIES), N)
    torch.testing.assert_close(turned.product, q @ MIXED.product @ q.mT)
    assert turned.minimum == pytest.approx(MIXED.minimum)
    direction = balanced_direction(3, seeded(seed))
    sigma = 0.5 * MIXED.largest_scale(direction)
    assert turned.pl_constant(q @ direction @ q.mT, sigma) == pytest.approx(
        MIXED.pl_constant(direction, sigma)
    )


def test_the_whole_loss_is_half_the_exact_risk_of_any_weights():
    loss = whole_layer_loss(COVARIANCES, PROBABILITIES, N)
    for seed in range(3):
        theta = normal(16, seed=seed)
        risks = [
            single_layer_risk(theta[:4], theta[4:].view(4, 3), c, N, masked=False)
            for c in COVARIANCES
        ]
        torch.testing.assert_close(loss(theta), PROBABILITIES @ torch.stack(risks) / 2)


def test_the_flow_of_all_weights_is_the_flow_of_two_blocks_when_the_others_start_at_zero():
    direction = balanced_direction(3, seeded(6))
    u, v = MIXED.start(direction, 0.5 * MIXED.largest_scale(direction))
    side = torch.zeros(3, dtype=DOUBLE)
    whole = gradient_flow(
        whole_layer_loss(COVARIANCES, PROBABILITIES, N),
        torch.cat([side, v.view(1), u.flatten(), side]),
    )
    times = torch.tensor([0.5, 3.0, 20.0], dtype=DOUBLE)
    theta = whole.at(times)
    assert theta[:, :3].abs().max() == 0
    assert theta[:, -3:].abs().max() == 0
    torch.testing.assert_close(theta[:, 3:-3], MIXED.flow(u, v).at(times), rtol=0, atol=1e-8)


def test_directions_are_semi_definite_of_norm_one_and_others_are_refused():
    direction = balanced_direction(4, seeded(7))
    assert direction.norm().item() == pytest.approx(1)
    assert torch.linalg.eigvalsh(direction)[0] >= 0
    with pytest.raises(ValueError, match="Frobenius norm 1, got 2"):
        MIXED.start(2 * balanced_direction(3, seeded(7)), 0.1)


def test_scales_beyond_the_bound_and_laws_without_peak_are_refused():
    direction = balanced_direction(3, seeded(7))
    with pytest.raises(ValueError, match="scale must lie between 0 and"):
        MIXED.pl_constant(direction, 100.0)
    ones = torch.ones(3, dtype=DOUBLE)
    law = CovarianceLaw.independent_diagonal(ones, 2 * ones, 6 * ones)
    with pytest.raises(ValueError, match="give the law its `peak`"):
        SingleLayerFlow(law, N).largest_scale(direction)


@pytest.mark.parametrize("n", [-5, 0, float("nan")])
def test_flows_of_impossible_lengths_are_refused_by_name(n):
    with pytest.raises(ValueError, match=f"n must be at least 1 example, or math.inf, got {n}"):
        SingleLayerFlow(FIXED.law, n)


@pytest.mark.parametrize("n", [-5, 0])
def test_losses_of_impossible_lengths_are_refused_by_name(n):
    with pytest.raises(ValueError, match=f"n must be at least 1, got {n}"):
        whole_layer_loss(COVARIANCES, PROBABILITIES, n)
