"""Commands that must be refused, in a limited time, with a sentence; and small runs to damage."""

import signal
from contextlib import contextmanager
from pathlib import Path

from innerloop.cli import main

TRAIN = ("train", "gd:layers=1", "--task", "linear:d=2,n=4", "--steps", "2", "--batch", "8")
"""A training of milliseconds."""
PATIENCE = 60
"""Seconds after which what should take a moment hangs; a busy machine is slow."""


@contextmanager
def no_hang(seconds=PATIENCE):
    """Fails what is inside, wherever it waits, if it takes longer."""

    def give_up(number, frame):
        raise AssertionError(f"still busy after {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def ended(capsys, *arguments):
    """The exit code of a command and all that it printed, on one line."""
    capsys.readouterr()
    with no_hang():
        code = main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return code, " ".join((captured.out + captured.err).split())


def refusal(capsys, *arguments):
    """The sentence with which a command is refused: exit code 2, no traceback, no defect."""
    code, said = ended(capsys, *arguments)
    assert "Traceback" not in said, said
    assert "defect" not in said, said
    assert code == 2, said
    assert len(said) > 10, "a refusal says why"
    return said


def tried(function):
    """What the function returns, and the sentence of its ValueError; one of them is None."""
    try:
        return function(), None
    except ValueError as error:
        return None, str(error)


def small_run(folder=Path("run")):
    """The folder of a finished training."""
    assert main([*TRAIN, "--run", str(folder)]) == 0
    return folder
