import pytest
import torch

from innerloop.tasks import (
    Functions,
    LinearFunctions,
    SparseLinearFunctions,
    TransformedFunctions,
)
from tests.samples import DOUBLE, assert_means, covariance, normal, seeded

SAMPLES = 40_000


def weights_of(functions, batch, seed=0):
    """w of every prompt: the labels of the unit vectors."""
    return functions.draw(batch, generator=seeded(seed))(torch.eye(functions.d, dtype=DOUBLE)[None])


def test_linear_functions_have_weights_of_the_stated_covariance():
    functions = LinearFunctions(covariance(3))
    w = weights_of(functions, SAMPLES)
    assert_means(w, torch.zeros(3))
    assert_means(w[:, :, None] * w[:, None], covariance(3))
    assert torch.equal(w, functions.draw_weights(SAMPLES, generator=seeded()))


def test_every_prompt_has_a_function_of_its_own():
    function = LinearFunctions(covariance(3)).draw(2, generator=seeded())
    w = LinearFunctions(covariance(3)).draw_weights(2, generator=seeded())
    x = normal(2, 4, 3)
    expected = torch.stack([x[b] @ w[b] for b in range(2)])
    torch.testing.assert_close(function(x), expected)
    torch.testing.assert_close(function(x[:1])[1], x[0] @ w[1])  # shared covariates


@pytest.mark.parametrize("nonzero", [1, 2, 5])
def test_sparse_weights_have_exactly_as_many_coordinates_as_stated(nonzero):
    w = weights_of(SparseLinearFunctions(5, nonzero), 500)
    assert ((w != 0).sum(1) == nonzero).all()


def test_sparse_coordinates_are_chosen_uniformly_and_in_pairs():
    chosen = (weights_of(SparseLinearFunctions(4, 2), SAMPLES) != 0).double()
    assert_means(chosen, 0.5)
    pairs = chosen[:, :, None] * chosen[:, None]
    rows, columns = torch.triu_indices(4, 4, offset=1)
    assert_means(pairs[:, rows, columns], 1 / 6)  # two of four: each pair once in six


def test_sparse_weights_are_standard_normal_where_they_are_not_zero():
    w = weights_of(SparseLinearFunctions(4, 2), SAMPLES)
    values = w[w != 0]
    assert_means(values, 0.0)
    assert_means(values.square(), 1.0)
    assert_means(values**4, 3.0)
    products = w[:, :, None] * w[:, None]
    moving = products.std(0) > 0
    assert_means(products[:, moving], (0.5 * torch.eye(4, dtype=DOUBLE))[moving])


def test_all_coordinates_make_linear_functions():
    w = weights_of(SparseLinearFunctions(3, 3), SAMPLES)
    assert_means(w[:, :, None] * w[:, None], torch.eye(3))


def test_sparse_functions_have_the_dtype_asked_for():
    function = SparseLinearFunctions(3, 1, torch.float32).draw(2, generator=seeded())
    assert function(torch.ones(1, 4, 3)).dtype == torch.float32


def test_transformed_functions_are_the_response_of_others():
    base = LinearFunctions(covariance(3))
    one, other = (
        f.draw(2, generator=seeded()) for f in (base, TransformedFunctions(base, torch.sin))
    )
    x = normal(2, 4, 3)
    assert torch.equal(other(x), one(x).sin())


@pytest.mark.parametrize(
    "functions",
    [
        LinearFunctions(covariance(3)),
        SparseLinearFunctions(3, 1),
        TransformedFunctions(SparseLinearFunctions(3, 2), torch.tanh),
    ],
    ids=lambda f: type(f).__name__,
)
def test_they_are_what_a_regression_takes(functions):
    assert isinstance(functions, Functions)
    assert functions.d == 3


def test_covariates_of_another_dtype_are_refused():
    function = SparseLinearFunctions(3, 1).draw(2, generator=seeded())
    sentence = r"covariates must have the dtype torch.float64 of the weights, got torch.float32"
    with pytest.raises(ValueError, match=sentence):
        function(torch.ones(1, 4, 3))


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ((0, 1), "d must be a whole number of at least 1, got 0"),
        ((3, 0), "nonzero must be a whole number of at least 1, got 0"),
        ((3, 4), "nonzero must be at most d = 3, got 4"),
    ],
)
def test_impossible_sparsity_is_refused(sizes, sentence):
    with pytest.raises(ValueError, match=sentence):
        SparseLinearFunctions(*sizes)


@pytest.mark.usefixtures("shapes_unchecked")
def test_weights_without_a_covariance_are_refused():
    with pytest.raises(ValueError, match="weight_covariance must be positive semi-definite"):
        LinearFunctions(-torch.eye(2))
