import pytest
import torch

from innerloop.tasks import (
    ContextQueries,
    FreshQueries,
    GaussianCovariates,
    OrthogonalQueries,
    OtherQueries,
    Queries,
)
from tests.samples import assert_means, covariance, seeded

COVARIATES, OTHER = GaussianCovariates(covariance(3)), GaussianCovariates(covariance(3, seed=5))
ALL = [FreshQueries(), FreshQueries(4), OtherQueries(OTHER), OrthogonalQueries(), ContextQueries()]


@pytest.mark.parametrize("queries", ALL, ids=str)
def test_they_draw_n_examples_and_at_least_one_query(queries):
    assert isinstance(queries, Queries)
    x, x_query = queries.draw(6, 2, COVARIATES, generator=seeded())
    assert x.shape == (6, 2, 3)
    assert x_query.shape == (6, getattr(queries, "count", 1), 3)


def test_fresh_queries_are_drawn_with_the_examples_in_one_piece():
    x, x_query = FreshQueries(2).draw(6, 3, COVARIATES, generator=seeded())
    together = COVARIATES.draw(6, 5, generator=seeded())
    assert torch.equal(x, together[:, :3])
    assert torch.equal(x_query, together[:, 3:])


def test_other_queries_are_drawn_after_the_examples():
    x, x_query = OtherQueries(OTHER).draw(6, 3, COVARIATES, generator=(one := seeded()))
    generator = seeded()
    assert torch.equal(x, COVARIATES.draw(6, 3, generator=generator))
    assert torch.equal(x_query, OTHER.draw(6, 1, generator=generator))
    assert torch.equal(one.get_state(), generator.get_state())


def test_other_queries_have_their_own_covariance():
    _, x_query = OtherQueries(OTHER).draw(60_000, 1, COVARIATES, generator=seeded())
    assert_means(x_query.mT * x_query, OTHER.covariance)


def test_orthogonal_queries_are_what_the_examples_do_not_span():
    x, x_query = OrthogonalQueries().draw(50, 2, COVARIATES, generator=seeded())
    _, fresh = FreshQueries().draw(50, 2, COVARIATES, generator=seeded())
    assert (x @ x_query.mT).abs().max() < 1e-12
    # What was taken away lies in the span of the examples.
    removed = torch.cat([x, fresh - x_query], dim=1)
    assert (torch.linalg.svdvals(removed)[:, 2] < 1e-12).all()


def test_queries_in_context_are_examples():
    x, x_query = ContextQueries().draw(6, 3, COVARIATES, generator=seeded())
    assert torch.equal(x_query, x[:, :1])


def test_as_many_examples_as_dimensions_leave_no_orthogonal_query():
    with pytest.raises(ValueError, match=r"n must be below d = 3 .* got 3"):
        OrthogonalQueries().draw(6, 3, COVARIATES, generator=seeded())


@pytest.mark.parametrize("count", [0, -1, True])
def test_a_count_that_is_none_is_refused(count):
    with pytest.raises(
        ValueError, match=f"count must be a whole number of at least 1, got {count}"
    ):
        FreshQueries(count)
