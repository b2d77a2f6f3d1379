import pytest
import torch

from innerloop.tasks import Covariates, Exponential, GaussianCovariates, ScaledCovariates
from innerloop.tasks.covariates import square_root
from tests.samples import DOUBLE, assert_means, covariance, rotation, seeded

SIGMA = covariance(3, seed=1)


def ones(batch, generator):
    return torch.ones(batch, 3, dtype=DOUBLE)


def test_gaussian_covariates_have_the_stated_covariance():
    x = GaussianCovariates(SIGMA).draw(60_000, 2, generator=seeded())
    assert x.shape == (60_000, 2, 3)
    assert_means(x[:, 0, :, None] * x[:, 0, None], SIGMA)
    assert_means(x[:, 0, :, None] * x[:, 1, None], torch.zeros(3, 3))


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_the_square_root_exists_for_every_rank(rank):
    u = rotation(3)
    matrix = u[:, :rank] @ torch.diag(torch.arange(1.0, rank + 1, dtype=DOUBLE)) @ u[:, :rank].mT
    root = square_root(matrix)
    torch.testing.assert_close(root @ root.mT, matrix, rtol=1e-12, atol=1e-12)


def test_scales_are_drawn_after_the_covariates_and_shared_by_those_of_a_prompt():
    covariates = ScaledCovariates(GaussianCovariates(SIGMA), Exponential(3))
    x = covariates.draw(4, 5, generator=seeded())
    generator = seeded()
    plain = GaussianCovariates(SIGMA).draw(4, 5, generator=generator)
    scales = Exponential(3)(4, generator)
    torch.testing.assert_close(x, plain * scales.sqrt()[:, None], rtol=0, atol=0)


def test_scales_of_one_change_nothing():
    plain = GaussianCovariates(SIGMA)
    one, other = (c.draw(2, 3, generator=seeded()) for c in (plain, ScaledCovariates(plain, ones)))
    assert torch.equal(one, other)


def test_scaled_covariates_keep_their_dtype():
    single = ScaledCovariates(GaussianCovariates(SIGMA.float()), Exponential(3))
    assert single.draw(2, 3, generator=seeded()).dtype == torch.float32
    assert single.d == 3


def test_exponential_scales_have_the_moments_of_the_distribution():
    scales = Exponential(2, mean=3.0)(50_000, seeded())
    assert_means(scales, 3.0)
    assert_means(scales.square(), 18.0)
    assert (scales > 0).all()


@pytest.mark.parametrize(
    "made", [GaussianCovariates(SIGMA), ScaledCovariates(GaussianCovariates(SIGMA), ones)]
)
def test_they_are_what_a_regression_takes(made):
    assert isinstance(made, Covariates)
    assert made.d == 3


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        (torch.ones(3), r"covariance must be a \[d, d\] matrix, got shape \[3\]"),
        (torch.eye(2).long(), "covariance must be of a floating dtype, got torch.int64"),
        (
            -torch.eye(2),
            "covariance must be positive semi-definite, got a smallest eigenvalue of -1",
        ),
        (torch.tensor([[1.0, 0.5], [0.0, 1.0]]), "covariance must be symmetric"),
    ],
)
def test_matrices_that_are_no_covariance_are_refused(matrix, sentence):
    with pytest.raises(ValueError, match=sentence):
        GaussianCovariates(matrix)


def test_scales_that_are_not_positive_are_refused():
    covariates = ScaledCovariates(GaussianCovariates(SIGMA), lambda b, g: 0 * ones(b, g))
    with pytest.raises(ValueError, match=r"law must give positive scales .* smallest value 0"):
        covariates.draw(2, 3, generator=seeded())
