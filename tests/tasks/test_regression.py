from dataclasses import replace

import pytest
import torch

from innerloop.tasks import (
    Exponential,
    FreshQueries,
    GaussianCovariates,
    LinearFunctions,
    LinearRegression,
    NoClosedForm,
    OtherQueries,
    Regression,
    ScaledCovariates,
    SparseLinearFunctions,
    Task,
    law_of,
)
from tests.samples import DOUBLE, covariance, seeded

SIGMA, OMEGA = covariance(3, seed=1), covariance(3, seed=2)
TASK = Regression(GaussianCovariates(SIGMA), LinearFunctions(OMEGA), 4, noise_std=0.5)


def drawn(generator, *shape):
    return torch.randn(shape, generator=generator, dtype=DOUBLE)


def test_draws_are_weights_then_covariates_of_all_points_then_noise():
    prompt = TASK.sample(6, generator=(used := seeded(3)))
    generator = seeded(3)
    w = drawn(generator, 6, 3) @ torch.linalg.cholesky(OMEGA).mT
    x = drawn(generator, 6, 5, 3) @ torch.linalg.cholesky(SIGMA).mT
    noise = drawn(generator, 6, 4)
    labels = torch.einsum("bnd,bd->bn", x, w)
    torch.testing.assert_close(prompt.x, x[:, :4])
    torch.testing.assert_close(prompt.x_query, x[:, 4:])
    torch.testing.assert_close(prompt.y, labels[:, :4] + 0.5 * noise)
    torch.testing.assert_close(prompt.y_clean, labels[:, :4])
    torch.testing.assert_close(prompt.y_query, labels[:, 4:])
    assert torch.equal(used.get_state(), generator.get_state())


def test_scales_are_drawn_between_covariates_and_noise():
    task = replace(TASK, covariates=ScaledCovariates(TASK.covariates, Exponential(3)))
    prompt = task.sample(6, generator=(used := seeded(3)))
    generator = seeded(3)
    w = drawn(generator, 6, 3) @ torch.linalg.cholesky(OMEGA).mT
    x = drawn(generator, 6, 5, 3) @ torch.linalg.cholesky(SIGMA).mT
    scales = -torch.log1p(-torch.rand(6, 3, generator=generator, dtype=DOUBLE))
    noise = drawn(generator, 6, 4)
    x = x * scales.sqrt()[:, None]
    labels = torch.einsum("bnd,bd->bn", x, w)
    torch.testing.assert_close(prompt.x, x[:, :4])
    torch.testing.assert_close(prompt.y, labels[:, :4] + 0.5 * noise)
    torch.testing.assert_close(prompt.y_query, labels[:, 4:])
    assert torch.equal(used.get_state(), generator.get_state())


def test_queries_of_their_own_are_drawn_before_the_noise():
    other = GaussianCovariates(covariance(3, seed=7))
    prompt = replace(TASK, queries=OtherQueries(other)).sample(6, generator=(used := seeded(3)))
    generator = seeded(3)
    w = drawn(generator, 6, 3) @ torch.linalg.cholesky(OMEGA).mT
    x = drawn(generator, 6, 4, 3) @ torch.linalg.cholesky(SIGMA).mT
    x_query = drawn(generator, 6, 1, 3) @ torch.linalg.cholesky(other.covariance).mT
    noise = drawn(generator, 6, 4)
    torch.testing.assert_close(prompt.x_query, x_query)
    torch.testing.assert_close(prompt.y, torch.einsum("bnd,bd->bn", x, w) + 0.5 * noise)
    assert torch.equal(used.get_state(), generator.get_state())


def test_without_noise_none_is_drawn():
    clean = replace(TASK, noise_std=0.0).sample(6, generator=(quiet := seeded(3)))
    noisy = TASK.sample(6, generator=seeded(3))
    assert torch.equal(clean.y, noisy.y_clean)
    assert clean.y_clean is None
    generator = seeded(3)
    drawn(generator, 6, 3), drawn(generator, 6, 5, 3)
    assert torch.equal(quiet.get_state(), generator.get_state())


def test_several_queries_belong_to_one_function():
    prompt = replace(TASK, queries=FreshQueries(5), noise_std=0.0).sample(6, generator=seeded())
    assert prompt.queries == 5
    w = torch.linalg.lstsq(prompt.x, prompt.y.unsqueeze(-1)).solution
    torch.testing.assert_close((prompt.x_query @ w).squeeze(-1), prompt.y_query)


def test_a_composition_is_a_task_and_its_own_law():
    assert isinstance(TASK, Task)
    assert (TASK.d, TASK.n) == (3, 4)
    assert TASK.law is TASK
    assert law_of(TASK) is TASK
    linear = LinearRegression(SIGMA, 4)
    assert law_of(linear) is linear.law


def test_what_states_no_law_has_none():
    class Own(Regression):
        pass

    with pytest.raises(NoClosedForm, match="Own states no law, so nothing exact is known of it"):
        law_of(Own(TASK.covariates, TASK.functions, 4))
    with pytest.raises(NoClosedForm, match="object states no law"):
        law_of(object())


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"covariates": SIGMA}, "covariates must have the methods of Covariates, got Tensor"),
        ({"functions": torch.sin}, "functions must have the methods of Functions, got "),
        ({"queries": 3}, "queries must have the methods of Queries, got int"),
        ({"functions": SparseLinearFunctions(4, 1)}, "functions must be of .* dimension 3, got 4"),
        ({"n": 0}, "n must be a whole number of at least 1, got 0"),
        ({"n": 2.0}, "n must be a whole number of at least 1, got 2.0"),
        ({"noise_std": -0.1}, "noise_std must be finite and not negative, got -0.1"),
        ({"noise_std": float("nan")}, "noise_std must be finite and not negative, got nan"),
    ],
)
def test_parts_that_do_not_fit_are_refused_by_name(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        replace(TASK, **change)


@pytest.mark.parametrize("batch", [0, -1])
def test_no_prompts_are_refused(batch):
    for task in (TASK, LinearRegression(SIGMA, 4)):
        with pytest.raises(ValueError, match="batch must be a whole number of at least 1, got"):
            task.sample(batch, generator=seeded())
