"""Many experiments: one list, run by whatever engine there is, never twice.

    for outcome in sweep({"seed 0": Experiment(...), "seed 1": Experiment(...)}, "runs/seeds"):
        print(outcome.name, outcome.error or outcome.run.history["loss"][-1])

Every experiment trains into a folder of its own and goes on from what it finds there, so a sweep
that was interrupted is started again by the same call. One that fails is reported beside the
others.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from innerloop.experiments.experiment import WEIGHTS, Experiment, Run
from innerloop.runs import read_json, write_atomic
from innerloop.training import CheckpointError, read_checkpoint
from innerloop.workers import Lost, call_for_each

PROGRESS = "progress.json"
SECONDS_BETWEEN = 1.0
"""Between two notes of how far a training is."""


@dataclass(frozen=True)
class Job:
    """An experiment and the folder that it trains into."""

    name: str
    experiment: Experiment
    folder: Path

    @property
    def finished(self) -> bool:
        """Whether the folder holds this training, to its last step."""
        try:
            header, _ = read_checkpoint(self.folder / WEIGHTS)
        except (CheckpointError, OSError):
            return False
        return header["step"] >= self.experiment.steps and _same(header["config"], self.experiment)

    def progress(self) -> Progress:
        """What the training last said of itself, whoever runs it."""
        record: Any = read_json(self.folder / PROGRESS)
        try:
            return Progress(**record)
        except TypeError:  # not there, or not what was written
            return Progress(0, self.experiment.steps, float("nan"), 0.0, 0.0)

    def train(self, device: str = "cpu") -> None:
        """Trains to the end in this process, leaving notes of its progress."""
        before, started = self.progress().seconds, time.perf_counter()
        noted, steps = 0.0, 0

        def watch(step: int, loss: float) -> None:
            nonlocal noted, steps
            now, steps = time.perf_counter(), steps + 1
            if now - noted > SECONDS_BETWEEN or step == self.experiment.steps:
                noted, here = now, now - started
                progress = Progress(step, self.experiment.steps, loss, steps / here, before + here)
                write_atomic(self.folder / PROGRESS, json.dumps(vars(progress)))

        self.experiment.run(self.folder, device=device, watch=watch)


@dataclass(frozen=True)
class Progress:
    """How far a training is."""

    step: int
    steps: int
    loss: float
    """Of the last step."""
    speed: float
    """Steps in a second since it was last started."""
    seconds: float
    """Spent on it in all, what was lost at interruptions included."""

    @property
    def seconds_left(self) -> float:
        return (self.steps - self.step) / self.speed if self.speed else float("nan")


Engine = Callable[[Sequence[Job]], Iterable[tuple[str, str]]]
"""Trains all jobs, and yields the name of each when it has ended, with the sentence of an error or
an empty one. The jobs' folders are where it must leave them; how it gets there is its own."""


def processes(
    workers: int = os.cpu_count() or 1, *, threads: int = 1, device: str = "cpu"
) -> Engine:
    """So many processes of this machine, by default one for each core with one thread.

    Args:
        device: where all of them train, such as cuda.
    """
    for name, value in (("workers", workers), ("threads", threads)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")

    def engine(jobs: Sequence[Job]) -> Iterator[tuple[str, str]]:
        by_name = {job.name: job for job in jobs}
        groups = [[name] for name in by_name]
        train = partial(_train, by_name, device)
        with closing(call_for_each(train, groups, workers=workers, threads=threads)) as ended:
            for name, said in ended:
                how = f"its process {said.how} twice" if isinstance(said, Lost) else said
                yield name, how

    return engine


@dataclass(frozen=True)
class Outcome:
    """How one experiment of a sweep ended."""

    name: str
    run: Run | None
    error: str = ""
    """Non-empty: why there is no run, as a sentence."""


def jobs_of(experiments: Mapping[str, Experiment], folder: Path | str) -> list[Job]:
    """A folder for every experiment, called by its name and by a key of all that it is."""
    return [Job(k, e, Path(folder) / f"{_plain(k)}-{e.key}") for k, e in experiments.items()]


def sweep(
    experiments: Mapping[str, Experiment], folder: Path | str, *, engine: Engine | None = None
) -> Iterator[Outcome]:
    """Runs every experiment that is not finished, and yields each when it has ended.

    Those that the folder holds already come first. Watch the others by `Job.progress`.
    """
    jobs = jobs_of(experiments, folder)
    done = [job for job in jobs if job.finished]
    for job in done:
        yield Outcome(job.name, Run.open(job.folder))
    missing = {job.name: job for job in jobs if job not in done}
    if missing:
        for name, error in (engine or processes())(list(missing.values())):
            yield Outcome(name, None if error else Run.open(missing[name].folder), error)


def _train(jobs: Mapping[str, Job], device: str, name: str) -> str:
    try:
        jobs[name].train(device)
    except Exception as error:  # reported beside the others
        return f"{type(error).__name__}: {error}"
    return ""


def _same(config: Any, experiment: Experiment) -> bool:
    try:
        return Experiment.from_json(config) == experiment
    except ValueError:
        return False


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in ".-+=" else "-" for c in name)
