import pytest
import torch

from innerloop.theory.linear import CovarianceLaw
from tests.samples import DOUBLE, assert_means, covariance, seeded

MEANS = torch.tensor([1.0, 0.5, 2.0], dtype=DOUBLE)


def sampled(samples=400_000):
    """Diagonal covariances with independent exponential entries."""
    uniform = torch.rand(samples, len(MEANS), generator=seeded(0), dtype=DOUBLE)
    return torch.diag_embed(-MEANS * torch.log1p(-uniform))


def test_moments_of_exponential_entries_match_sampled_ones():
    law, draws = CovarianceLaw.exponential(MEANS), sampled()
    values = draws.diagonal(dim1=-2, dim2=-1)
    squares, traces = values.square(), values.sum(-1)
    assert_means(values, law.mean.diagonal())
    assert_means(squares, law.square.diagonal())
    # E l_i^2 l_k and E l_i l_k tr, on the entries of the diagonal tensors.
    pairs = torch.einsum("iikk->ik", law.square_and_self)
    assert_means(squares[:, :, None] * values[:, None, :], pairs)
    triples = torch.einsum("iikk->ik", law.pair_and_trace)
    assert_means(values[:, :, None] * values[:, None, :] * traces[:, None, None], triples)
    assert_means(traces * squares.sum(-1), law.trace_and_square)
    assert_means(values.amax(-1) * squares.sum(-1), law.peak)


def test_one_exponential_entry_has_moments_by_hand():
    law = CovarianceLaw.exponential(torch.ones(1, dtype=DOUBLE))
    moments = (law.mean, law.square, law.square_and_self, law.pair_and_trace)
    assert [m.item() for m in moments] == pytest.approx([1, 2, 6, 6])
    assert law.peak == pytest.approx(6)


def test_two_nodes_a_coordinate_have_the_moments_of_their_law():
    """Entries that are 1 or 3 with equal probability, once by moments and once as a mixture."""
    corners = torch.cartesian_prod(*[torch.tensor([1.0, 3.0], dtype=DOUBLE)] * 3)
    mixture = CovarianceLaw.mixture(torch.diag_embed(corners), torch.full((8,), 1 / 8).double())
    first, second, third = (torch.full((3,), m).double() for m in (2.0, 5.0, 14.0))
    independent = CovarianceLaw.independent_diagonal(first, second, third)
    for name in ("mean", "square", "square_and_self", "pair_and_trace"):
        torch.testing.assert_close(getattr(independent, name), getattr(mixture, name))
    assert independent.peak is None


def test_a_fixed_covariance_has_its_own_powers_as_moments():
    matrix = covariance(3)
    law = CovarianceLaw.fixed(matrix)
    expected = torch.einsum("ij,kl->ijkl", matrix @ matrix, matrix)
    torch.testing.assert_close(law.square_and_self, expected)
    spectrum = torch.linalg.eigvalsh(matrix)
    assert law.peak == pytest.approx((spectrum[-1] * spectrum.square().sum()).item())
    assert law.is_fixed
    assert not CovarianceLaw.exponential(MEANS).is_fixed


def test_impossible_laws_are_refused():
    identity, one = torch.eye(2, dtype=DOUBLE), torch.ones(1, dtype=DOUBLE)
    with pytest.raises(ValueError, match="positive definite, got the eigenvalue 0"):
        CovarianceLaw.fixed(torch.diag(torch.tensor([1.0, 0.0], dtype=DOUBLE)))
    with pytest.raises(ValueError, match="covariances must be symmetric"):
        CovarianceLaw.fixed(torch.tensor([[1.0, 0.2], [0.0, 1.0]], dtype=DOUBLE))
    with pytest.raises(ValueError, match=r"sum to 1, got \[0.5\]"):
        CovarianceLaw.mixture(identity.unsqueeze(0), one / 2)
    with pytest.raises(ValueError, match="second at least its square"):
        CovarianceLaw.independent_diagonal(one, one / 2, one)
    with pytest.raises(ValueError, match="third must be at least"):
        CovarianceLaw.independent_diagonal(one, 2 * one, 3 * one)
