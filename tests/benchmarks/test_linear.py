"""Benchmarks run from end to end; what they measure is never asserted."""

import pytest
from rich.console import Console

from innerloop.benchmarks import BENCHMARKS
from innerloop.benchmarks.timing import seconds


def test_timing_is_the_shortest_of_several_calls():
    calls = []
    assert seconds(lambda: calls.append(1), repeats=3) >= 0
    assert len(calls) == 4


@pytest.mark.slow
def test_every_benchmark_prints_its_tables(capsys):
    for benchmark in BENCHMARKS.values():
        benchmark(Console(width=120))
    output = capsys.readouterr().out
    assert "n x n / gram" in output
    assert "five together / one" in output
