"""`innerloop reproduce ID --retrain`: makes the records behind figures anew."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from innerloop.corpora import CorpusError
from innerloop.experiments import Engine, Job, Record, Study
from innerloop.experiments.records import SHIPPED, names
from innerloop.experiments.study import RECORDS
from innerloop.papers import Entry, Scale


def retrain(
    chosen: Sequence[Entry], scale: Scale, runs: Path, engine: Engine, console: Console
) -> None:
    """Trains what the chosen figures show, and has them drawn from these trainings.

    What an earlier call has finished is found; the record of each training is compared with the
    one that ships. A training that fails is named, and the figures that need it will say so; so is
    a study whose corpus cannot be built.
    """
    asked = [entry.study for entry in chosen if entry.study is not None]
    studies = {study.name: study for one in asked for study in (one, *one.beside)}
    if not studies:
        raise ValueError("--retrain is for figures with recorded trainings, and none is chosen")
    records = runs / "records"
    for study in studies.values():
        jobs = study.jobs(scale, runs / "trainings")
        console.print(
            f"{study.name}: {len(jobs)} trainings, about {study.cost(scale):.2g} core-hours in "
            "all. Interrupted, the same command goes on."
        )
        try:
            _watched(study, jobs, scale, runs, records, engine, console)
        except CorpusError as error:
            console.print(Text("failed", "red") + f" {study.name}: {error}", soft_wrap=True)
    os.environ[RECORDS] = str(records.resolve())


def _watched(
    study: Study,
    jobs: Sequence[Job],
    scale: Scale,
    runs: Path,
    records: Path,
    engine: Engine,
    console: Console,
) -> None:
    def notify(sentence: str) -> None:
        console.print(f"{study.name}: {sentence}", markup=False, highlight=False)

    running = study.retrain(scale, runs / "trainings", records, engine=engine, notify=notify)
    with Live(get_renderable=lambda: _table(jobs), console=console, refresh_per_second=1):
        for outcome in running:
            # As text: square brackets in a name or an error are not markup.
            if outcome.error:
                line = Text("failed", "red") + f" {outcome.name}: {outcome.error}"
            else:
                line = Text(f"trained {outcome.name}: {_compared(study, outcome.name, records)}")
            console.print(line, soft_wrap=True)


def _table(jobs: Sequence[Job]) -> Table:
    """Every training that has begun and is not finished."""
    table = Table("training", "step", "loss", "steps/s", "time left", box=SIMPLE_HEAD)
    for job in jobs:
        now = job.progress()
        if 0 < now.step < now.steps:
            left = "" if math.isnan(now.seconds_left) else str(timedelta(0, int(now.seconds_left)))
            share = f"{now.step} of {now.steps}"
            table.add_row(job.name, share, f"{now.loss:.4g}", f"{now.speed:.3g}", left)
    return table


def _compared(study: Study, name: str, records: Path) -> str:
    """How far the new record is from the one that ships, in words."""
    full = f"{study.name}/{name}"
    new = Record.open(full, records)
    loss = f"loss {new.history['loss'][-1]:.4g}"
    if full not in names(SHIPPED):
        return f"{loss}, no record of it ships"
    old = Record.open(full)
    if old.experiment != new.experiment:
        return f"{loss}, the record that ships is of another experiment"
    return f"{loss}, recorded on {old.recorded}: {old.history['loss'][-1]:.4g}"
