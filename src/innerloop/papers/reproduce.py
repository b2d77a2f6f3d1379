"""Runs claims and figures, and keeps what they measured on disk."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from innerloop.papers.registry import Entry, Figure, FigureData, Table
from innerloop.papers.verdict import Check, Correction, Outcome, Scale, Verdict
from innerloop.runs import RunStore, read_json, write_atomic


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
            "measured": {check.quantity: check.measured for check in checks},
            "control": {check.quantity: check.control for check in checks},
            "tolerance": {check.quantity: check.tolerance for check in checks},
            "why": "; ".join(dict.fromkeys(check.why for check in checks)),
            "seconds": round(self.seconds, 3),
        }


def found(entry: Entry, scale: Scale, store: RunStore) -> Result | None:
    """The result that the same code left on disk, if there is one."""
    return _load(entry, scale, store.folder({"id": entry.id, "scale": str(scale)}))


def reproduce(entry: Entry, scale: Scale, store: RunStore, *, force: bool = False) -> Result:
    """The result of this entry: from disk if the same code made it before, measured now if not."""
    folder = store.folder({"id": entry.id, "scale": str(scale)})
    if not force and (saved := _load(entry, scale, folder)) is not None:
        return saved
    start = time.perf_counter()
    if isinstance(entry, Figure):
        data = entry.compute(scale)
    else:
        data = FigureData({}, "", entry.check(scale))
    seconds = time.perf_counter() - start
    result = Result(entry, scale, data.verdict, seconds, data.caption, data.tables)
    _save(result, folder)
    # What is returned is what a later run will read: one path, whether measured or found.
    measured = _load(entry, scale, folder)
    assert measured is not None
    return replace(measured, from_disk=False)


def _save(result: Result, folder: Path) -> None:
    for name, table in result.tables.items():
        write_atomic(folder / f"{name}.csv", as_csv(table))
    record = {
        "id": result.id,
        "scale": str(result.scale),
        "seconds": result.seconds,
        "caption": result.caption,
        "tables": {name: {k: list(v) for k, v in t.items()} for name, t in result.tables.items()},
        "verdict": {
            "printed": [asdict(check) for check in result.verdict.printed],
            "corrected": [asdict(check) for check in result.verdict.corrected],
            "correction": result.verdict.correction and asdict(result.verdict.correction),
            "settings": dict(result.verdict.settings),
            "missing": result.verdict.missing,
        },
    }
    write_atomic(folder / "result.json", json.dumps(record, indent=1))


def _load(entry: Entry, scale: Scale, folder: Path) -> Result | None:
    record: Any = read_json(folder / "result.json")
    try:
        saved = record["verdict"]
        verdict = Verdict(
            [Check(**check) for check in saved["printed"]],
            [Check(**check) for check in saved["corrected"]],
            saved["correction"] and Correction(**saved["correction"]),
            saved["settings"],
            saved["missing"],
        )
        rest = record["seconds"], record["caption"], record["tables"]
    except (TypeError, KeyError):  # nothing there, or not what `_save` writes: measure again
        return None
    return Result(entry, scale, verdict, *rest, from_disk=True)


def as_csv(table: Table) -> str:
    """The table with a header line, numbers in full precision."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return file.getvalue()
