"""Claims and figures measured by several processes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from innerloop.papers.registry import Entry, select
from innerloop.papers.verdict import Scale
from innerloop.reproduction.reproduce import Result, reproduce, without_measurement
from innerloop.reproduction.stored import Record
from innerloop.runs import RunStore
from innerloop.workers import Lost, call_for_each


def measure_all(
    chosen: Sequence[Entry], scale: Scale, store: RunStore, *, workers: int, threads: int = 1
) -> Generator[Result, None, None]:
    """Measures every entry now, and yields each result when it is there.

    What raises, or has its process killed, is a result too: one that says so. Closing the iterator
    ends the processes.
    """
    entries = {entry.id: entry for entry in chosen}
    measure = partial(_measure, scale, store.root)
    groups = _groups(chosen)
    with closing(call_for_each(measure, groups, workers=workers, threads=threads)) as measured:
        for id, record in measured:
            if isinstance(record, Lost):
                sentence = f"the process that measured it {record.how} twice"
                yield without_measurement(entries[id], scale, sentence)
            else:
                yield Result.from_record(entries[id], scale, record)


def _groups(chosen: Sequence[Entry]) -> list[list[str]]:
    """Ids to be measured by one process; figures first, since they take longest."""
    groups: dict[str, list[str]] = {}
    for entry in sorted(chosen, key=lambda entry: entry.kind != "figure"):
        shared = getattr(entry, "shares", "")
        key = f"{entry.id.split('/')[0]}: {shared}" if shared else entry.id
        groups.setdefault(key, []).append(entry.id)
    return list(groups.values())


def _measure(scale: Scale, root: Path, id: str) -> Record:
    (entry,) = select([id])
    return reproduce(entry, scale, RunStore(root), force=True).as_record()
