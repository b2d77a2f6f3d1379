"""The command line: `innerloop list | reproduce | train | evaluate | identify | ...`."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in typing, which takes long to import
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code.

    0 done, 2 refused, 1 a defect, 130 interrupted, 143 terminated, 141 nobody reads the output.
    Without arguments the process is ours: its command line, its signals and its output streams.
    Nothing is imported before Ctrl-C is taken care of.
    """
    from innerloop.cli import process

    if arguments is None:
        process.take_over()
    from innerloop.cli.commands import run

    if arguments is not None:
        return run(list(arguments), whole_process=False)
    return process.flushed(run(sys.argv[1:], whole_process=True))
