"""What is particular to shifts; `test_linear_attention` covers what all forms share."""

import pytest
import torch

from innerloop.algorithms import GradientDescent
from innerloop.models import (
    GATMIRY,
    GradientDescentWeights,
    LinearAttention,
    ShiftedGradientDescentWeights,
)
from innerloop.prompt import Prompt
from tests.models.forms import weights
from tests.samples import normal, random_prompt, relative_error

CLOSE = {"rtol": 1e-11, "atol": 1e-12}


def shifted_labels(prompt, u):
    """The same prompt with <u, x_i> added to every label."""
    return Prompt(prompt.x, prompt.y + prompt.x @ u, prompt.x_query, prompt.y_query)


@pytest.mark.parametrize("loops", [1, 3])
def test_one_looped_layer_descends_on_shifted_labels(loops):
    prompt = random_prompt(batch=4, n=9, d=4)
    a, u = 0.3 * normal(1, 4, 4), normal(1, 4, seed=1)
    model = LinearAttention(ShiftedGradientDescentWeights(a, u), loops)
    algorithm = GradientDescent([a[0]] * loops)
    torch.testing.assert_close(model(prompt), algorithm(shifted_labels(prompt, u[0])), **CLOSE)


@pytest.mark.parametrize("loops", [1, 2])
def test_every_layer_has_its_own_shift(loops):
    prompt = random_prompt(batch=4, n=9, d=4)
    shifted = weights(ShiftedGradientDescentWeights)
    w = torch.zeros_like(prompt.x[:, 0])
    for a, u in list(zip(shifted.preconditioners, shifted.shifts, strict=True)) * loops:
        left = prompt.y + prompt.x @ u - (prompt.x @ w.unsqueeze(-1)).squeeze(-1)
        w = w + torch.einsum("ij,bnj,bn->bi", a, prompt.x, left) / prompt.n
    expected = torch.einsum("bi,bqi->bq", w, prompt.x_query)
    torch.testing.assert_close(LinearAttention(shifted, loops)(prompt), expected, **CLOSE)


def test_the_matrices_are_those_of_the_paper():
    shifted = weights(ShiftedGradientDescentWeights, d=3, layers=2)
    p, q = shifted.matrices()
    assert torch.equal(p[:, -1, :-1], shifted.shifts)
    assert (p[:, -1, -1] == 1).all()
    assert (p[:, :-1] == 0).all()
    prompt = random_prompt(batch=3, n=6, d=3)
    paper = GATMIRY.predict(*GATMIRY.weights_to(p, q, n=6), prompt)
    assert relative_error(LinearAttention(shifted)(prompt), paper) < 1e-12


def test_shifts_of_zero_change_nothing():
    prompt = random_prompt(batch=3, n=6, d=4)
    a = 0.3 * normal(3, 4, 4)
    shifted = LinearAttention(ShiftedGradientDescentWeights(a.clone(), torch.zeros(3, 4).double()))
    plain = LinearAttention(GradientDescentWeights(a.clone()))
    torch.testing.assert_close(shifted(prompt), plain(prompt), **CLOSE)


def test_the_offset_is_the_prediction_without_labels():
    prompt = random_prompt(batch=3, n=6, d=4)
    silent = Prompt(prompt.x, torch.zeros_like(prompt.y), prompt.x_query, prompt.y_query)
    model = LinearAttention(weights(ShiftedGradientDescentWeights), 2)
    offset = model.weights.offset(prompt.gram()[:, :4, :4], 2)
    predicted = torch.einsum("bi,bqi->bq", offset, prompt.x_query)
    torch.testing.assert_close(predicted, model(silent), **CLOSE)


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize("shape", [(2,), (2, 4), (1, 3), (2, 3, 3)])
def test_shifts_of_another_shape_are_refused(shape):
    sentence = r"shifts must have shape \[2, 3\], one vector for each layer, got \["
    with pytest.raises(ValueError, match=sentence):
        ShiftedGradientDescentWeights(torch.zeros(2, 3, 3), torch.zeros(shape))
