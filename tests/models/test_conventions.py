import pytest
import torch

from innerloop.models import (
    AHN,
    CONVENTIONS,
    GATMIRY,
    VON_OSWALD,
    ZHANG,
    DenseWeights,
    GradientDescentWeights,
    LinearAttention,
)
from tests.models.forms import weights
from tests.samples import query, random_prompt, relative_error

PAPERS = list(CONVENTIONS.values())
papers = pytest.mark.parametrize("convention", PAPERS, ids=lambda c: c.name)


def depth(convention):
    return 1 if convention is ZHANG else 3


@papers
@pytest.mark.parametrize("seed", range(3))
def test_a_papers_own_layers_predict_the_same_with_converted_weights(convention, seed):
    prompt = random_prompt(batch=4, n=6, d=3, seed=seed)
    dense = weights(DenseWeights, d=3, layers=depth(convention), seed=seed)
    p, q = convention.weights_to(*dense.matrices(), n=prompt.n)
    model = LinearAttention(dense, masked=convention.masked)
    assert relative_error(convention.predict(p, q, prompt), model(prompt)) < 1e-12


@papers
def test_a_papers_weights_predict_the_same_in_innerloop(convention):
    prompt = random_prompt(batch=4, n=6, d=3)
    p, q = weights(DenseWeights, d=3, layers=depth(convention)).matrices()
    if not convention.normalised:
        p = p / prompt.n  # keeps the layers tame: the paper's own layer does not divide
    ours = DenseWeights(*(t.detach() for t in convention.weights_from(p, q, n=prompt.n)))
    model = LinearAttention(ours, masked=convention.masked)
    assert relative_error(model(prompt), convention.predict(p, q, prompt)) < 1e-12


@papers
def test_a_papers_prediction_of_several_queries_is_of_each_as_if_alone(convention):
    prompt = random_prompt(batch=4, n=6, d=3, queries=3)
    p, q = weights(DenseWeights, d=3, layers=depth(convention), scale=0.1).matrices()
    together = convention.predict(p, q, prompt)
    for i in range(3):
        alone = convention.predict(p, q, query(prompt, i))
        assert relative_error(together[:, i : i + 1], alone) < 1e-12


@papers
def test_converting_there_and_back_changes_nothing(convention):
    p, q = weights(DenseWeights, d=3, layers=depth(convention)).matrices()
    there = convention.weights_to(p, q, n=7)
    for before, after in zip((p, q), convention.weights_from(*there, n=7), strict=True):
        torch.testing.assert_close(after, before, rtol=1e-15, atol=0)
    back = convention.weights_from(p, q, n=7)
    for before, after in zip((p, q), convention.weights_to(*back, n=7), strict=True):
        torch.testing.assert_close(after, before, rtol=1e-15, atol=0)


@papers
def test_the_sign_of_a_good_preconditioner_is_as_stated(convention):
    good = GradientDescentWeights(0.5 * torch.eye(3, dtype=torch.float64).unsqueeze(0))
    _, q = convention.weights_to(*good.matrices(), n=6)
    eigenvalues = torch.linalg.eigvalsh(q[0, :3, :3])
    stated = {"negative definite": -1, "positive definite": 1}[convention.good_preconditioner]
    assert (eigenvalues * stated > 0).all()


def test_gatmirys_layers_with_the_opposite_sign_are_ahns():
    z = random_prompt(batch=2, n=6, d=3).token_matrix()
    p, q = weights(DenseWeights, d=3).matrices()
    assert torch.equal(GATMIRY.layers(p, -q, z), AHN.layers(p, q, z))


@pytest.mark.parametrize("direction", ["weights_to", "weights_from"])
def test_zhang_refuses_two_layers(direction):
    p, q = weights(DenseWeights, d=3, layers=2).matrices()
    sentence = "the convention of zhang2023 describes one layer, got 2 layers"
    with pytest.raises(ValueError, match=sentence):
        getattr(ZHANG, direction)(p, q, n=6)


def test_conventions_are_found_by_name():
    assert {c.name for c in (AHN, GATMIRY, ZHANG, VON_OSWALD)} == set(CONVENTIONS)
    for name, convention in CONVENTIONS.items():
        assert convention.name == name
