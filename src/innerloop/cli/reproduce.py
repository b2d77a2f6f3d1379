"""`innerloop reproduce`: measures claims and figures, prints verdicts, writes the report."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from innerloop import papers
from innerloop.papers import Outcome, Result, Scale
from innerloop.report import write_report
from innerloop.runs import RunStore, writable_folder, write_atomic

STYLES = {
    Outcome.HOLDS: "green",
    Outcome.CORRECTED: "yellow",
    Outcome.FAILS: "red",
    Outcome.INCONCLUSIVE: "magenta",
    Outcome.ERROR: "bold red",
}
Ids = Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="[ID ...]")]


def reproduce(
    ids: Ids,
    scale: Annotated[Scale, tyro.conf.EnumChoicesFromValues] = Scale.QUICK,
    force: bool = False,
    json_file: Annotated[Path | None, tyro.conf.arg(name="json")] = None,
    report: Path = Path("report"),
    runs: Path = Path("runs"),
    workers: int = os.cpu_count() or 1,
) -> None:
    """Measures claims and figures, prints the verdicts and writes the report.

    Results are kept in the runs folder and found again until the code changes.

    Args:
        ids: papers, claims or figures, such as ahn2023 or ahn2023/theorem1; none means all.
        scale: smoke (seconds), quick (minutes on two cores) or paper (the paper's own settings).
        force: measure again what is already on disk.
        json_file: also write the verdicts to this file, as a list of objects.
        report: the folder of the report.
        runs: the folder of results.
        workers: processes that measure at the same time, each on one thread.
    """
    chosen = papers.select(ids)
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    for folder in (report, runs, *([json_file.parent] if json_file else [])):
        writable_folder(folder)
    console, store = Console(), RunStore(runs)
    on_disk = {e.id: None if force else papers.found(e, scale, store) for e in chosen}
    by_id = {id: result for id, result in on_disk.items() if result is not None}
    missing = [entry for entry in chosen if entry.id not in by_id]
    if missing:
        with console.status(f"measuring {len(missing)} claims and figures") as status:
            for result in papers.measure_all(missing, scale, store, workers=workers):
                by_id[result.id] = result
                console.print(_verdict_line(result), highlight=False)
                left = [entry.id for entry in missing if entry.id not in by_id]
                status.update(f"{len(left)} to go: {', '.join(left[:4])}")
    elif chosen:
        console.print("all of it was found on disk; --force measures again")
    results = [by_id[entry.id] for entry in chosen]
    console.print(_verdict_table(results, scale))
    counts = {outcome: sum(r.outcome == outcome for r in results) for outcome in Outcome}
    console.print(", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count))
    if json_file is not None:
        records = [_finite(result.as_json()) for result in results]
        write_atomic(json_file, json.dumps(records, indent=1, allow_nan=False))
        console.print(f"verdicts: {json_file}", soft_wrap=True)
    console.print(f"report: {write_report(results, report).resolve()}", soft_wrap=True)


def _verdict_line(result: Result) -> str:
    style = STYLES[result.outcome]
    return f"[{style}]{result.outcome}[/] {result.id} ({result.seconds:.1f} s)"


def _verdict_table(results: list[Result], scale: Scale) -> Table:
    table = Table(title=f"verdicts at scale {scale}", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("id", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for name in ("measured", "tolerance", "control"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in results:
        verdict = result.verdict
        checks = verdict.printed if result.outcome == Outcome.HOLDS else verdict.corrected
        checks = checks or verdict.printed
        # Of several checks, one that fails or came closest to failing stands for the row.
        check = min(checks, key=lambda c: (c.passes, _margin(c)), default=None)
        style = STYLES[result.outcome]
        cells = ["", "", ""]
        if check is not None:
            sign = "≥" if check.at_least else "≤"
            cells = [
                f"{check.measured:.2g}",
                f"{sign} {check.tolerance:.2g}",
                f"{check.control:.2g}",
            ]
        table.add_row(result.id, f"[{style}]{result.outcome}[/]", *cells)
    return table


def _margin(check: papers.Check) -> float:
    """How many orders of magnitude the measurement is away from the tolerance."""
    measured, tolerance = abs(check.measured) or 1e-300, abs(check.tolerance) or 1e-300
    return abs(math.log(measured / tolerance)) if math.isfinite(measured) else math.inf


def _finite(value: Any) -> Any:
    """JSON has no NaN or infinity: null stands for them."""
    if isinstance(value, dict):
        return {key: _finite(v) for key, v in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
