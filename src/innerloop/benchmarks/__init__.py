"""Benchmarks: what `innerloop bench` measures. Machines differ; ratios within one run tell more."""

from collections.abc import Callable

from rich.console import Console

from innerloop.benchmarks import dictionary, identify, linear, recipes, sequence

BENCHMARKS: dict[str, Callable[[Console], None]] = {
    "linear": linear.run,
    "dictionary": dictionary.run,
    "sequence": sequence.run,
    "recipes": recipes.run,
    "identify": identify.run,
}
LONG = {"recipes"}
"""Those that take more than an hour, and are run if they are named."""

__all__ = ["BENCHMARKS", "LONG"]
