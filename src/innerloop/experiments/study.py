"""A study: the trainings behind a figure, and what is measured of each trained model.

Its results are records. Those that ship with the package are found at once; `retrain` makes them
anew, in a folder of the user's, and the figure is then drawn from those.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from innerloop.experiments.experiment import Experiment, Run
from innerloop.experiments.records import SHIPPED, Record, Table
from innerloop.experiments.sweep import Engine, Job, Outcome, jobs_of, sweep

RECORDS = "INNERLOOP_RECORDS"
"""The variable that names a folder of records which take the place of those that ship, study by
study, for this process and those it starts."""

Notify = Callable[[str], None]
"""Told in a few words what is done now."""


class MissingRecords(ValueError):
    """A figure needs trainings that nobody has recorded; the message says what they would take."""


@dataclass(frozen=True)
class Study:
    """Experiments by name, for each scale, and the tables that a trained model gives.

    Attributes:
        name: of the records' folder, such as "zhang2023/figure1".
        experiments: from a scale to what is trained at it.
        measure: from a trained run to tables, as a record keeps them.
        seconds_per_step: of one of these experiments on one core here, for estimates beforehand.
        with_weights: the experiments whose weights ship as well.
        prepare: makes what the trainings of a scale take from outside, such as a corpus, telling
            its second argument what it does.
        beside: other studies whose records the figure reads as well.
    """

    name: str
    experiments: Callable[[str], Mapping[str, Experiment]]
    measure: Callable[[Run], Mapping[str, Table]]
    seconds_per_step: Callable[[Experiment], float]
    with_weights: Callable[[str], bool] = lambda name: False
    prepare: Callable[[str, Notify], None] = lambda scale, notify: None
    beside: tuple[Study, ...] = ()

    def jobs(self, scale: str, folder: Path) -> list[Job]:
        return jobs_of(self.experiments(scale), folder / self.name)

    def cost(self, scale: str) -> float:
        """Core-hours of all trainings of a scale, about."""
        every = self.experiments(scale).values()
        return sum(e.steps * self.seconds_per_step(e) for e in every) / 3600

    def retrain(
        self,
        scale: str,
        folder: Path,
        records: Path,
        *,
        engine: Engine | None = None,
        notify: Notify = lambda sentence: None,
    ) -> Iterator[Outcome]:
        """Trains what is not finished, measures each model, and writes the records.

        The same experiment in several studies is trained once.
        """
        (records / self.name).mkdir(parents=True, exist_ok=True)
        self.prepare(scale, notify)
        jobs = {job.name: job for job in self.jobs(scale, folder)}
        for job in jobs.values():
            _take_over(job, folder)
        for outcome in sweep(self.experiments(scale), folder / self.name, engine=engine):
            if outcome.run is not None:
                self.record(outcome.name, outcome.run, jobs[outcome.name], records)
            yield outcome

    def record(self, name: str, run: Run, job: Job, records: Path) -> Record:
        """Measures a trained model, and writes its record."""
        seconds = job.progress().seconds
        record = Record.of(f"{self.name}/{name}", run, self.measure(run), seconds)
        record.save(records, weights_of=run.model if self.with_weights(name) else None)
        return record

    def results(self, scale: str, root: Path | None = None) -> dict[str, Record]:
        """The record of every experiment, by its name.

        A record whose experiment is another one than the study's is not its result.

        Args:
            root: of the records; by default those that were trained anew, or that ship.
        """
        root = records_of(self.name) if root is None else root
        found, missing = {}, []
        for name, experiment in self.experiments(scale).items():
            record = self._found(name, root)
            if record is None or record.experiment != experiment:
                missing.append(name)
            else:
                found[name] = record
        if missing:
            raise MissingRecords(
                f"{len(missing)} of {len(missing) + len(found)} trainings at scale {scale} have no "
                f"record; `innerloop reproduce {self.name} --scale {scale} --retrain` makes them "
                f"in about {self.cost(scale):.3g} core-hours"
            )
        return found

    def _found(self, name: str, root: Path) -> Record | None:
        try:
            return Record.open(f"{self.name}/{name}", root)
        except ValueError:
            return None

    def recorded(self, scale: str) -> str:
        """When, where and how long its trainings were made, in a few words."""
        records = list(self.results(scale).values())
        days = sorted({record.recorded for record in records})
        when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
        hours = sum(record.seconds for record in records) / 3600
        machines = " and ".join(sorted({record.machine for record in records}))
        count = f"{len(records)} training{'s' * (len(records) > 1)}"
        return f"{count} recorded on {when}, {hours:.2g} hours in all, one core each, on {machines}"

    def digest(self) -> str:
        """Changes with any of the study's records, and of those beside it."""
        together = hashlib.sha256("".join(other.digest() for other in self.beside).encode())
        for path in sorted((records_of(self.name) / self.name).rglob("*.json")):
            together.update(path.name.encode() + path.read_bytes())
        return together.hexdigest()[:12]


def _take_over(job: Job, folder: Path) -> None:
    """Copies a finished training of this experiment from another study of the same folder."""
    if job.finished:
        return
    for other in sorted(folder.rglob(f"*-{job.experiment.key}")):
        if replace(job, folder=other).finished:
            shutil.copytree(other, job.folder, dirs_exist_ok=True)
            return


def records_of(study: str) -> Path:
    """The root of the records of this study: those that ship, unless it was trained anew."""
    anew = Path(os.environ.get(RECORDS, SHIPPED))
    return anew if (anew / study).is_dir() else SHIPPED
