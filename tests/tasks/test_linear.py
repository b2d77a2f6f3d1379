from dataclasses import dataclass, field, replace

import pytest
import torch

from innerloop.tasks import (
    ContextQueries,
    DictionaryRegression,
    FreshQueries,
    GaussianCovariates,
    LinearFunctions,
    LinearRegression,
    NoClosedForm,
    Regression,
    SparseLinearFunctions,
    gaussian_linear,
)
from tests.samples import DOUBLE, assert_means, covariance, normal, rotation, seeded

SIGMA = covariance(3, seed=1)
OMEGA = covariance(3, seed=2, smallest=0.5, largest=2.0)
TASK = LinearRegression(SIGMA, 2, OMEGA, noise_std=0.7)
SAMPLES = 60_000


def outer(v):
    return v.unsqueeze(-1) * v.unsqueeze(-2)


@pytest.fixture(scope="module")
def prompt():
    return TASK.sample(SAMPLES, generator=seeded(3))


def test_covariates_have_mean_zero_and_the_stated_covariance(prompt):
    for x in (prompt.x[:, 0], prompt.x[:, 1], prompt.x_query[:, 0]):
        assert_means(x, torch.zeros(3))
        assert_means(outer(x), SIGMA)


def test_covariates_of_one_prompt_are_uncorrelated(prompt):
    assert_means(prompt.x[:, 0, :, None] * prompt.x[:, 1, None], torch.zeros(3, 3))
    assert_means(prompt.x[:, 0, :, None] * prompt.x_query, torch.zeros(3, 3))


def test_weights_have_mean_zero_and_the_stated_covariance():
    w = TASK.sample_weights(SAMPLES, generator=seeded(4))
    assert_means(w, torch.zeros(3))
    assert_means(outer(w), OMEGA)


def test_weights_are_standard_normal_by_default():
    task = LinearRegression(SIGMA, 2)
    w = task.sample_weights(SAMPLES, generator=seeded(5))
    assert_means(outer(w), torch.eye(3))
    assert torch.equal(task.prior, torch.eye(3, dtype=DOUBLE))


def test_only_the_examples_labels_carry_noise(prompt):
    clean = (SIGMA @ OMEGA).trace().item()
    assert_means(prompt.y.square(), torch.full((2,), clean + 0.7**2))
    assert_means(prompt.y_query[:, 0].square(), clean)


def test_examples_and_query_share_one_weight_vector(prompt):
    # E[(y_1 x_1)(y_q x_q)^T] = Sigma Omega Sigma only if both labels come from the same w.
    first = prompt.y[:, 0, None] * prompt.x[:, 0]
    query = prompt.y_query * prompt.x_query[:, 0]
    assert_means(first[:, :, None] * query[:, None], SIGMA @ OMEGA @ SIGMA)


def test_noise_is_independent_of_the_covariates_and_has_the_stated_variance():
    task = LinearRegression(SIGMA, 6, OMEGA, noise_std=0.7)
    prompt = task.sample(20_000, generator=seeded(6))
    # The residual sum of squares of least squares has mean (n - d) noise_std^2, whatever w is.
    w = torch.linalg.lstsq(prompt.x, prompt.y.unsqueeze(-1)).solution
    residual = (prompt.x @ w).squeeze(-1) - prompt.y
    assert_means(residual.square().sum(-1) / (6 - 3), 0.7**2)


def test_without_noise_the_examples_determine_the_querys_label():
    prompt = LinearRegression(SIGMA, 3, OMEGA).sample(50, generator=seeded(7))
    w = torch.linalg.solve(prompt.x, prompt.y)
    scale = torch.linalg.cond(prompt.x)
    error = ((w * prompt.x_query[:, 0]).sum(-1) - prompt.y_query[:, 0]).abs()
    assert (error < 1e-14 * scale.clamp_min(100)).all()


def test_sizes_of_a_sample():
    prompt = TASK.sample(5, generator=seeded())
    assert (len(prompt), prompt.n, prompt.d) == (5, 2, 3)
    assert (TASK.d, TASK.n) == (3, 2)


