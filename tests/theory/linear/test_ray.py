from fractions import Fraction
from functools import cache
from itertools import permutations
from math import comb

import pytest
import torch

from innerloop.tasks import LinearRegression
from innerloop.theory.linear import (
    layered_risk,
    looped_optimum,
    ray_error,
    ray_risk,
    ray_spectrum,
    transformed_optimum,
    untied_optimum,
)
from innerloop.theory.wishart import expected_power_sums, sample_wishart
from tests.samples import DOUBLE, assert_means, covariance, normal, seeded

# d, n, layers, the best single step, its risk when looped, the least risk of different steps.
REFERENCE = [
    (5, 5, 1, 0.454545, 2.727273e00, 2.727273e00),
    (5, 5, 2, 0.415190, 2.184805e00, 1.993742e00),
    (5, 5, 3, 0.379857, 1.927684e00, 1.620296e00),
    (5, 5, 5, 0.322643, 1.672594e00, 1.234939e00),
    (5, 5, 10, 0.233144, 1.434430e00, 8.528435e-01),
    (5, 10, 1, 0.625000, 1.875000e00, 1.875000e00),
    (5, 10, 2, 0.589073, 1.180593e00, 9.709710e-01),
    (5, 10, 3, 0.554476, 8.707837e-01, 5.793670e-01),
    (5, 10, 5, 0.492629, 5.847850e-01, 2.552178e-01),
    (5, 10, 10, 0.381207, 3.483576e-01, 6.146290e-02),
    (5, 20, 1, 0.769231, 1.153846e00, 1.153846e00),
    (5, 20, 2, 0.742518, 4.990074e-01, 3.612397e-01),
    (5, 20, 3, 0.715587, 2.683422e-01, 1.336084e-01),
    (5, 20, 5, 0.663203, 1.078970e-01, 2.478130e-02),
    (5, 20, 10, 0.554021, 2.692459e-02, 1.150362e-03),
    (5, 50, 1, 0.892857, 5.357143e-01, 5.357143e-01),
    (5, 50, 2, 0.878607, 1.179364e-01, 7.441747e-02),
    (5, 50, 3, 0.863752, 3.413263e-02, 1.258333e-02),
    (5, 50, 5, 0.832676, 4.518987e-03, 5.592995e-04),
    (5, 50, 10, 0.757292, 1.230415e-04, 1.243491e-06),
    (5, 100, 1, 0.943396, 2.830189e-01, 2.830189e-01),
    (5, 100, 2, 0.935465, 3.416115e-02, 2.024213e-02),
    (5, 100, 3, 0.927092, 5.551507e-03, 1.793052e-03),
    (5, 100, 5, 0.909046, 2.460277e-04, 2.346013e-05),
    (5, 100, 10, 0.862019, 5.921603e-07, 3.099794e-09),
    (10, 5, 1, 0.312500, 6.875000e00, 6.875000e00),
    (10, 5, 2, 0.294536, 6.180593e00, 5.970971e00),
    (10, 5, 3, 0.277238, 5.870784e00, 5.579367e00),
    (10, 5, 5, 0.246315, 5.584785e00, 5.255218e00),
    (10, 5, 10, 0.190604, 5.348358e00, 5.061463e00),
    (10, 10, 1, 0.476190, 5.238095e00, 5.238095e00),
    (10, 10, 2, 0.456780, 4.066152e00, 3.673443e00),
    (10, 10, 3, 0.437731, 3.494850e00, 2.902184e00),
    (10, 10, 5, 0.401112, 2.912798e00, 2.120123e00),
    (10, 10, 10, 0.326261, 2.353008e00, 1.381963e00),
    (10, 20, 1, 0.645161, 3.548387e00, 3.548387e00),
    (10, 20, 2, 0.628077, 2.105277e00, 1.684494e00),
    (10, 20, 3, 0.611251, 1.458677e00, 9.128327e-01),
    (10, 20, 5, 0.577214, 8.656807e-01, 3.267558e-01),
    (10, 20, 10, 0.498126, 3.975285e-01, 4.590078e-02),
    (10, 50, 1, 0.819672, 1.803279e00, 1.803279e00),
    (10, 50, 2, 0.808920, 6.112732e-01, 4.075908e-01),
    (10, 50, 3, 0.798324, 2.562379e-01, 1.038488e-01),
    (10, 50, 5, 0.776090, 6.207574e-02, 8.774046e-03),
    (10, 50, 10, 0.717268, 4.655069e-03, 5.760026e-05),
    (10, 100, 1, 0.900901, 9.909910e-01, 9.909910e-01),
    (10, 100, 2, 0.894458, 1.945127e-01, 1.171212e-01),
    (10, 100, 3, 0.888107, 4.850206e-02, 1.556356e-02),
    (10, 100, 5, 0.874599, 4.388309e-03, 3.804561e-04),
    (10, 100, 10, 0.836662, 3.590482e-05, 1.487864e-07),
]
rows = pytest.mark.parametrize(("d", "n", "layers", "step", "looped", "untied"), REFERENCE)


