"""Trained models compared: on the same prompts, over several trainings.

"Better" is a lower error, on fresh prompts and over all seeds: the logarithm of the ratio of two
errors must be below 0 by four standard errors, above 0 by as many it fails, and in between it is
open. The standard error counts prompts and seeds, and that few seeds say little of how seeds vary;
it is of logarithms because errors differ between seeds by factors, up as much as down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from innerloop.analysis import Estimate
from innerloop.experiments import Record
from innerloop.papers.algoformer2024.trained.measuring import MODEL
from innerloop.papers.plots import as_rows, as_table, where
from innerloop.papers.quantity import SAMPLING, at_least, at_most, checks, widening
from innerloop.papers.registry import Table, Tables
from innerloop.papers.verdict import Check

LOWER = at_most(0.0, "the statement: a lower error. Its standard error is of prompts and seeds")
NOT_LOWER = at_least(0.0, "the statement: no lower error. Its standard error is as above")
FALLS = at_least(0.0, "the statement: it falls. Its standard error is of prompts and seeds")
ROUNDING = 1e-6
"""Of errors in float32: standard errors are not counted as smaller."""


def together(results: Mapping[str, Record], *kept: str) -> dict[str, Table]:
    """The tables of all records, one under the other, with the model and seed that each is of.

    All tables, or those that are named.
    """
    every: dict[str, list[dict[str, Any]]] = {}
    for name, record in results.items():
        own = {"model": name.partition("-seed")[0], "seed": record.experiment.seed}
        parts = {**record.tables, "training": record.history}
        for table in kept or parts:
            rows = as_rows(parts[table])
            every.setdefault(table, []).extend({**own, **row} for row in rows)
    return {table: as_table(rows) for table, rows in every.items()}


@dataclass(frozen=True)
class Errors:
    """The errors of one learner: of every seed that it was trained with, on blocks of prompts."""

    values: np.ndarray
    """[seeds, blocks]; the same prompts in all rows, and in all learners of a study."""
    spread: float = 0.0
    """Relative standard deviation between seeds, as `seed_spread` has it; 0 of what is not
    trained."""

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    @property
    def of_seeds(self) -> float:
        """The variance of the mean that comes from the choice of seeds, relative."""
        return self.spread**2 / len(self.values)

    @property
    def estimate(self) -> Estimate:
        blocks = self.values.mean(0)
        of_prompts = blocks.var(ddof=1) / len(blocks)
        error = math.sqrt(of_prompts + self.mean**2 * self.of_seeds)
        return Estimate(self.mean, error, self.values.size)


def ratio(of: Errors, to: Errors) -> Estimate:
    """The mean error of one over that of the other, with the standard error of prompts and seeds.

    Both answered the same prompts, so that of their blocks only the difference counts:

        (se / ratio)^2 = var_blocks(a_b / a - c_b / c) / blocks + spread_a^2 / seeds + (same of c)
    """
    blocks = of.values.mean(0) / of.mean - to.values.mean(0) / to.mean
    of_prompts = blocks.var(ddof=1) / len(blocks)
    value = of.mean / to.mean
    return Estimate(
        value, value * math.sqrt(of_prompts + of.of_seeds + to.of_seeds), of.values.size
    )


def logarithm(of: Estimate) -> Estimate:
    """Its relative standard error becomes an absolute one."""
    return Estimate(math.log(of.mean), of.standard_error / of.mean, of.samples)


def seed_spread(
    tables: Tables, column: str, models: Sequence[str] = (), *, learner: str = MODEL
) -> float:
    """The relative standard deviation between seeds, pooled over these models, or over all, and
    widened for how few they are.

    0 if none has several: then the standard error is of prompts alone, and a verdict speaks of the
    trainings that were made.
    """
    squares, freedom = 0.0, 0
    for model in models or dict.fromkeys(tables["blocks"]["model"]):
        means = _values(tables, str(model), learner, column).mean(1)
        squares += float(((means / means.mean() - 1) ** 2).sum())
        freedom += len(means) - 1
    return widening(freedom) * math.sqrt(squares / freedom) if freedom else 0.0


def errors(
    tables: Tables, model: str, column: str, *, learner: str = MODEL, spread: float = 0.0
) -> Errors:
    """Of a model, or of another learner on its prompts.

    Args:
        column: "last", after all examples, or "averaged" over their numbers.
        spread: between seeds, of trainings like this one; a model's own counts if it is larger.
    """
    values = _values(tables, model, learner, column)
    means = values.mean(1)
    own = float(means.std(ddof=1) / means.mean()) if spread and len(means) > 1 else 0.0
    return Errors(values, max(own, spread))


def _values(tables: Tables, model: str, learner: str, column: str) -> np.ndarray:
    rows = where(tables["blocks"], model=model, learner=learner)
    if not len(rows["block"]):
        raise ValueError(f"the records have no errors of {learner!r} for the model {model!r}")
    return rows[column].astype(float).reshape(len(np.unique(rows["seed"])), -1)


@dataclass(frozen=True)
class Curve:
    """Errors after every number of examples, mean over seeds."""

    means: np.ndarray
    """[seeds, counts]"""
    error: np.ndarray
    """[counts], the standard error of prompts, of one model."""

    @classmethod
    def of(cls, tables: Tables, model: str, learner: str = MODEL) -> Curve:
        rows = where(tables["curve"], model=model, learner=learner)
        shape = (len(np.unique(rows["seed"])), -1)
        means, deviations = (rows[k].astype(float).reshape(shape) for k in ("mean", "error"))
        return cls(means, deviations.max(0))

    @property
    def backwards(self) -> Curve:
        return Curve(self.means[:, ::-1], self.error[::-1])

    def fall(self, first: int, last: int) -> Estimate:
        """How far the error falls from one number of examples to another."""
        falls = self.means[:, first] - self.means[:, last]
        seeds = len(falls)
        of_seeds = falls.var(ddof=1) / seeds if seeds > 1 else 0.0
        of_prompts = self.error[first] ** 2 + self.error[last] ** 2
        error = math.sqrt(of_seeds + of_prompts + ROUNDING**2)
        return Estimate(float(falls.mean()), error, seeds)

    @property
    def largest_rise(self) -> float:
        """From one number of examples to any larger one, in standard errors.

        Not only to the next: steps of a long curve are small, and a slow rise would hide in them.
        """
        falls = (self.fall(*pair) for pair in combinations(range(len(self.error)), 2))
        return max(-fall.mean / fall.standard_error for fall in falls)


def falls(tables: Tables, models: Mapping[str, str]) -> list[Check]:
    """That the errors of these models fall with the number of examples, from none to all, and
    nowhere rise."""
    curves = {name: Curve.of(tables, model) for model, name in models.items()}
    backwards = {f"{k}, read backwards": curve.backwards for k, curve in curves.items()}
    return [
        *checks(
            "fall of the error from no example to all",
            FALLS,
            {name: curve.fall(0, -1) for name, curve in curves.items()},
            unlike={name: curve.fall(0, -1) for name, curve in backwards.items()},
        ),
        *checks(
            "largest rise of the error from fewer examples to more, in standard errors",
            SAMPLING,
            {name: curve.largest_rise for name, curve in curves.items()},
            unlike={name: curve.largest_rise for name, curve in backwards.items()},
        ),
    ]


def in_words(estimate: Estimate) -> str:
    """Such as 0.48 ± 0.03."""
    return f"{estimate.mean:.3g} ± {estimate.standard_error:.1g}"
