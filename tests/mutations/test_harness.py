"""The machine that looks for claims which cannot fail must itself be able to fail."""

from dataclasses import dataclass
from fractions import Fraction

import pytest
import torch

from innerloop import theory
from innerloop.papers import PAPERS
from innerloop.theory.linear import layers
from tests.mutations.mutation import applied, scaled, times
from tests.mutations.runner import _outcome, public_functions


def test_a_function_is_replaced_wherever_it_is_held_and_put_back():
    right = layers.one_step_preconditioner
    arguments = (torch.eye(2, dtype=torch.float64), 5)
    value = right(*arguments)
    with applied("theory.linear.layers:one_step_preconditioner", times(1.01)):
        assert theory.linear.one_step_preconditioner is layers.one_step_preconditioner
        torch.testing.assert_close(theory.linear.one_step_preconditioner(*arguments), 1.01 * value)
    assert theory.linear.one_step_preconditioner is layers.one_step_preconditioner is right


@dataclass(frozen=True)
class Pair:
    number: float
    name: str


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2.0, 3.0),
        (2, 3),
        (Fraction(2, 3), Fraction(1)),
        ([1.0, (2.0, "a")], [1.5, (3.0, "a")]),
        ({"a": 2.0}, {"a": 3.0}),
        (Pair(2.0, "b"), Pair(3.0, "b")),
        (None, None),
    ],
)
def test_every_number_in_a_value_is_scaled(value, expected):
    assert scaled(value, 1.5) == expected


def test_every_group_of_theory_has_functions_to_mutate():
    names = public_functions()
    assert {name.split(".")[1] for name in names} == {"wishart", "linear", "flow", "softmax"}


@pytest.mark.parametrize("key", PAPERS)
def test_every_mutation_names_a_target_and_claims_that_exist(key):
    from importlib import import_module

    from innerloop.papers import entries

    table = import_module(f"tests.mutations.{key}")
    assert table.MUTATIONS
    for mutation in table.MUTATIONS:
        assert mutation.ids, f"{mutation.what} must name the ids that notice it"
        assert set(mutation.ids) <= set(entries()), mutation.what
        with applied(mutation.target, mutation.wrong):
            pass
    assert {id for _, id in table.EXCUSED} <= set(entries())


def test_a_claim_that_raises_is_an_error_and_not_the_end():
    with applied("theory.linear.layers:one_step_preconditioner", lambda right: None):
        assert _outcome("ahn2023/theorem1").startswith(("error", "holds"))