@cache
def moment(k, n, d):
    """E tr (W/n)^k in integers, by the recursion that the quadrature does not use."""
    return Fraction(expected_power_sums((k,), n, d), n**k)


def looped_risk(a, loops, n, d):
    """E tr (I - a W/n)^2L, expanded and summed in fractions."""
    degree = 2 * loops
    return sum(comb(degree, k) * (-a) ** k * moment(k, n, d) for k in range(degree + 1))


def looped_slope(a, loops, n, d):
    """Its derivative in a."""
    degree = 2 * loops
    return sum(
        comb(degree, k) * -k * (-a) ** (k - 1) * moment(k, n, d) for k in range(1, degree + 1)
    )


def solve(matrix, right):
    """The solution of a linear system in fractions, by elimination."""
    rows = [[*row, b] for row, b in zip(matrix, right, strict=True)]
    size = len(rows)
    for i in range(size):
        pivot = rows[i][i]
        rows[i] = [entry / pivot for entry in rows[i]]
        for j in range(size):
            if j != i:
                factor = rows[j][i]
                rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [row[-1] for row in rows]


def hankel(layers, n, d):
    """Coefficients c_1..c_L of the best p(x) = 1 + sum c_k x^k, and its risk, in fractions."""
    h = [moment(i, n, d) for i in range(1, layers + 1)]
    matrix = [[moment(i + j, n, d) for j in range(1, layers + 1)] for i in range(1, layers + 1)]
    solution = solve(matrix, h)
    return [-c for c in solution], d - sum(a * b for a, b in zip(h, solution, strict=True))


def elementary(steps):
    """Coefficients 0..L of prod (1 - a_l x), in fractions."""
    product = [Fraction(1)]
    for a in steps:
        shifted = [Fraction(0), *product]
        product = [
            c - Fraction(a) * s for c, s in zip([*product, Fraction(0)], shifted, strict=True)
        ]
    return product


@rows
def test_optima_have_their_known_values(d, n, layers, step, looped, untied):
    best = looped_optimum(layers, n, d)
    assert best.steps.shape == (layers,)
    assert best.steps[0].item() == pytest.approx(step, rel=0, abs=5.1e-7)
    assert best.risk == pytest.approx(looped, rel=1e-6)
    assert untied_optimum(layers, n, d).risk == pytest.approx(untied, rel=1e-6)


@rows
def test_the_looped_optimum_is_stationary_and_its_risk_exact(d, n, layers, step, looped, untied):
    best = looped_optimum(layers, n, d)
    a = Fraction(best.steps[0].item())
    assert best.risk == pytest.approx(float(looped_risk(a, layers, n, d)), rel=1e-9)
    little = Fraction(1, 10**9)
    assert looped_slope(a * (1 - little), layers, n, d) < 0
    assert looped_slope(a * (1 + little), layers, n, d) > 0


@rows
def test_the_untied_optimum_solves_the_hankel_system(d, n, layers, step, looped, untied):
    best = untied_optimum(layers, n, d)
    coefficients, risk = hankel(layers, n, d)
    assert best.risk == pytest.approx(float(risk), rel=1e-9)
    # The steps themselves: the risk of prod (1 - a_l x), expanded in fractions.
    p = elementary(best.steps.tolist())
    exact = sum(a * b * moment(i + j, n, d) for i, a in enumerate(p) for j, b in enumerate(p))
    assert float(exact) == pytest.approx(float(risk), rel=1e-9)
    for found, expected in zip(p[1:], coefficients, strict=True):
        assert float(found) == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize(
    ("n", "steps"),
    [
        (20, (0.51537, 1.24957)),
        (20, (0.42241, 0.68913, 1.71422)),
        (10, (0.38689, 1.09959)),
        (10, (0.30031, 0.52869, 1.64433)),
    ],
)
def test_untied_steps_have_their_known_values(n, steps):
    best = untied_optimum(len(steps), n, 5)
    expected = torch.tensor(steps, dtype=DOUBLE)
    torch.testing.assert_close(best.steps, expected, rtol=0, atol=5.1e-6)


