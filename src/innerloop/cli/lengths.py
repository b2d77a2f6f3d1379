"""The command that says how long prompts must be."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from innerloop.cli.console import console

if TYPE_CHECKING:
    from innerloop.theory.linear import Lengths


def lengths(
    eps: float = 0.1,
    spectrum: str = "1/1/1/1/1",
    noise_std: float = 0.0,
    train: int | None = None,
    points: int = 8,
) -> None:
    """Says how long prompts must be for the trained linear layer to reach an error.

    The layer is the one that training on noiseless linear regression ends at (Zhang 2023, Theorem
    4.1); its error on test prompts, averaged over tasks, is exact, and so are these lengths.

    Example: innerloop lengths --eps 0.1 --spectrum 1.5/0.8/0.4 --noise-std 0.2

    Args:
        eps: the expected squared error to reach; it must be above noise_std squared.
        spectrum: the eigenvalues of the covariance of x, separated by /.
        noise_std: standard deviation of the noise on the labels of test prompts.
        train: examples in the training prompts, if they are given.
        points: how many trade-offs between training and test length to show at most.
    """
    from innerloop.experiments.spec import numbers
    from innerloop.theory.linear import Lengths, SampleComplexity

    values = numbers("spectrum", spectrum)
    setting = SampleComplexity(tuple(values), noise_std)

    def at(train_length: int | float, test_length: int) -> Lengths:
        return Lengths(train_length, test_length, setting.error(train_length, test_length))

    rows: dict[str, Lengths] = {}
    if train is not None:
        rows["the given training length"] = at(train, setting.test_length(eps, train))
    equal = setting.equal_length(eps)
    rows["test prompts as long as training prompts"] = at(equal, equal)
    rows["training prompts without end"] = at(math.inf, setting.test_length(eps, math.inf))
    rows["sufficient by Corollary 4.3" + " with noise" * (noise_std > 0)] = setting.stated(eps)
    trade_offs = [("", row) for row in setting.frontier(eps, points)]
    output = console()
    title = f"shortest prompts with an error of at most {eps:g}"
    output.print(_table(title, [(name, row) for name, row in rows.items()]))
    output.print(_table("longer training for shorter tests", trade_offs))
    output.print(
        f"predicting 0 has the error {sum(values) + setting.floor:.6g}, "
        f"the best linear predictor {setting.floor:.6g}"
    )


def _table(title: str, rows: list[tuple[str, Lengths]]) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, min_width=len(title))
    named = any(name for name, _ in rows)
    for column in (*(["with"] if named else []), "training", "test", "error"):
        words = column == "with"  # long numbers stay whole, and the words beside them wrap
        table.add_column(column, justify="left" if words else "right", no_wrap=not words)
    for name, row in rows:
        cells = [*([name] if named else []), *map(_length, (row.train, row.test))]
        table.add_row(*cells, f"{row.error:.6g}")
    return table


def _length(value: int | float) -> str:
    return "∞" if value == math.inf else str(value)
