"""Claims and figures measured by several processes, each on one thread.

One thread each, because the matrices are small, and because a number should not depend on how many
processes measured its neighbours.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from innerloop.papers.registry import Entry, select
from innerloop.papers.reproduce import Result, found, reproduce
from innerloop.papers.verdict import Scale
from innerloop.runs import RunStore

Job = tuple[list[str], Scale, Path]


def measure_all(
    chosen: Sequence[Entry], scale: Scale, store: RunStore, *, workers: int
) -> Iterator[Result]:
    """Measures every entry now, and yields each result when it is there."""
    jobs: list[Job] = [(ids, scale, store.root) for ids in _groups(chosen)]
    entries = {entry.id: entry for entry in chosen}
    # Fresh processes: a fork of one that has used torch's threads may hang.
    context = multiprocessing.get_context("spawn")
    with _inherited():
        pool = context.Pool(min(workers, len(jobs)))
    with pool:
        for ids in pool.imap_unordered(_measure, jobs):
            for id in ids:
                result = found(entries[id], scale, store)
                assert result is not None, f"{id} was measured but not saved"
                yield replace(result, from_disk=False)


def _groups(chosen: Sequence[Entry]) -> list[list[str]]:
    """Ids to be measured by one process; figures first, since they take longest."""
    groups: dict[str, list[str]] = {}
    for entry in sorted(chosen, key=lambda entry: entry.kind != "figure"):
        shared = getattr(entry, "shares", "")
        key = f"{entry.id.split('/')[0]}: {shared}" if shared else entry.id
        groups.setdefault(key, []).append(entry.id)
    return list(groups.values())


@contextmanager
def _inherited() -> Iterator[None]:
    """What processes started here begin with.

    One thread, in torch as in the libraries below NumPy and SciPy. Ctrl-C ignored: it is for the
    parent, which ends them.
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _measure(job: Job) -> list[str]:
    ids, scale, root = job
    for entry in select(ids):
        reproduce(entry, scale, RunStore(root), force=True)
    return ids