@rows
def test_risk_at_the_stated_steps_is_the_stated_risk(d, n, layers, step, looped, untied):
    for best in (looped_optimum(layers, n, d), untied_optimum(layers, n, d)):
        assert ray_risk(best.steps, n, d).item() == pytest.approx(best.risk, rel=1e-9)


@pytest.mark.parametrize(("n", "d"), [(6, 3), (2, 4)])
def test_no_nearby_steps_have_a_lower_risk(n, d):
    best = untied_optimum(3, n, d)
    generator = seeded(1)
    for size in (1e-3, 1e-2, 1e-1):
        change = size * torch.randn(200, 3, generator=generator, dtype=DOUBLE)
        assert (ray_risk(best.steps + change, n, d) >= best.risk * (1 - 1e-12)).all()


def test_the_gradient_vanishes_at_the_optimum():
    for n, d in [(20, 5), (4, 6)]:
        steps = untied_optimum(3, n, d).steps.requires_grad_()
        (gradient,) = torch.autograd.grad(ray_risk(steps, n, d), steps)
        assert gradient.abs().max() < 1e-11


def test_one_layer_by_hand():
    for n, d in [(20, 5), (3, 7)]:
        for best in (looped_optimum(1, n, d), untied_optimum(1, n, d)):
            assert best.steps.item() == pytest.approx(n / (n + d + 1), rel=1e-13)
            assert best.risk == pytest.approx(d * (d + 1) / (n + d + 1), rel=1e-13)


def test_looping_one_step_is_strictly_worse_than_different_steps():
    for layers in (2, 3, 5):
        assert looped_optimum(layers, 20, 5).risk > 1.05 * untied_optimum(layers, 20, 5).risk


def test_the_order_of_the_steps_does_not_matter():
    steps = torch.tensor([0.4, 0.7, 1.6], dtype=DOUBLE)
    risks = torch.stack([ray_risk(steps[list(p)], 20, 5) for p in permutations(range(3))])
    torch.testing.assert_close(risks, risks[0].expand(6), rtol=1e-13, atol=0)


def test_with_transforms_the_order_of_the_steps_matters():
    steps, transforms = (torch.tensor(v, dtype=DOUBLE) for v in ([0.4, 1.2], [0.5, 0.0]))
    risk, swapped = ray_risk(steps, 20, 5, transforms), ray_risk(steps.flip(0), 20, 5, transforms)
    assert abs(swapped / risk - 1) > 1e-2


def test_zero_transforms_change_nothing():
    steps = torch.tensor([0.4, 0.7], dtype=DOUBLE)
    with_zeros = ray_risk(steps, 20, 5, torch.zeros(2, dtype=DOUBLE))
    torch.testing.assert_close(with_zeros, ray_risk(steps, 20, 5), rtol=1e-12, atol=0)


def test_zero_steps_leave_the_whole_label():
    assert ray_risk(torch.zeros(3, dtype=DOUBLE), 20, 5).item() == pytest.approx(5, rel=1e-14)


def test_a_batch_of_steps_is_evaluated_like_a_loop():
    steps, transforms = normal(4, 2, seed=1), normal(4, 2, seed=2)
    risks = ray_risk(steps, 20, 5, transforms)
    for i in range(4):
        one = ray_risk(steps[i], 20, 5, transforms[i])
        torch.testing.assert_close(risks[i], one, rtol=1e-13, atol=0)


@pytest.mark.parametrize("n", [4, 12])
def test_the_ray_is_a_slice_of_the_full_risk(n):
    sigma = covariance(3, seed=5)
    prior = LinearRegression.with_inverse_prior(sigma, n).prior
    steps = torch.tensor([0.4, 0.7, 1.2], dtype=DOUBLE)
    a = steps[:, None, None] * torch.linalg.inv(sigma)
    full = layered_risk(a, sigma, n, prior)
    torch.testing.assert_close(ray_risk(steps, n, 3), full, rtol=1e-10, atol=0)


def test_the_ray_with_transforms_is_a_slice_of_the_full_risk():
    n, sigma = 12, covariance(2, seed=5)
    prior = LinearRegression.with_inverse_prior(sigma, n).prior
    steps, transforms = (torch.tensor(v, dtype=DOUBLE) for v in ([0.5, 1.3], [0.4, 0.9]))
    inverse, identity = torch.linalg.inv(sigma), torch.eye(2, dtype=DOUBLE)
    full = layered_risk(
        steps[:, None, None] * (inverse + inverse.mT) / 2,
        sigma,
        n,
        prior,
        transforms=transforms[:, None, None] * identity,
        symmetric=True,
    )
    torch.testing.assert_close(ray_risk(steps, n, 2, transforms), full, rtol=1e-10, atol=0)


