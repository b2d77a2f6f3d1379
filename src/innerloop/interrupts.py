"""Signals that end a run, heard between its steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Terminated(KeyboardInterrupt):
    """SIGTERM: what Ctrl-C is, sent by a program; the usual exit code is 143 instead of 130."""


KINDS: dict[int, type[KeyboardInterrupt]] = {
    signal.SIGINT: KeyboardInterrupt,
    signal.SIGTERM: Terminated,
}


@contextmanager
def interrupt_between_steps() -> Iterator[Callable[[], KeyboardInterrupt | None]]:
    """Turns Ctrl-C and SIGTERM into a question asked between steps: what to raise, if anything.

    So no state is left half updated. A second signal interrupts at once. Outside the main thread
    Python delivers no signals, and nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    asked: KeyboardInterrupt | None = None

    def note(signum: int, frame: object) -> None:
        nonlocal asked
        if asked is not None:
            raise KINDS[signum]
        asked = KINDS[signum]()

    previous = {kind: signal.signal(kind, note) for kind in KINDS}
    try:
        yield lambda: asked
    finally:
        for kind, handler in previous.items():
            signal.signal(kind, handler)
