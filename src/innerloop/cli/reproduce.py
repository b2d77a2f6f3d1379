"""`innerloop reproduce`: measures claims and figures, prints verdicts, writes the report."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from innerloop import papers, reproduction
from innerloop.cli.console import console as make_console
from innerloop.cli.console import print_table, say
from innerloop.cli.retrain import retrain as retrain_all
from innerloop.experiments import processes
from innerloop.experiments.devices import usable
from innerloop.experiments.records import SHIPPED
from innerloop.papers import Entry, Outcome, Scale
from innerloop.report import write_report
from innerloop.reproduction import Result
from innerloop.runs import RunStore, require_writable, writable_folder, write_atomic

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
    retrain: bool = False,
    json_file: Annotated[Path | None, tyro.conf.arg(name="json")] = None,
    report: Path = Path("report"),
    runs: Path = Path("runs"),
    workers: int | None = None,
    threads: int = 1,
    device: str = "cpu",
) -> None:
    """Measures claims and figures, prints the verdicts and writes the report.

    Results are kept in the runs folder and found again until the code behind them changes. The
    report shows all that were found. Exit code 1: something could not be measured.

    Args:
        ids: papers, claims or figures, such as ahn2023 or ahn2023/theorem1; none means all.
        scale: smoke (seconds), quick (minutes on two cores) or paper (the paper's own settings).
        force: measure again what is already on disk.
        retrain: train again what the figures show from records, resumable, and compare.
        json_file: also write the verdicts to this file, as a list of objects.
        report: the folder of the report.
        runs: the folder of results.
        workers: processes that measure at the same time; as many as the cores have room for.
        threads: of each of them; the last digits of a training may depend on it.
        device: where --retrain trains, such as cuda; --workers 1 has one training on it at a time.
    """
    chosen = papers.select(ids)
    if workers is None:
        workers = max(1, (os.cpu_count() or 1) // max(1, threads))
    for name, value in (("workers", workers), ("threads", threads)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    usable(device)
    if device != "cpu" and not retrain:
        raise ValueError(f"device is where --retrain trains, which is not asked for; got {device}")
    for folder in (report, runs):
        writable_folder(folder)
    if json_file is not None:
        require_writable("json", json_file)
    console, store = make_console(), RunStore(runs)
    if retrain:
        retrain_all(chosen, scale, runs, processes(workers, device=device), console)
    on_disk = reproduction.all_found(scale, store)
    by_id = {e.id: on_disk[e.id] for e in chosen if e.id in on_disk and not force}
    missing = [entry for entry in chosen if entry.id not in by_id]
    if missing:
        measured = reproduction.measure_all(missing, scale, store, workers=workers, threads=threads)
        by_id |= _shown(missing, measured, console)
    elif chosen:
        console.print("all of it was found on disk; --force measures again")
    results = [by_id[entry.id] for entry in chosen]
    console.print(_verdict_table(results, scale, console.options.ascii_only))
    for result in results:
        if result.entry.tabulate is not None and result.tables and result.id in ids:
            for table in result.entry.tabulate(result.tables):
                print_table(table)
                console.print()
        if result.verdict.missing:
            say(f"inconclusive: {result.id}: {result.verdict.missing}")
    counts = {outcome: sum(r.outcome == outcome for r in results) for outcome in Outcome}
    console.print(", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count))
    if json_file is not None:
        records = [_finite(result.as_json()) for result in results]
        write_atomic(json_file.resolve(), json.dumps(records, indent=1, allow_nan=False))
        say(f"verdicts: {json_file}")
    # The page shows everything that is known at this scale, not only what was asked for now.
    known = on_disk | by_id
    with console.status("") as status:
        # Only a whole reproduction asks the models that ship; a part of it shows what is known.
        asking = 0 if ids or scale == Scale.SMOKE else workers
        inside = reproduction.inside_all(SHIPPED, store, workers=asking, watch=status.update)
    shown = [known[id] for id in papers.entries() if id in known]
    page = write_report(shown, report, inside=inside)
    say(f"report: {page.resolve()}")
    errors = [result for result in results if result.verdict.error]
    for result in errors:
        sentence = f"error: {result.id}: {result.verdict.error}"
        console.print(sentence, style=STYLES[Outcome.ERROR], soft_wrap=True)
    if errors:
        if any(runs.glob("*/error.txt")):
            say(f"tracebacks: {runs}/*/error.txt")
        raise SystemExit(1)


def _shown(
    missing: Sequence[Entry], measured: Generator[Result, None, None], console: Console
) -> dict[str, Result]:
    """The results by id, after saying of each that it is done, and what is left."""
    by_id: dict[str, Result] = {}
    waiting = f"measuring {len(missing)} claims and figures"
    with console.status(waiting) as status, closing(measured):
        for result in measured:
            by_id[result.id] = result
            console.print(_verdict_line(result), highlight=False)
            left = [entry.id for entry in missing if entry.id not in by_id]
            status.update(f"{len(left)} to go: {', '.join(left[:4])}")
    return by_id


def _verdict_line(result: Result) -> Text:
    return _styled(result.outcome) + f" {result.id} ({result.seconds:.1f} s)"


def _styled(outcome: Outcome) -> Text:
    return Text(str(outcome), style=STYLES[outcome])


def _verdict_table(results: Sequence[Result], scale: Scale, ascii_only: bool) -> Table:
    """At 80 columns an id of 32 letters has one line; a longer one is folded, not cut."""
    table = Table(title=f"verdicts at scale {scale}", box=SIMPLE_HEAD, padding=0, show_edge=False)
    at_least, at_most = (">=", "<=") if ascii_only else ("≥", "≤")
    table.add_column("id", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    for name in ("measured", "tolerance", "control"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in results:
        verdict = result.verdict
        checks = verdict.printed if result.outcome == Outcome.HOLDS else verdict.corrected
        checks = checks or verdict.printed
        check = min(checks, key=partial(_order, result.outcome), default=None)
        cells = ["", "", ""]
        if check is not None:
            sign = at_least if check.at_least else at_most
            cells = [
                f"{check.measured:.2g}",
                f"{sign} {check.tolerance:.2g}",
                f"{check.control:.2g}",
            ]
        table.add_row(result.id, _styled(result.outcome), *cells)
    return table


def _order(outcome: Outcome, check: papers.Check) -> tuple[bool, bool, float]:
    """Of several checks, the one with the smallest stands for all: what left it open if it is, else
    what fails, or came closest to failing."""
    settled = check.decides and check.separates
    return (settled == (outcome == Outcome.INCONCLUSIVE), check.passes, _margin(check))


def _margin(check: papers.Check) -> float:
    """How many orders of magnitude the measurement is away from the tolerance."""
    measured, tolerance = abs(check.measured) or 1e-300, abs(check.tolerance) or 1e-300
    return abs(math.log(measured / tolerance)) if math.isfinite(measured) else math.inf


def _finite(value: Any) -> Any:
    """JSON has no NaN or infinity: null stands for them."""
    if isinstance(value, dict):
        return {key: _finite(v) for key, v in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
