"""`innerloop bench`: speed, as ratios within one run."""

from __future__ import annotations

from typing import Annotated

import tyro

from innerloop.benchmarks import BENCHMARKS, LONG
from innerloop.cli.console import console


def bench(
    names: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME ...]")],
) -> None:
    """Measures speed, every number as a ratio within one run.

    Args:
        names: which benchmarks: linear, dictionary, sequence, recipes, or identify (what is
            planted is found; minutes). None means all but recipes, which trains for more than an
            hour.
    """
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        raise ValueError(f"no benchmark is called {unknown[0]!r}; known: {', '.join(BENCHMARKS)}")
    for name in names or (name for name in BENCHMARKS if name not in LONG):
        BENCHMARKS[name](console())
