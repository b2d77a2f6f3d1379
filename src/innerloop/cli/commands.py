"""Finds the command, imports that one alone, and turns every error into its sentence."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from itertools import takewhile
from typing import Any, NamedTuple

from innerloop.cli import process

HELP = """\
usage: innerloop COMMAND [OPTIONS]

A laboratory for in-context learning.

commands:
{commands}

Each has a --help of its own; --version is the version of all.
--debug, anywhere, shows the traceback of an error.

examples:
  innerloop list zhang2023                  what one paper states, and where it is checked
  innerloop reproduce                       every claim and figure, and the report
  innerloop reproduce ahn2023/theorem1      one claim
  innerloop train gd:layers=2 --task linear:d=5,n=20,prior=inverse --objective exact
  innerloop train heads:heads=16 --task dictionary:tokens=40,shown=6
  innerloop evaluate runs/my-run --against ols ridge:penalty=0.1 gd:steps=3
  innerloop evaluate runs/my-run --shifts   the loss under distribution shifts
  innerloop evaluate runs/my-run --curve curve.png
  innerloop evaluate runs/my-run --loops 20 a looped model, looped longer
  innerloop identify runs/my-run --shifts --by layer
  innerloop compile newton --dim 4 --examples 16 --loops 20 -o newton.safetensors
  innerloop lengths --eps 0.1 --spectrum 1.5/0.8/0.4 --noise-std 0.2
  innerloop data translation                German-English pairs out of Debian packages
  innerloop translate runs/my-run "Der Hund schläft im Garten."
"""


class Command(NamedTuple):
    """A function of a module, imported when it is called for."""

    module: str
    function: str
    summary: str
    resumable: bool = False
    """Whether the same command goes on where it was stopped."""


COMMANDS = {
    "list": Command("listing", "list_names", "papers, claims, figures, tasks, models, ..."),
    "reproduce": Command("reproduce", "reproduce", "measure claims and figures", resumable=True),
    "train": Command("train", "train", "train a model on a task", resumable=True),
    "evaluate": Command("evaluate", "evaluate", "compare a trained model with algorithms"),
    "data": Command("data", "data", "build a corpus of sentence pairs", resumable=True),
    "translate": Command("translate", "translate", "translate with a trained translator"),
    "identify": Command("identify", "identify", "which algorithm is inside, or none of these"),
    "compile": Command("compile", "compile", "write a transformer that runs an algorithm"),
    "lengths": Command("lengths", "lengths", "how long prompts must be to reach an error"),
    "bench": Command("bench", "bench", "measure speed"),
}


def run(words: list[str], *, whole_process: bool) -> int:
    """Runs the command that the first word names; signals become exceptions if we may."""
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    command = COMMANDS.get(words[0]) if words else None
    try:
        if command is None:
            return _without_command(words)
        if words[0] == "reproduce":
            _refuse_unknown_ids(words[1:])
        function = _imported(command)
        with process.interruptible() if whole_process else nullcontext():
            import tyro

            tyro.cli(function, prog=f"innerloop {words[0]}", args=words[1:])
        return 0
    except BaseException as error:
        return _ended(error, command, debug)


def _without_command(words: list[str]) -> int:
    """Help, the version, or the name that was meant."""
    first = words[0] if words else "--help"
    if first in ("-h", "--help", "help"):
        lines = (f"  {name:<11} {command.summary}" for name, command in COMMANDS.items())
        print(HELP.format(commands="\n".join(lines)), end="")
        return 0
    if first == "--version":
        from importlib.metadata import version

        print(f"innerloop {version('innerloop')}")
        return 0
    from difflib import get_close_matches

    near = get_close_matches(first, COMMANDS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    raise ValueError(f"no command is called {first!r}; {hint}Known: {', '.join(COMMANDS)}")


def _refuse_unknown_ids(words: list[str]) -> None:
    """Says so before anything that computes is imported; ids stand before the options."""
    from innerloop import index

    index.choose(takewhile(lambda word: not word.startswith("-"), words), index.entries())


def _imported(command: Command) -> Any:
    from importlib import import_module

    return getattr(import_module(f"innerloop.cli.{command.module}"), command.function)


def _ended(error: BaseException, command: Command | None, debug: bool) -> int:
    """The exit code of a command that an exception ended, after its sentence."""
    if process.nobody_reads(error):
        return 141
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 2 if error.code else 0
    stopped = process.stop_signal(error)
    if stopped is not None:
        what = "interrupted" if stopped == 130 else "terminated"
        resumable = command is not None and command.resumable
        _complain(what + "; the same command goes on where it stopped" * resumable)
        return stopped
    if debug:
        import traceback

        traceback.print_exception(error)
    from innerloop.cli.refusals import refusal

    sentence = refusal(error)
    if sentence is not None:
        _complain(f"innerloop: {sentence}", style="red")
        return 2
    _complain(  # a defect of ours: said plainly, with the way to see more
        f"innerloop: unexpected {type(error).__name__}: {error}\n"
        "This is a defect; run again with --debug for the traceback.",
        style="red",
    )
    return 1


def _complain(sentence: str, style: str | None = None) -> None:
    from innerloop.cli.console import console

    target = console(stderr=True)
    with suppress(OSError, SystemExit):  # nobody may be there to read it; rich would end here
        target.show_cursor()
        target.print(sentence, style=style, highlight=False)
