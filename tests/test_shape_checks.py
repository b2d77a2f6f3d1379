"""Shapes in signatures are checked while the tests run: shown on a function of every package."""

import jaxtyping
import pytest
import torch

from innerloop.analysis import distance_to_identity
from innerloop.models.linear_attention import GradientDescentWeights, LinearAttention
from innerloop.theory.linear import one_step_preconditioner
from tests.conftest import checked_modules


def test_modules_are_found_by_the_files_that_exist():
    modules = checked_modules()
    assert "innerloop.prompt" in modules
    assert "innerloop.theory.linear.ray" in modules
    assert "innerloop.theory.wishart.words" not in modules


@pytest.mark.parametrize(
    "call",
    [
        lambda: one_step_preconditioner(torch.zeros(2, 3), 4),
        lambda: distance_to_identity(torch.zeros(2, 3)),
        lambda: LinearAttention(GradientDescentWeights(torch.zeros(1, 2, 2))).answer(
            torch.zeros(4, 3, 3), torch.zeros(5, 1, 2)
        ),
    ],
    ids=["theory", "analysis", "models"],
)
def test_a_wrong_shape_is_caught_by_the_signature(call):
    with pytest.raises(jaxtyping.TypeCheckError):
        call()
