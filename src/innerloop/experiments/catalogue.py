"""Names become objects here, and nowhere else.

An entry is a function, and stands in the module of its kind with the table that names it. Its
arguments without a default are given by the program, the others are the options of its spec; its
docstring is the line that `innerloop list` prints, which reads those modules as text.
"""

from __future__ import annotations

from typing import Any

from innerloop.experiments.named_algorithms import ALGORITHMS
from innerloop.experiments.named_candidates import CANDIDATES
from innerloop.experiments.named_models import MODELS
from innerloop.experiments.named_tasks import REFERENCES, TASKS
from innerloop.experiments.named_training import CURRICULA, OBJECTIVES, OPTIMIZERS, SCHEDULES
from innerloop.experiments.spec import Table

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
]

TABLES: dict[str, Table[Any]] = {
    "task": TASKS,
    "model": MODELS,
    "algorithm": ALGORITHMS,
    "candidate": CANDIDATES,
    "objective": OBJECTIVES,
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
    "curriculum": CURRICULA,
}
"""Every table by the kind of thing that it names."""