def test_isotropic_is_the_identity_twice():
    task = LinearRegression.isotropic(3, 4, noise_std=0.5)
    assert torch.equal(task.covariance, torch.eye(3, dtype=DOUBLE))
    assert torch.equal(task.prior, torch.eye(3, dtype=DOUBLE))
    assert (task.n, task.noise_std) == (4, 0.5)


def test_inverse_prior_is_the_inverse():
    task = LinearRegression.with_inverse_prior(SIGMA, 4, noise_std=0.5)
    torch.testing.assert_close(SIGMA @ task.prior, torch.eye(3, dtype=DOUBLE), rtol=0, atol=1e-14)
    assert torch.equal(task.prior, task.prior.mT)
    assert task.noise_std == 0.5


def test_distorted_view_has_the_covariance_and_prior_of_the_latent_construction():
    distortion = normal(3, 3, seed=8)
    task = LinearRegression.distorted_view(distortion, 4)
    torch.testing.assert_close(task.covariance, distortion @ distortion.mT, rtol=0, atol=1e-14)
    to_weights = torch.linalg.inv(distortion).mT  # w = W^-T w'
    torch.testing.assert_close(task.prior, to_weights @ to_weights.mT, rtol=1e-10, atol=1e-12)
    latent_x, latent_w = normal(7, 3, seed=9), normal(7, 3, seed=10)
    seen, weights = latent_x @ distortion.mT, latent_w @ to_weights.mT
    torch.testing.assert_close((seen * weights).sum(-1), (latent_x * latent_w).sum(-1))


def test_distorted_view_has_the_distribution_of_the_latent_construction():
    distortion = normal(2, 2, seed=11)
    prompt = LinearRegression.distorted_view(distortion, 1).sample(SAMPLES, generator=seeded(12))
    generator = seeded(13)
    latent = torch.randn(SAMPLES, 2, 2, generator=generator, dtype=DOUBLE)
    w = torch.randn(SAMPLES, 2, generator=generator, dtype=DOUBLE)
    x, y = latent @ distortion.mT, (latent @ w.unsqueeze(-1)).squeeze(-1)

    def moments(x1, y1, xq, yq):
        return torch.cat(
            [
                outer(x1).flatten(1),
                outer(xq).flatten(1),
                (y1.square()[:, None, None] * outer(x1)).flatten(1),
                ((y1 * yq)[:, None, None] * x1[:, :, None] * xq[:, None]).flatten(1),
            ],
            dim=1,
        )

    ours = moments(prompt.x[:, 0], prompt.y[:, 0], prompt.x_query[:, 0], prompt.y_query[:, 0])
    latents = moments(x[:, 0], y[:, 0], x[:, 1], y[:, 1])
    error = ((ours.var(0) + latents.var(0)) / SAMPLES).sqrt()
    assert ((ours.mean(0) - latents.mean(0)) / error).abs().max() < 4


def test_sampling_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    TASK.sample(3, generator=seeded())
    assert torch.equal(torch.get_rng_state(), before)


