"""The process around a command: signals, closed pipes, terminals that know no Greek.

While the program starts or ends there is nothing to save, and a signal ends it at once: an
exception could surface anywhere, in the middle of an import or after the last line of ours. While
a command runs, a signal is an exception that the command may answer by saving what it has.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import signal
import sys

from innerloop.interrupts import Terminated

TYPE_CHECKING = False  # as in typing, which takes long to import
if TYPE_CHECKING:
    from collections.abc import Iterator
    from sys import UnraisableHookArgs
    from types import FrameType
    from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)
ASCII = {
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
    "∞": "inf",
    "±": "+-",
    "×": "x",
    "·": "*",
    "−": "-",
    "–": "-",
    "…": "~",
    "²": "^2",
    "→": "->",
}
"""What is printed on a terminal without these characters; others become question marks."""

_received: list[int] = []
"""Signals that arrived while a command ran: an import may turn their exception into its own."""


def take_over() -> None:
    """Makes this process quiet about signals and unable to fail at printing a character."""
    _on_signals(_leave)
    sys.unraisablehook = _unraisable
    codecs.register_error("innerloop", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # it may be closed, or be another program's
            stream.reconfigure(errors="innerloop")


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Signals are exceptions inside, KeyboardInterrupt or `Terminated`."""
    _on_signals(_raise)
    try:
        yield
    finally:
        _on_signals(_leave)


def stop_signal(error: BaseException) -> int | None:
    """The exit code if a signal is behind this exception, also if it says something else."""
    if isinstance(error, KeyboardInterrupt):
        return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)
    return 128 + _received[0] if _received else None


def nobody_reads(error: BaseException) -> bool:
    """Whether the command ended because the reader of its output has gone, as in `| head -1`."""
    if isinstance(error, SystemExit):  # what rich makes of it, after closing the output
        return isinstance(error.__context__, BrokenPipeError)
    return isinstance(error, BrokenPipeError) and any([_reader_gone(1), _reader_gone(2)])


def flushed(code: int) -> int:
    """The exit code once all output is written: the last of it may fail, too."""
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            if stream is not None:
                stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)  # Python will flush once more
            if isinstance(error, BrokenPipeError):
                code = code or 128 + signal.SIGPIPE
            elif descriptor == 1:
                sys.stderr.write(f"innerloop: cannot write the output: {error.strerror}\n")
                code = code or 2
    return code


def _reader_gone(descriptor: int) -> bool:
    """Whether it is a pipe that nobody reads any more."""
    watch = select.poll()
    watch.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in watch.poll(0))


def _on_signals(handler: signal._HANDLER) -> None:
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup and shells' jobs ask for
            signal.signal(number, handler)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    _received.append(number)
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated


def _leave(number: int, frame: FrameType | None = None) -> NoReturn:
    show_cursor = "\x1b[?25h" if os.isatty(2) else ""
    what = "interrupted" if number == signal.SIGINT else "terminated"
    with contextlib.suppress(OSError):
        os.write(2, f"{show_cursor}\n{what}\n".encode())
    os._exit(128 + number)


def _unraisable(event: UnraisableHookArgs) -> None:
    """A signal that hit where no exception can pass, such as a finalizer: it must not be lost."""
    if isinstance(event.exc_value, KeyboardInterrupt):
        _leave(stop_signal(event.exc_value) - 128)  # type: ignore[operator]
    sys.__unraisablehook__(event)


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join(ASCII.get(character, "?") for character in text), error.end
