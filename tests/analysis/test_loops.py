import pytest
import torch

from innerloop.analysis import loop_curve, loop_spectral_radius
from innerloop.models import (
    BlockShape,
    Decoder,
    DenseWeights,
    GradientDescentWeights,
    InContext,
    LinearAttention,
    Looped,
    ShiftedGradientDescentWeights,
)
from innerloop.tasks import LinearRegression
from innerloop.theory.linear import loop_risks
from tests.models.forms import weights
from tests.samples import DOUBLE, normal, random_prompt, seeded

TASK = LinearRegression.isotropic(3, 20)


def identity_steps(step, loops=1):
    a = step * torch.eye(3, dtype=DOUBLE).unsqueeze(0)
    return LinearAttention(GradientDescentWeights(a), loops)


def test_the_radius_is_that_of_the_map_of_the_error():
    prompt = random_prompt(batch=6, n=9, d=4)
    model = LinearAttention(weights(GradientDescentWeights, layers=1), 5)
    s = prompt.x.mT @ prompt.x / prompt.n
    a = model.weights.preconditioners[0].detach()
    expected = torch.linalg.eigvals(torch.eye(4, dtype=DOUBLE) - a @ s).abs().amax(-1)
    torch.testing.assert_close(loop_spectral_radius(model, prompt), expected)


def test_the_radius_of_a_block_of_layers_is_that_of_their_product():
    prompt = random_prompt(batch=6, n=9, d=4)
    model = LinearAttention(weights(GradientDescentWeights, layers=2))
    s = prompt.x.mT @ prompt.x / prompt.n
    first, second = torch.eye(4, dtype=DOUBLE) - model.weights.preconditioners.detach()[:, None] @ s
    expected = torch.linalg.eigvals(second @ first).abs().amax(-1)
    torch.testing.assert_close(loop_spectral_radius(model, prompt), expected)


def test_shifts_do_not_change_the_radius():
    prompt = random_prompt(batch=3, n=9, d=4)
    a = 0.3 * normal(1, 4, 4)
    plain = LinearAttention(GradientDescentWeights(a.clone()))
    shifted = LinearAttention(ShiftedGradientDescentWeights(a.clone(), normal(1, 4, seed=2)))
    torch.testing.assert_close(
        loop_spectral_radius(shifted, prompt), loop_spectral_radius(plain, prompt)
    )


def test_looping_converges_where_the_radius_is_below_one():
    prompt = LinearRegression.isotropic(3, 8).sample(200, generator=seeded(1))
    model = identity_steps(0.8)
    radius = loop_spectral_radius(model, prompt)
    assert 0.05 < (radius > 1).double().mean() < 0.95
    errors = (LinearAttention(model.weights, 4000)(prompt) - prompt.y_query).abs()[:, 0]
    errors = torch.nan_to_num(errors, nan=torch.inf)
    assert (errors[radius < 0.995] < 1e-6).all()
    assert (errors[radius > 1.005] > 1).all()


def test_the_radius_of_dense_weights_is_that_of_the_first_loop_linearised():
    prompt = random_prompt(batch=1, n=9, d=3)
    model = LinearAttention(weights(DenseWeights, d=3, layers=1, scale=0.2))
    (p,), (q,) = (m.detach() for m in model.weights.matrices())
    gram = prompt.gram()[0]

    def correlation(m):
        g = gram.clone()
        g[:3, 3] = g[3, :3] = m
        t = torch.eye(4, dtype=DOUBLE) - p @ g @ q
        return (t @ g @ t.mT)[:3, 3]

    step, m = 1e-6, gram[:3, 3]
    columns = [
        (correlation(m + step * e) - correlation(m - step * e)) / (2 * step)
        for e in torch.eye(3, dtype=DOUBLE)
    ]
    expected = torch.linalg.eigvals(torch.stack(columns, dim=1)).abs().max()
    assert loop_spectral_radius(model, prompt).item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_curve_is_the_exact_mean_after_every_loop():
    curve = loop_curve(identity_steps(0.7), TASK, loops=3, samples=40_000, generator=seeded(2))
    exact = loop_risks(0.7, 3, 20, 3)
    assert [after.loops for after in curve] == [1, 2, 3]
    for after in curve:
        assert abs(after.mean.z(exact[after.loops].item())) < 4
        assert after.mean.samples == 40_000
        assert after.median < after.mean.mean < after.upper