def test_sampling_advances_its_generator():
    generator = seeded()
    first, second = (TASK.sample(2, generator=generator) for _ in range(2))
    assert not torch.equal(first.x, second.x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("noise_std", [0.0, 0.5])
def test_prompts_have_the_dtype_of_the_covariance(dtype, noise_std):
    task = LinearRegression.with_inverse_prior(SIGMA.to(dtype), 4, noise_std)
    prompt = task.sample(2, generator=seeded())
    assert {t.dtype for t in (prompt.x, prompt.y, prompt.x_query, prompt.y_query)} == {dtype}
    assert task.prior.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_isotropic_task_has_the_dtype_asked_for(dtype):
    task = LinearRegression.isotropic(3, 4, 0.5, dtype=dtype)
    prompt = task.sample(2, generator=seeded())
    assert {t.dtype for t in (prompt.x, prompt.y, prompt.x_query, prompt.y_query)} == {dtype}


SINGULAR = torch.tensor([[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 0.0]], dtype=DOUBLE)


@pytest.mark.parametrize("turn", [torch.eye(3, dtype=DOUBLE), rotation(3)], ids=["axis", "turned"])
def test_a_singular_covariance_can_be_sampled(turn):
    sigma = turn @ SINGULAR @ turn.mT
    task = LinearRegression((sigma + sigma.mT) / 2, 2, noise_std=0.5)
    prompt = task.sample(SAMPLES, generator=seeded(3))
    products = outer(prompt.x[:, 0])
    moving = products.std(0) > 0
    assert_means(products[:, moving], task.covariance[moving])
    missing = prompt.x @ turn[:, 2]  # the direction without covariates
    assert missing.abs().max() < 1e-7


def test_singular_weights_can_be_sampled():
    task = LinearRegression(torch.eye(3, dtype=DOUBLE), 2, SINGULAR)
    w = task.sample_weights(SAMPLES, generator=seeded(4))
    assert (w[:, 2] == 0).all()
    assert_means(outer(w[:, :2]), SINGULAR[:2, :2])


def test_the_inverse_prior_of_a_singular_covariance_is_refused():
    with pytest.raises(ValueError, match="covariance must be positive definite, got a smallest"):
        LinearRegression.with_inverse_prior(SINGULAR, 4)


def test_nothing_exact_is_known_of_a_singular_covariance():
    with pytest.raises(NoClosedForm, match="positive definite, got a singular one"):
        gaussian_linear(LinearRegression(SINGULAR, 4))


def test_a_linear_regression_is_its_law_draw_for_draw():
    one, other = (task.sample(5, generator=seeded(2)) for task in (TASK, TASK.law))
    for name in ("x", "y", "x_query", "y_query", "y_clean"):
        assert torch.equal(getattr(one, name), getattr(other, name))


def test_a_composition_of_gaussians_is_known_as_linear_regression():
    found = gaussian_linear(TASK.law)
    assert gaussian_linear(TASK) is TASK
    assert torch.equal(found.covariance, SIGMA)
    assert torch.equal(found.prior, OMEGA)
    assert (found.n, found.noise_std) == (2, 0.7)
    several = replace(TASK.law, queries=FreshQueries(4))
    assert gaussian_linear(several).n == 2


class HeavyTailed(LinearRegression):
    def sample(self, batch, *, generator):
        prompt = super().sample(batch, generator=generator)
        return replace(prompt, x=prompt.x**3)


class HeavyComposition(Regression):
    def sample(self, batch, *, generator):
        prompt = super().sample(batch, generator=generator)
        return replace(prompt, x=prompt.x**3)


class HeavyCovariates(GaussianCovariates):
    def draw(self, batch, count, *, generator):
        return super().draw(batch, count, generator=generator) ** 3


@dataclass
class LooksAlike:
    """The same attributes, and prompts of its own."""

    covariance: torch.Tensor = field(default_factory=lambda: SIGMA)
    n: int = 2
    d: int = 3
    weight_covariance: None = None
    noise_std: float = 0.0
    prior: torch.Tensor = field(default_factory=lambda: OMEGA)

    def sample(self, batch, *, generator):
        return TASK.sample(batch, generator=generator)


COVARIATES, FUNCTIONS = GaussianCovariates(SIGMA), LinearFunctions(OMEGA)
UNKNOWN = {
    "a subclass": (HeavyTailed(SIGMA, 2), "HeavyTailed is a subclass of LinearRegression and may"),
    "a subclass of compositions": (
        HeavyComposition(COVARIATES, FUNCTIONS, 2),
        "HeavyComposition states no law",
    ),
    "the same attributes": (LooksAlike(), "LooksAlike states no law, so nothing exact is known"),
    "other functions": (
        Regression(COVARIATES, SparseLinearFunctions(3, 1), 2),
        "got GaussianCovariates with SparseLinearFunctions; estimate by sampling",
    ),
    "covariates of a subclass": (
        Regression(HeavyCovariates(SIGMA), FUNCTIONS, 2),
        "got HeavyCovariates with LinearFunctions",
    ),
    "other queries": (
        Regression(COVARIATES, FUNCTIONS, 2, ContextQueries()),
        "is of a fresh query, got ContextQueries",
    ),
    "a dictionary": (
        DictionaryRegression.gaussian(3, 2, 6, 4, 0.1, generator=seeded()),
        "DictionaryRegression states no law",
    ),
}
unknown_tasks = pytest.mark.parametrize(("task", "sentence"), UNKNOWN.values(), ids=UNKNOWN)


@unknown_tasks
def test_a_task_that_only_looks_like_linear_regression_is_none(task, sentence):
    with pytest.raises(NoClosedForm, match=sentence):
        gaussian_linear(task)


def test_a_subclass_that_states_its_law_is_believed():
    class Stated(LinearRegression):
        law = TASK.law

    assert gaussian_linear(Stated(SIGMA, 9)).n == 2


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"covariance": torch.ones(3)},
            r"covariance must be a \[d, d\] matrix, got shape \[3\]. "
            r"For independent coordinates, pass torch.diag\(variances\).",
        ),
        ({"covariance": torch.ones(2, 3)}, r"covariance must be a \[d, d\] matrix, .* \[2, 3\]"),
        (
            {"covariance": torch.tensor([[1.0, 0.5], [0.4, 1.0]])},
            r"covariance must be symmetric, got \|M - M\^T\| up to 0.1",
        ),
        (
            {"covariance": torch.diag(torch.tensor([1.0, -0.5]))},
            r"covariance must be positive semi-definite, got a smallest eigenvalue of -0.5",
        ),
        (
            {"covariance": torch.diag(torch.tensor([1.0, float("nan")]))},
            r"covariance must be finite",
        ),
        (
            {"covariance": torch.diag(torch.tensor([1.0, float("inf")]))},
            r"covariance must be finite",
        ),
        (
            {"weight_covariance": torch.eye(3)},
            r"weight_covariance must have the shape \[2, 2\] of covariance, got \[3, 3\]",
        ),
        (
            {"weight_covariance": -torch.eye(2)},
            r"weight_covariance must be positive semi-definite, got a smallest eigenvalue of -1",
        ),
        ({"weight_covariance": torch.ones(2)}, r"weight_covariance must be a \[d, d\] matrix"),
        ({"n": 0}, r"n must be a whole number of at least 1, got 0"),
        ({"noise_std": -0.1}, r"noise_std must be finite and not negative, got -0.1"),
        ({"noise_std": float("nan")}, r"noise_std must be finite and not negative, got nan"),
        ({"noise_std": float("inf")}, r"noise_std must be finite and not negative, got inf"),
    ],
)
def test_an_impossible_task_is_refused(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        LinearRegression(**{"covariance": torch.eye(2), "n": 4, **change})


def test_isotropic_refuses_no_dimension():
    with pytest.raises(ValueError, match="d must be a whole number of at least 1, got 0"):
        LinearRegression.isotropic(0, 3)


@pytest.mark.usefixtures("shapes_unchecked")
def test_an_empty_covariance_is_refused():
    with pytest.raises(ValueError, match="covariance must"):
        LinearRegression(torch.zeros(0, 0), 3)


@pytest.mark.usefixtures("shapes_unchecked")
def test_a_distortion_that_is_not_square_is_refused():
    with pytest.raises(ValueError, match=r"distortion must be a \[d, d\] matrix"):
        LinearRegression.distorted_view(normal(2, 3), 4)


def test_a_weight_covariance_of_another_dtype_is_refused():
    with pytest.raises(ValueError, match="weight_covariance must have the dtype"):
        LinearRegression(torch.eye(2), 3, torch.eye(2, dtype=DOUBLE))
