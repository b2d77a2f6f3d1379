"""Benchmarks: what `innerloop bench` measures. Machines differ; ratios within one run tell more."""

from collections.abc import Callable

from rich.console import Console

from innerloop.benchmarks import dictionary, linear, recipes, sequence

BENCHMARKS: dict[str, Callable[[Console], None]] = {
    "linear": linear.run,
    "dictionary": dictionary.run,
    "sequence": sequence.run,
    "recipes": recipes.run,
}
LONG = {"recipes"}
"""Those that take the better part of an hour, and are run if they are named."""

__all__ = ["BENCHMARKS", "LONG"]
