from fractions import Fraction
from math import comb

import pytest
import torch

from innerloop.theory.linear import (
    context_losses,
    expanding_probability,
    gap_constant,
    layered_risk,
    loop_risks,
    looped_optimum,
    lower_bound,
    ray_risk,
    sample_eigenvalues,
    sampled_looped_optimum,
    tied_risk,
)
from innerloop.theory.wishart import (
    TooLargeError,
    residual_eigenvalues,
    sample_wishart,
    trace_moment,
)
from tests.samples import DOUBLE, assert_means, covariance, normal, seeded
from tests.theory.gaussian_quadrature import wishart_factors

D, N = 2, 7
SIGMA, OMEGA = covariance(D, seed=1), covariance(D, seed=2)
SHIFT = normal(D, seed=3)
IDENTITY = torch.eye(D, dtype=DOUBLE)


def dense(seed=4):
    return 0.5 * torch.linalg.inv(SIGMA) + 0.2 * normal(D, D, seed=seed)


def symmetric(seed=4):
    matrix = dense(seed)
    return (matrix + matrix.mT) / 2


def descent_risk(a, prior, shift, loops):
    """The risk by quadrature over contexts of w <- w + A S (w* + u - w), step by step."""
    factors, weights = wishart_factors(N, D, 2 * loops)
    root = torch.linalg.cholesky(SIGMA) @ factors / N**0.5
    s, total = root @ root.mT, 0.0
    starts = [*torch.linalg.cholesky(prior).mT, torch.zeros(D, dtype=DOUBLE)]
    for w_star in starts:
        u = shift if w_star.abs().sum() == 0 else torch.zeros_like(shift)
        w = torch.zeros(len(s), D, dtype=DOUBLE)
        for _ in range(loops):
            w = w + torch.einsum("ij,bjk,bk->bi", a, s, w_star + u - w)
        error = w_star - w
        total += (weights * torch.einsum("bi,ij,bj->b", error, SIGMA, error)).sum().item()
    return total


@pytest.mark.parametrize("loops", [1, 2, 3])
@pytest.mark.parametrize("prior", [OMEGA, torch.linalg.inv(SIGMA)], ids=["any", "inverse"])
def test_tied_risk_is_that_of_descent_on_shifted_labels(loops, prior):
    prior = (prior + prior.mT) / 2
    value = tied_risk(dense(), SIGMA, N, prior, loops=loops, shift=SHIFT).item()
    assert value == pytest.approx(descent_risk(dense(), prior, SHIFT, loops), rel=1e-11)


def test_tied_risk_matches_sampled_contexts():
    wishart = sample_wishart(100_000, N, D, generator=seeded(5))
    root = torch.linalg.cholesky(SIGMA)
    s = root @ wishart @ root.mT / N
    j = torch.linalg.matrix_power(IDENTITY - dense() @ s, 2)
    risk = torch.einsum("bij,jk,blk,li->b", j, OMEGA, j, SIGMA)
    moved = torch.einsum("bij,j->bi", IDENTITY - j, SHIFT)
    risk = risk + torch.einsum("bi,ij,bj->b", moved, SIGMA, moved)
    assert_means(risk, tied_risk(dense(), SIGMA, N, OMEGA, loops=2, shift=SHIFT).item())


def test_without_shift_tied_risk_is_that_of_repeated_layers():
    repeated = layered_risk(dense().expand(3, D, D), SIGMA, N, OMEGA).item()
    assert tied_risk(dense(), SIGMA, N, OMEGA, loops=3).item() == pytest.approx(repeated, rel=1e-11)


def test_the_best_shift_is_none():
    shift = SHIFT.clone().requires_grad_()

    def risk(u):
        return tied_risk(symmetric(), SIGMA, N, OMEGA, loops=2, shift=u)

    hessian = torch.autograd.functional.hessian(risk, torch.zeros(D, dtype=DOUBLE))
    assert torch.linalg.eigvalsh(hessian)[0] > 0
    (gradient,) = torch.autograd.grad(risk(0 * shift), shift)
    assert gradient.abs().max() < 1e-12


