import pytest
import torch

from innerloop.theory.wishart import expected_power_sums, wishart_nodes
from tests.samples import DOUBLE, relative_error


@pytest.mark.parametrize(("n", "d", "degree"), [(1, 1, 5), (2, 2, 4), (6, 3, 3), (40, 2, 6)])
def test_products_of_traces_have_their_exact_expectations(n, d, degree):
    factors, weights = wishart_nodes(n, d, degree)
    w = factors @ factors.mT
    for powers in [(degree,), (degree - 1, 1), (1,) * degree]:
        value = torch.ones(len(w), dtype=DOUBLE)
        for k in powers:
            value = value * torch.linalg.matrix_power(w, k).diagonal(0, -2, -1).sum(-1)
        exact = expected_power_sums(powers, n, d)
        assert (weights * value).sum().item() == pytest.approx(exact, rel=1e-11)


def test_one_degree_more_is_not_integrated():
    factors, weights = wishart_nodes(6, 1, 3)
    value = (weights * factors.flatten() ** 8).sum().item()
    assert abs(value / expected_power_sums((4,), 6, 1) - 1) > 1e-3


def test_the_mean_matrix_is_n_times_the_identity():
    factors, weights = wishart_nodes(5, 3, 1)
    mean = torch.einsum("b,bij->ij", weights, factors @ factors.mT)
    assert relative_error(mean, 5 * torch.eye(3, dtype=DOUBLE)) < 1e-12
    assert (weights > 0).all()


def test_fewer_examples_than_dimensions_are_refused():
    with pytest.raises(ValueError, match=r"n must be at least d, .* got n = 2, d = 3"):
        wishart_nodes(2, 3, 4)


def test_too_many_nodes_are_refused():
    with pytest.raises(ValueError, match="nodes are needed for degree 8 at d = 5, more than"):
        wishart_nodes(9, 5, 8)
