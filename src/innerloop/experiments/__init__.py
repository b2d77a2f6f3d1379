"""Experiments: names become objects, and objects become runs on disk."""

from innerloop.experiments.catalogue import (
    ALGORITHMS,
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
from innerloop.experiments.spec import Spec, numbers, settable

__all__ = [
    "ALGORITHMS",
    "CURRICULA",
    "MODELS",
    "OBJECTIVES",
    "OPTIMIZERS",
    "REFERENCES",
    "SCHEDULES",
    "TABLES",
    "TASKS",
    "Experiment",
    "Run",
    "Spec",
    "numbers",
    "own_learner",
    "settable",
]