def test_promising_symmetry_changes_nothing():
    plain, promised = (
        tied_risk(symmetric(), SIGMA, N, OMEGA, loops=3, symmetric=s).item() for s in (False, True)
    )
    assert plain == pytest.approx(promised, rel=1e-11)


@pytest.mark.parametrize("loops", [1, 2, 3])
def test_the_lower_bound_is_a_sum_of_residual_moments(loops):
    half = torch.linalg.cholesky(SIGMA)
    spectrum = torch.linalg.eigvalsh(half.mT @ symmetric() @ half)
    exact = sum(residual_eigenvalues([Fraction(v) for v in spectrum.tolist()], N, 2 * loops))
    value = lower_bound(symmetric(), SIGMA, N, loops=loops).item()
    assert value == pytest.approx(float(exact), rel=1e-11)


@pytest.mark.parametrize("loops", [1, 2, 3])
def test_the_lower_bound_is_below_the_loss_and_meets_it_on_the_ray(loops):
    inverse = torch.linalg.inv(SIGMA)
    inverse = (inverse + inverse.mT) / 2
    for seed in range(5):
        a = symmetric(seed)
        loss = tied_risk(a, SIGMA, N, inverse, loops=loops)
        assert lower_bound(a, SIGMA, N, loops=loops) < loss
    ray = 0.6 * inverse
    steps = torch.full((loops,), 0.6, dtype=DOUBLE)
    for value in (
        lower_bound(ray, SIGMA, N, loops=loops),
        tied_risk(ray, SIGMA, N, inverse, loops=loops),
    ):
        assert value.item() == pytest.approx(ray_risk(steps, N, D).item(), rel=1e-11)


@pytest.mark.parametrize(("loops", "d"), [(1, 5), (2, 5), (3, 5), (5, 5), (2, 1), (4, 3)])
def test_the_gap_constant_is_the_limit_of_the_gap(loops, d):
    n = 10**6
    gap = 1 - looped_optimum(loops, n, d).steps[0].item()
    assert gap * n == pytest.approx(float(gap_constant(loops, d)), rel=1e-4)


def test_gap_constants_by_hand():
    # One loop: a* = n/(n + d + 1). Two in d = 1: moments 2/n, 8/n^2, 12/n^2 of chi^2_n/n - 1.
    assert gap_constant(1, 7) == 8
    assert gap_constant(2, 1) == Fraction(8 + 12, 3 * 2)


def test_one_loop_is_the_known_preconditioner():
    best = looped_optimum(1, 12, 4)
    assert best.steps.tolist() == pytest.approx([12 / 17], rel=1e-12)
    assert best.risk == pytest.approx(4 * 5 / 17, rel=1e-12)


@pytest.mark.parametrize(("n", "d"), [(20, 5), (3, 5)])
def test_the_optimum_has_no_slope(n, d):
    step = looped_optimum(3, n, d).steps[0].clone().requires_grad_()
    ray_risk(step.expand(3), n, d).backward()
    assert abs(step.grad.item()) < 1e-9


def test_the_sampled_optimum_is_within_its_error():
    exact = looped_optimum(2, 20, 3)
    sampled = sampled_looped_optimum(2, 20, 3, samples=50_000, generator=seeded(6))
    assert abs(sampled.step - exact.steps[0].item()) < 4 * sampled.step_error
    assert abs(sampled.risk - exact.risk) < 4 * sampled.risk_error
    assert 0 < sampled.step_error < 0.01
    assert sampled.effective_samples > 1000


def test_the_errors_of_the_sampled_optimum_are_the_spread_over_seeds():
    runs = [sampled_looped_optimum(2, 20, 3, samples=500, generator=seeded(s)) for s in range(60)]
    steps, errors = (torch.tensor([getattr(r, k) for r in runs]) for k in ("step", "step_error"))
    # The standard deviation of 60 values is known to a tenth; a factor of 1.5 is four of these.
    assert 1 / 1.5 < steps.std() / errors.mean() < 1.5