def test_the_curve_uses_the_same_prompts_for_every_number_of_loops():
    prompt = TASK.sample(500, generator=seeded(3))
    model = identity_steps(0.7, loops=7)
    curve = loop_curve(model, TASK, loops=2, samples=500, generator=seeded(3))
    for after in curve:
        errors = (identity_steps(0.7, after.loops)(prompt) - prompt.y_query).square().detach()
        assert after.mean.mean == pytest.approx(errors.mean().item(), rel=1e-12)
        assert after.median == pytest.approx(errors.quantile(0.5).item(), rel=1e-12)
        assert after.upper == pytest.approx(errors.quantile(0.99).item(), rel=1e-12)


def test_the_curve_keeps_the_models_mask():
    model = weights(DenseWeights, d=3, layers=1, scale=0.2)
    with_mask, without = (
        loop_curve(
            LinearAttention(model, masked=m), TASK, loops=1, samples=50, generator=seeded(4)
        )[0].mean.mean
        for m in (True, False)
    )
    assert with_mask != pytest.approx(without, rel=1e-6)


def test_no_loops_are_refused():
    with pytest.raises(ValueError, match="loops must be at least 1, got 0"):
        loop_curve(identity_steps(0.7), TASK, loops=0, samples=10, generator=seeded())


def looped_transformer(**options):
    shape = BlockShape(8, 2)
    return InContext(
        Looped(4, 1, shape, loops=4, length=41, generator=seeded(), dtype=DOUBLE, **options)
    )


@pytest.mark.parametrize("options", [{}, {"before": 1, "after": 1}, {"inject": False}])
def test_the_radius_of_a_looped_transformer_is_that_of_its_jacobian(options):
    model, prompt = looped_transformer(**options), TASK.sample(3, generator=seeded()).prefix(2)
    loop, z = model.model.loop_at_its_end(prompt.interleave())
    exact = []
    for i in range(3):

        def of_one(one, i=i):
            return loop(torch.cat([z[:i], one, z[i + 1 :]]))[i : i + 1]

        jacobian = torch.autograd.functional.jacobian(of_one, z[i : i + 1]).view(z[0].numel(), -1)
        exact.append(torch.linalg.eigvals(jacobian).abs().max())
    radius = loop_spectral_radius(model, prompt)
    torch.testing.assert_close(radius, torch.stack(exact), rtol=0.02, atol=0)


def test_a_looped_transformer_is_looped_longer_on_the_same_prompts():
    model = looped_transformer()
    curve = loop_curve(model, TASK, loops=6, samples=150, generator=seeded(1))
    assert [row.loops for row in curve] == [1, 2, 3, 4, 5, 6]
    source = seeded(1)
    parts = [TASK.sample(size, generator=source) for size in (64, 64, 22)]
    errors = [(model(p, loops=5) - p.y_query).square() for p in parts]
    assert curve[4].mean.mean == pytest.approx(torch.cat(errors).mean().item())


def test_what_has_no_loops_is_refused():
    decoder = Decoder(4, 1, BlockShape(8, 2), layers=1, length=41, generator=seeded(), dtype=DOUBLE)
    prompt = TASK.sample(2, generator=seeded())
    with pytest.raises(ValueError, match="only a looped model has loops, got Decoder"):
        loop_spectral_radius(InContext(decoder), prompt)
    with pytest.raises(ValueError, match="only a looped model can be looped, got Decoder"):
        loop_curve(InContext(decoder), TASK, loops=2, samples=5, generator=seeded())
