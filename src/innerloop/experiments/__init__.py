"""Experiments: names become objects, and objects become runs on disk."""

from innerloop.experiments.candidates import candidates_for
from innerloop.experiments.catalogue import (
    ALGORITHMS,
    CANDIDATES,
    CURRICULA,
    MODELS,
    OBJECTIVES,
    OPTIMIZERS,
    REFERENCES,
    SCHEDULES,
    TABLES,
    TASKS,
)
from innerloop.experiments.experiment import Experiment, Run
from innerloop.experiments.own import own_learner
from innerloop.experiments.records import Record
from innerloop.experiments.spec import Spec, numbers, settable
from innerloop.experiments.study import MissingRecords, Study
from innerloop.experiments.sweep import Engine, Job, Outcome, Progress, jobs_of, processes, sweep
from innerloop.experiments.translators import open_translator

__all__ = [
    "ALGORITHMS",
    "CANDIDATES",
    "CURRICULA",
    "MODELS",
    "OBJECTIVES",
    "OPTIMIZERS",
    "REFERENCES",
    "SCHEDULES",
    "TABLES",
    "TASKS",
    "Engine",
    "Experiment",
    "Job",
    "MissingRecords",
    "Outcome",
    "Progress",
    "Record",
    "Run",
    "Spec",
    "Study",
    "candidates_for",
    "jobs_of",
    "numbers",
    "open_translator",
    "own_learner",
    "processes",
    "settable",
    "sweep",
]