def test_the_mean_of_many_loops_is_carried_by_few_contexts():
    few, many = (
        sampled_looped_optimum(L, 12, 10, samples=5000, generator=seeded(7)) for L in (1, 40)
    )
    assert many.effective_samples < few.effective_samples / 4


@pytest.mark.parametrize(("n", "d", "loops"), [(20, 5, 10), (4, 6, 5)])
def test_loop_risks_are_sums_of_exact_moments(n, d, loops):
    step = Fraction(3, 5)
    risks = loop_risks(0.6, loops, n, d)
    assert len(risks) == loops + 1
    for count, risk in enumerate(risks.tolist()):
        exact = sum(
            comb(2 * count, k) * (-step) ** k * Fraction(trace_moment(k, n, d), n**k)
            for k in range(2 * count + 1)
        )
        assert risk == pytest.approx(float(exact), rel=1e-10)


def test_the_mean_falls_and_then_grows_without_bound():
    step = looped_optimum(2, 20, 10).steps[0].item()
    risks = loop_risks(step, 18, 20, 10)
    assert 0 < int(risks.argmin()) < 18
    assert risks[18] > 1e6 * risks.min()


def test_context_losses_average_to_the_loop_risks():
    eigenvalues = sample_eigenvalues(50_000, 20, 3, generator=seeded(8))
    losses = context_losses(0.5, 3, eigenvalues)
    assert losses.shape == (50_000, 4)
    assert (losses[:, 0] == 3).all()
    assert_means(losses[:, 1:], loop_risks(0.5, 3, 20, 3)[1:])


def test_eigenvalues_are_those_of_sample_covariances():
    eigenvalues = sample_eigenvalues(20_000, 8, 3, generator=seeded(9))
    assert (eigenvalues.diff(dim=1) >= 0).all()
    assert_means(eigenvalues.sum(1), 3.0)
    assert_means(eigenvalues.square().sum(1), 3 * (8 + 3 + 1) / 8)


@pytest.mark.parametrize(("step", "n", "d"), [(0.63, 20, 10), (1.2, 30, 4), (0.3, 4, 6)])
def test_contexts_on_which_the_loop_expands_are_as_frequent_as_stated(step, n, d):
    eigenvalues = sample_eigenvalues(40_000, n, d, generator=seeded(10))
    # With n < d there are eigenvalues of 0, which rounding may take below it.
    expands = (1 - step * eigenvalues).abs().amax(1) > 1 + 1e-9
    assert_means(expands.double(), expanding_probability(step, n, d))


def test_a_step_of_zero_never_expands_and_a_negative_one_always():
    assert expanding_probability(0.0, 20, 5) == 0
    assert expanding_probability(-0.1, 20, 5) == 1


@pytest.mark.parametrize(
    "call", [lambda L: looped_optimum(L, 20, 5), lambda L: loop_risks(0.5, L, 20, 5)]
)
def test_impossible_numbers_of_loops_are_refused(call):
    with pytest.raises(ValueError, match="loops must be at least 1, got 0"):
        call(0)
    with pytest.raises(TooLargeError, match="exact moments for 61 loops are too large"):
        call(61)


@pytest.mark.parametrize(
    "call",
    [
        lambda: sampled_looped_optimum(0, 20, 3, samples=10, generator=seeded()),
        lambda: tied_risk(symmetric(), SIGMA, N, loops=0),
        lambda: lower_bound(symmetric(), SIGMA, N, loops=0),
        lambda: gap_constant(0, 5),
    ],
)
def test_no_loops_are_refused(call):
    with pytest.raises(ValueError, match="loops must be at least 1, got 0"):
        call()


def test_other_impossible_requests_are_refused():
    with pytest.raises(ValueError, match="step must be a finite number, got nan"):
        expanding_probability(float("nan"), 20, 3)
    with pytest.raises(ValueError, match="samples must be at least 2"):
        sampled_looped_optimum(2, 20, 3, samples=1, generator=seeded())
    with pytest.raises(TooLargeError, match=r"10 is the largest power"):
        lower_bound(symmetric(), SIGMA, N, loops=6)
    with pytest.raises(TooLargeError, match="too large to expand"):
        tied_risk(symmetric(), SIGMA, N, loops=6)
