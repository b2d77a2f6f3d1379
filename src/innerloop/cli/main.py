"""Parses the command line, and turns every error into its sentence."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

import tyro
from rich.console import Console

from innerloop.cli.bench import bench
from innerloop.cli.dictionary import dictionary
from innerloop.cli.evaluate import evaluate
from innerloop.cli.lengths import lengths
from innerloop.cli.listing import list_everything
from innerloop.cli.reproduce import reproduce
from innerloop.cli.train import train
from innerloop.runs import OutputError

DESCRIPTION = """A laboratory for in-context learning.

Examples:
  innerloop reproduce                       every claim and figure, and the report
  innerloop reproduce ahn2023/theorem1      one claim
  innerloop train gd:layers=2 --task linear:d=5,n=20,prior=inverse --objective exact
  innerloop evaluate runs/my-run --against ols ridge:penalty=0.1 gd:steps=3
  innerloop evaluate runs/my-run --shifts   the loss under distribution shifts
  innerloop evaluate runs/my-run --loops 20 a looped model, looped longer
  innerloop lengths --eps 0.1 --spectrum 1.5/0.8/0.4 --noise-std 0.2
  innerloop dictionary --heads 16 --tokens 40  softmax heads against ridge regression

--debug, anywhere, shows the traceback of an error.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code: 0 done, 2 refused, 1 a defect, 130 interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    console = Console(stderr=True)
    try:
        tyro.extras.subcommand_cli_from_dict(
            {
                "list": list_everything,
                "reproduce": reproduce,
                "train": train,
                "evaluate": evaluate,
                "lengths": lengths,
                "dictionary": dictionary,
                "bench": bench,
            },
            prog="innerloop",
            description=DESCRIPTION,
            args=words or ["--help"],
        )
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    except KeyboardInterrupt:
        console.show_cursor()
        console.print("\ninterrupted; the same command goes on where it stopped")
        return 130
    except (ValueError, FloatingPointError, OutputError) as error:
        if debug:
            traceback.print_exc()
        console.print(f"innerloop: {error}", style="red", highlight=False, markup=False)
        return 2
    except Exception as error:  # a defect of ours: said plainly, with the way to see more
        if debug:
            traceback.print_exc()
        console.print(
            f"innerloop: unexpected {type(error).__name__}: {error}\n"
            "This is a defect; run again with --debug for the traceback.",
            style="red",
            highlight=False,
            markup=False,
        )
        return 1
    return 0
