"""Runs claims under mutations, each in a process of its own, and counts what notices."""

from __future__ import annotations

import inspect
import multiprocessing
import pkgutil
import signal
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import Any

import torch

from innerloop import papers, theory
from innerloop.papers import Scale
from tests.mutations.mutation import Mutation, applied, times

AUTOMATIC = 1.01
"""What the value of every public function of theory is multiplied by."""
FORK = multiprocessing.get_context("fork")
PATIENCE = 120.0
"""Seconds of computing after which a claim has noticed: broken formulas can search for ever."""


@dataclass(frozen=True)
class Trial:
    """One claim under one mutation."""

    what: str
    target: str
    id: str
    before: str
    after: str

    @property
    def noticed(self) -> bool:
        return self.after != self.before


def public_functions() -> dict[str, str]:
    """Every public function of theory as a target, module:name, by what users call it."""
    found: dict[str, str] = {}
    for info in pkgutil.iter_modules(theory.__path__):
        group = import_module(f"innerloop.theory.{info.name}")
        for name in getattr(group, "__all__", ()):
            thing = getattr(group, name)
            if inspect.isfunction(inspect.unwrap(thing)):
                module = inspect.unwrap(thing).__module__.removeprefix("innerloop.")
                found[f"theory.{info.name}.{name}"] = f"{module}:{name}"
    return found


def baseline(ids: Iterable[str], workers: int) -> dict[str, tuple[str, frozenset[str]]]:
    """The outcome of every claim at smoke, and the public functions of theory that it calls."""
    every = list(ids)
    with FORK.Pool(workers, maxtasksperchild=1) as pool:
        results = pool.map(_observed, every, chunksize=1)
    return dict(zip(every, results, strict=True))


def automatic(known: dict[str, tuple[str, frozenset[str]]]) -> list[tuple[Mutation, str]]:
    """Every public function times 1.01, for every claim that calls it."""
    trials = []
    for name, target in public_functions().items():
        callers = tuple(id for id, (_, called) in known.items() if name in called)
        mutation = Mutation(f"{name} times {AUTOMATIC}", target, times(AUTOMATIC), callers)
        trials += [(mutation, id) for id in callers]
    return trials


def run(
    trials: Sequence[tuple[Mutation, str]],
    known: dict[str, tuple[str, frozenset[str]]],
    workers: int,
) -> Iterable[Trial]:
    """The trials as they finish."""
    global _TRIALS
    _TRIALS = trials  # functions do not travel through a pipe; a fork inherits them
    with FORK.Pool(workers, maxtasksperchild=1) as pool:
        for index, outcome in pool.imap_unordered(_mutated, range(len(trials)), chunksize=1):
            mutation, id = trials[index]
            yield Trial(mutation.what, mutation.target, id, known[id][0], outcome)


_TRIALS: Sequence[tuple[Mutation, str]] = ()


def _outcome(id: str) -> str:
    torch.set_num_threads(1)
    signal.signal(signal.SIGVTALRM, _give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE)
    try:
        return str(papers.entries()[id].measure(Scale.SMOKE).verdict.outcome)
    except Exception as error:
        return f"error: {type(error).__name__}: {str(error)[:80]}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _give_up(number: int, frame: object) -> None:
    raise TimeoutError(f"not done after {PATIENCE:g} seconds")


def _mutated(index: int) -> tuple[int, str]:
    mutation, id = _TRIALS[index]
    with applied(mutation.target, mutation.wrong):
        return index, _outcome(id)


def _observed(id: str) -> tuple[str, frozenset[str]]:
    called: set[str] = set()

    def noting(name: str) -> Any:
        def wrong(right: Any) -> Any:
            @wraps(right)
            def function(*arguments: Any, **named: Any) -> Any:
                called.add(name)
                return right(*arguments, **named)

            return function

        return wrong

    with ExitStack() as stack:
        for name, target in public_functions().items():
            stack.enter_context(applied(target, noting(name)))
        outcome = _outcome(id)
    return outcome, frozenset(called)
