"""Runs claims and figures, and keeps what they measured on disk."""

from __future__ import annotations

import json
import textwrap
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from innerloop.papers.common import SEED_BLOCK
from innerloop.papers.registry import Entry, Table, entries
from innerloop.papers.verdict import Outcome, Scale, Verdict
from innerloop.reproduction.dependencies import code_behind
from innerloop.reproduction.stored import Contents, Damaged, Record, sealed, unsealed
from innerloop.runs import OutputError, RunStore, read_json, write_atomic
from innerloop.tables import as_csv


@dataclass(frozen=True)
class Result:
    """What one claim or figure measured."""

    entry: Entry
    scale: Scale
    verdict: Verdict
    seconds: float
    """How long the measurement took, when it was made."""
    caption: str = ""
    tables: Mapping[str, Table] = field(default_factory=dict)
    from_disk: bool = False

    @property
    def id(self) -> str:
        return self.entry.id

    @property
    def outcome(self) -> Outcome:
        return self.verdict.outcome

    def as_json(self) -> dict[str, Any]:
        """The machine-readable form of `innerloop reproduce --json`."""
        checks = [*self.verdict.printed, *self.verdict.corrected]
        return {
            "id": self.id,
            "kind": self.entry.kind,
            "verdict": str(self.outcome),
            "statement": self.entry.statement,
            "measured": {check.name: check.measured for check in checks},
            "control": {check.name: check.control for check in checks},
            "tolerance": {check.name: check.tolerance for check in checks},
            "why": "; ".join(dict.fromkeys(check.why for check in checks)),
            "error": self.verdict.error,
            "seconds": round(self.seconds, 3),
        }

    def as_record(self) -> Record:
        """All of it, as it is kept on disk."""
        contents = Contents(self.verdict, self.seconds, self.caption, self.tables)
        return {"id": self.id, "scale": str(self.scale), **contents.as_record()}

    @classmethod
    def from_record(
        cls, entry: Entry, scale: Scale, record: Record, *, from_disk: bool = False
    ) -> Result:
        if (record.get("id"), record.get("scale")) != (entry.id, str(scale)):
            raise Damaged(f"not the result of {entry.id} at scale {scale}")
        contents = Contents.of(record)
        return cls(
            entry,
            scale,
            contents.verdict,
            contents.seconds,
            contents.caption,
            contents.tables,
            from_disk,
        )


def found(entry: Entry, scale: Scale, store: RunStore) -> Result | None:
    """The result that the same code left on disk, if there is one."""
    content = read_json(_folder(entry, scale, store) / "result.json")
    try:
        return Result.from_record(entry, scale, unsealed(content), from_disk=True)
    except (Damaged, RecursionError):  # nothing there, or not what was written: measure again
        return None


def all_found(scale: Scale, store: RunStore) -> dict[str, Result]:
    """Every result of this scale that the present code left on disk, by id."""
    results = {id: found(entry, scale, store) for id, entry in entries().items()}
    return {id: result for id, result in results.items() if result is not None}


def reproduce(entry: Entry, scale: Scale, store: RunStore, *, force: bool = False) -> Result:
    """The result of this entry: from disk if the same code made it before, measured now if not.

    An entry that raises has a result too, with the outcome *error*. It is not kept, so that the
    entry is measured again next time; the traceback is, in error.txt.
    """
    if not force and (saved := found(entry, scale, store)) is not None:
        return saved
    folder = _folder(entry, scale, store)
    start = time.perf_counter()
    try:
        data = entry.measure(scale)
        seconds = time.perf_counter() - start
        result = Result(entry, scale, data.verdict, seconds, data.caption, data.tables)
        return _save(result, folder)
    except Exception as error:
        with suppress(OSError):
            write_atomic(folder / "error.txt", traceback.format_exc())
        return without_measurement(
            entry, scale, _sentence(error), seconds=time.perf_counter() - start
        )


def without_measurement(entry: Entry, scale: Scale, error: str, *, seconds: float = 0.0) -> Result:
    """The result of an entry that could not be measured, for the reason in this sentence."""
    return Result(entry, scale, Verdict([], error=error), seconds)


def _sentence(error: Exception) -> str:
    if isinstance(error, OutputError):
        return f"it could not be saved: {error}"
    message = textwrap.shorten(str(error), 300, placeholder=" ...") or "no message"
    return f"{type(error).__name__}: {message}"


def _folder(entry: Entry, scale: Scale, store: RunStore) -> Path:
    """Named by all that the result depends on."""
    return store.folder(
        {
            "id": entry.id,
            "scale": str(scale),
            "code": code_behind(entry.function),
            "torch": torch.__version__,
            "seeds": SEED_BLOCK,
            "records": entry.study.digest() if entry.study else "",
        }
    )


def _save(result: Result, folder: Path) -> Result:
    """Writes it, and returns what a later run will read: one path, whether measured or found."""
    for name, table in result.tables.items():
        write_atomic(folder / f"{name}.csv", as_csv(table))
    text = sealed(result.as_record())
    read_again = Result.from_record(result.entry, result.scale, unsealed(json.loads(text)))
    write_atomic(folder / "result.json", text)
    (folder / "error.txt").unlink(missing_ok=True)
    return read_again
