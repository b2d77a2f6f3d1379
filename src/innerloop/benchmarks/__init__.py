"""Benchmarks: what `innerloop bench` measures. Machines differ; ratios within one run tell more."""

from collections.abc import Callable

from rich.console import Console

from innerloop.benchmarks import dictionary, identify, linear, sequence

BENCHMARKS: dict[str, Callable[[Console], None]] = {
    "linear": linear.run,
    "dictionary": dictionary.run,
    "sequence": sequence.run,
    "identify": identify.run,
}

__all__ = ["BENCHMARKS"]
