"""One function called for many names, by processes that stay, and that may die.

A process for each call would cost seconds of imports, so each takes one group of names after
another. One thread each unless told otherwise, because the matrices are small, and because a number
should not depend on how many processes measured its neighbours. A process that is killed from
outside, as by a system out of memory, costs nothing but the call it was making, which is made once
more, alone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

T = TypeVar("T")
# Fresh processes: a fork of one that has used torch's threads may hang.
CONTEXT = multiprocessing.get_context("spawn")
STARTS = 3
"""So many processes may end before they have taken their first name."""
PATIENCE = 20.0
"""Seconds in which a process that is told to end may finish its step and write down its state."""


@dataclass(frozen=True)
class Lost:
    """No value: the process ended during the call, twice."""

    how: str
    """Such as "was killed (signal 9)"."""


def call_for_each(
    function: Callable[[str], T],
    groups: Iterable[Sequence[str]],
    *,
    workers: int,
    threads: int = 1,
) -> Generator[tuple[str, T | Lost], None, None]:
    """Yields each name with what the function returned for it, in the order of finishing.

    Closing the iterator ends the processes.

    Args:
        function: can be pickled, as can what it returns.
        groups: the names of one group are taken by one process, one after the other.
        workers: how many processes, at most.
        threads: of each process.
    """
    again = []
    with contextlib.closing(_once(function, groups, workers, threads)) as first:
        for name, value in first:
            if isinstance(value, Lost):
                again.append(name)
            else:
                yield name, value
    for name in again:  # alone: if memory was short, nobody else takes any
        with contextlib.closing(_once(function, [[name]], 1, threads)) as second:
            yield from second


def _once(
    function: Callable[[str], T], groups: Iterable[Sequence[str]], workers: int, threads: int
) -> Generator[tuple[str, T | Lost], None, None]:
    waiting = deque(list(group) for group in groups)
    crew: list[_Worker[T]] = []
    failed_starts = 0
    try:
        for _ in range(min(workers, len(waiting))):
            crew.append(_Worker(function, threads))
        while crew:
            for worker in _reporting(crew):
                message = worker.receive()
                if isinstance(message, _Finished):
                    worker.names.remove(message.name)
                    yield message.name, message.value
                elif isinstance(message, _Idle) and waiting:
                    worker.give(waiting.popleft())
                elif isinstance(message, _Idle):
                    crew.remove(worker)
                    worker.end()
                else:
                    crew.remove(worker)
                    how = worker.end()
                    if worker.names:  # the first of them is lost, the others were not begun
                        lost, *rest = worker.names
                        if rest:
                            waiting.appendleft(rest)
                        yield lost, Lost(how)
                    else:
                        failed_starts += 1
                        if failed_starts == STARTS:
                            raise ChildProcessError(
                                f"{STARTS} processes ended while they started; the last {how}"
                            )
                    if waiting:
                        crew.append(_Worker(function, threads))
    finally:
        for worker in crew:  # all are told before one is waited for
            worker.tell_to_end()
        for worker in crew:
            worker.end()


@dataclass(frozen=True)
class _Idle:
    """A process has nothing to do."""


@dataclass(frozen=True)
class _Finished:
    name: str
    value: Any


@dataclass(frozen=True)
class _Gone:
    """A process has ended."""


class _Worker(Generic[T]):
    """One process, seen from the one that started it."""

    def __init__(self, function: Callable[[str], T], threads: int) -> None:
        self.names: list[str] = []
        """What it was given and has not finished."""
        self.told = False
        self.connection, its_end = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_serve, args=(its_end, function), daemon=True)
        with _inherited(threads):
            self.process.start()
        its_end.close()

    def give(self, names: list[str]) -> None:
        self.names = names
        with contextlib.suppress(BrokenPipeError):  # it ended just now: receive() will say so
            self.connection.send(list(names))

    def receive(self) -> _Idle | _Finished | _Gone:
        try:
            if self.connection.poll():
                message: _Idle | _Finished = self.connection.recv()
                return message
        except (EOFError, OSError):
            pass
        return _Gone()

    def tell_to_end(self) -> None:
        """Once: a second signal would interrupt it in the midst of a step."""
        if not self.told:
            self.told = True
            self.process.terminate()

    def end(self) -> str:
        """Ends the process if it still runs; returns how it ended."""
        self.process.join(timeout=0.1)  # where the pipe is closed already, the rest follows
        if self.process.is_alive():
            self.tell_to_end()
            self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.connection.close()
        code = self.process.exitcode or 0
        return f"was killed (signal {-code})" if code < 0 else f"ended with exit code {code}"


def _reporting(crew: Sequence[_Worker[T]]) -> list[_Worker[T]]:
    """Waits until some of them have something to say, or have ended."""
    ready = wait([part for w in crew for part in (w.connection, w.process.sentinel)])
    return [w for w in crew if w.connection in ready or w.process.sentinel in ready]


def _serve(connection: Connection, function: Callable[[str], Any]) -> None:
    """What a process does: names in, values out, until the other end is closed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            connection.send(_Idle())
            for name in connection.recv():
                connection.send(_Finished(name, function(name)))


def _end_with_parent() -> None:
    """Ends this process, whatever it is doing, when the one that started it is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


@contextlib.contextmanager
def _inherited(threads: int) -> Iterator[None]:
    """What processes started here begin with.

    Their threads, in torch as in the libraries below NumPy and SciPy. Ctrl-C ignored: it is for the
    parent, which ends them.
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, str(threads)))
    handles_signals = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if handles_signals else None
    try:
        yield
    finally:
        if handles_signals:
            signal.signal(signal.SIGINT, handler)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