def test_the_risk_is_the_error_averaged_over_sampled_eigenvalues():
    steps, transforms = (torch.tensor(v, dtype=DOUBLE) for v in ([0.3, 0.6], [0.3, 0.0]))
    n, d = 30, 3
    w = sample_wishart(40_000, n, d, generator=seeded(3)) / n
    eigenvalues = torch.linalg.eigvalsh(w)
    for c in (None, transforms):
        errors = ray_error(steps, eigenvalues.flatten(), c).square().view(-1, d).sum(-1)
        assert_means(errors, ray_risk(steps, n, d, c).item())


def test_the_error_follows_its_recursion():
    a, b = [0.3, 0.6, 0.9], [0.5, -0.4, 0.2]
    x = torch.tensor([0.2, 1.0, 1.7], dtype=DOUBLE)
    plain = ray_error(torch.tensor(a, dtype=DOUBLE), x)
    torch.testing.assert_close(plain, (1 - 0.3 * x) * (1 - 0.6 * x) * (1 - 0.9 * x))
    moved = ray_error(torch.tensor(a, dtype=DOUBLE), x, torch.tensor(b, dtype=DOUBLE))
    for value, start in zip(moved.tolist(), x.tolist(), strict=True):
        e, g = 1.0, start
        for step, transform in zip(a, b, strict=True):
            e, g = e * (1 - step * g), g * (1 - step * transform * g) ** 2
        assert value == pytest.approx(e, rel=1e-13)


def test_rescaling_steps_and_eigenvalues_together_changes_nothing():
    steps, transforms = normal(3, seed=1), normal(3, seed=2)
    x = torch.tensor([0.2, 1.0, 1.7], dtype=DOUBLE)
    scaled = ray_error(steps / 4, 4 * x)
    torch.testing.assert_close(scaled, ray_error(steps, x), rtol=1e-12, atol=0)
    scaled = ray_error(steps / 4, 4 * x, transforms)
    torch.testing.assert_close(scaled, ray_error(steps, x, transforms), rtol=1e-12, atol=0)


def test_the_distance_of_the_best_step_from_one_shrinks_like_one_over_n():
    gaps = [1 - looped_optimum(3, n, 5).steps[0].item() for n in (1000, 2000, 4000)]
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.02)
    assert gaps[1] / gaps[2] == pytest.approx(2, rel=0.01)
    assert 4000 * gaps[2] == pytest.approx(7.84, rel=0.01)


def test_the_search_with_transforms_finds_the_known_risk():
    best = transformed_optimum(3, 10, 5, starts=60, generator=seeded(1))
    assert best.risk == pytest.approx(0.0392593, abs=5e-8)
    assert best.hits >= 1
    expected = torch.tensor([0.539, 1.570, 11.78], dtype=DOUBLE)
    torch.testing.assert_close(best.steps, expected, rtol=1e-3, atol=0)
    expected = torch.tensor([0.297, 0.948, 0.0], dtype=DOUBLE)
    torch.testing.assert_close(best.transforms.abs(), expected, rtol=2e-3, atol=0)
    again = ray_risk(best.steps, 10, 5, best.transforms).item()
    assert again == pytest.approx(best.risk, rel=1e-10)


def test_transforms_lower_the_risk():
    best = transformed_optimum(2, 20, 5, starts=30, generator=seeded(1))
    assert best.risk < 0.9 * untied_optimum(2, 20, 5).risk


def test_the_search_with_transforms_of_one_layer_is_the_plain_optimum():
    best, plain = (
        transformed_optimum(1, 20, 5, starts=5, generator=seeded(1)),
        untied_optimum(1, 20, 5),
    )
    assert best.risk == pytest.approx(plain.risk, rel=1e-10)
    torch.testing.assert_close(best.steps, plain.steps, rtol=1e-6, atol=0)


def test_the_spectrum_has_as_many_nodes_as_the_degree_needs():
    assert len(ray_spectrum(3, 20, 5).nodes) == 4
    assert len(ray_spectrum(3, 20, 5, transformed=True).nodes) == 14


@pytest.mark.parametrize("optimum", [looped_optimum, untied_optimum])
def test_no_layers_are_refused(optimum):
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        optimum(0, 20, 5)
