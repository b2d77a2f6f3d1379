"""Benchmarks run from end to end; what they measure is never asserted."""

import subprocess
import sys
from functools import partial

import pytest
import torch
from rich.console import Console

from innerloop.benchmarks.gram_space import forward_forms, operations
from innerloop.benchmarks.timing import in_turn, seconds
from innerloop.models import GDPlusPlusWeights, GradientDescentWeights


def test_timing_is_the_shortest_of_several_calls():
    calls = []
    assert seconds(lambda: calls.append(1), repeats=3) >= 0
    assert len(calls) == 4


def test_what_is_compared_is_timed_in_turn():
    calls = []
    found = in_turn({name: partial(calls.append, name) for name in "ab"}, repeats=2)
    assert "".join(calls) == "ababab"
    assert found.keys() == {"a", "b"}


def test_gram_space_is_timed_beside_token_space(capsys):
    for table in forward_forms(((4, 3, 5),), compiled=False):
        Console(width=120).print(table)
    output = capsys.readouterr().out
    assert "associative" in output
    assert "eager, kept" in output
    assert "nothing is compiled" in output


def test_operations_are_those_of_the_forward_pass_and_twice_that_for_the_gradient():
    # d = 2, n = 3: S has 3 entries and m has 2, each a sum of 3 products.
    one_layer, two_layers = (
        form.gaussian(2, layers, 0.1, generator=torch.Generator().manual_seed(0))
        for form, layers in ((GradientDescentWeights, 1), (GDPlusPlusWeights, 2))
    )
    gram = 2 * 3 * (3 + 2)
    assert operations(one_layer, 3) == gram + 3 * (2 * 4 + 2 * 2)
    # Another A r, one S w, and three products with two vectors each.
    assert operations(two_layers, 3) == gram + 3 * (2 * 2 * 4 + 2 * 4 + 2 * 2 + 3 * 2 * 2 * 4)


@pytest.mark.slow
def test_the_command_prints_its_tables():
    """In a process of its own: checks of shapes and compiled code do not go together."""
    command = [sys.executable, "-m", "innerloop", "bench", "linear"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "times faster than n x n" in output
    assert "operations / peak" in output
    assert "five together / one" in output
