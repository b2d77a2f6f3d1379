"""The command line: `innerloop list | reproduce | train | evaluate | bench`."""

from innerloop.cli.main import main

__all__ = ["main"]
