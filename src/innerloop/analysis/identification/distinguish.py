"""Where candidates differ: tasks on which algorithms that coincide on the task part.

With clean labels and enough examples, least squares, ridge regression with a small penalty and many
steps of any descent all predict the truth. On fewer examples than coordinates, with noise, or where
the covariance is ill-conditioned, they do not. Candidates keep the numbers that were fitted on the
task: an algorithm is the same algorithm elsewhere.

A candidate *survives* a shift if it is identical to the learner there or, if nothing is, if it is
near (by the rule of `decide`) and no other candidate is nearer beyond the paired interval. What
survives all of them is the answer that the shifts leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from innerloop.algorithms import Estimator, Learner
from innerloop.analysis.identification.answer import Identification, ask, compare
from innerloop.analysis.identification.candidates import Candidate
from innerloop.analysis.identification.decide import Decision, Grade
from innerloop.analysis.shifts import Shift, label_std
from innerloop.tables import TextTable
from innerloop.tasks import (
    GaussianCovariates,
    LinearRegression,
    Regression,
    Task,
    law_of,
    with_covariance,
    with_noise,
    with_query_covariance,
    with_scaled_covariates,
)

CONDITION = 100.0
"""The condition number of the ill-conditioned covariance."""


def telling_shifts(task: Task) -> list[Shift]:
    """Shifts of a regression on which candidates differ; none for other tasks."""
    if not isinstance(task, Regression | LinearRegression):
        return []
    shifts = []
    covariates = law_of(task).covariates
    if isinstance(covariates, GaussianCovariates):
        covariance = covariates.covariance
        shifts += [
            Shift("covariate", "covariates × 2", with_scaled_covariates(task, 2.0)),
            Shift("covariate", "covariates × 1/2", with_scaled_covariates(task, 0.5)),
            Shift("query", "query × 3", with_query_covariance(task, 9 * covariance)),
        ]
        if task.d > 1:
            graded = torch.logspace(0, -torch.log10(torch.tensor(CONDITION)).item() / 2, task.d)
            graded = graded.to(covariance)
            graded_covariance = graded[:, None] * covariance * graded
            name = f"covariance of condition {CONDITION:g}"
            shifts.append(Shift("covariate", name, with_covariance(task, graded_covariance)))
    if task.d > 1 and task.n > task.d // 2:
        fewer = replace(task, n=task.d // 2)
        shifts.append(Shift("task", f"{fewer.n} examples of d = {task.d}", fewer))
    noisy = with_noise(task, task.noise_std + label_std(task) / 2)
    return [*shifts, Shift("task", "more label noise", noisy)]


@dataclass(frozen=True)
class ShiftedDecision:
    """What the rule says on one shift, or why it says nothing."""

    shift: Shift
    decision: Decision | None
    reason: str = ""

    @property
    def surviving(self) -> list[Candidate]:
        if self.decision is None or self.decision.grade is Grade.NONE:
            return []
        return [standing.candidate for standing in self.decision.leading]


@dataclass(frozen=True)
class Distinguished:
    """Which candidates survive on the task and on every shift of it."""

    on_task: Decision
    shifted: Sequence[ShiftedDecision]

    @property
    def survivors(self) -> list[Candidate]:
        kept = [s.candidate for s in self.on_task.leading]
        if self.on_task.grade is Grade.NONE:
            kept = []
        return [c for c in kept if all(c in each.surviving for each in self.shifted)]

    @property
    def sentence(self) -> str:
        survivors, exact = self.survivors, self.on_task.grade is Grade.IDENTICAL
        names = ", ".join(map(str, survivors))
        if survivors and exact and all(self._identical(each) for each in self.shifted):
            return f"identical to rounding on the task and on every shift: {names}"
        if survivors:
            return f"the nearest on the task and on every shift: {names}"
        failing = [
            f"{each.shift.name} ({each.reason or _best(each.decision)})"
            for each in self.shifted
            if not any(s.candidate in each.surviving for s in self.on_task.leading)
        ]
        if self.on_task.grade is Grade.NONE:
            return "no candidate is near on the task itself"
        where = "; ".join(failing) if failing else "no single candidate is on all of them"
        return f"no candidate survives every shift: what is nearest on the task fails on {where}"

    @staticmethod
    def _identical(each: ShiftedDecision) -> bool:
        return each.decision is not None and each.decision.grade is Grade.IDENTICAL

    def as_text(self) -> TextTable:
        table = TextTable(
            "where candidates differ",
            ["shift", "best candidate", "share of the error", "of the prediction", "tied"],
        )
        decided = [("the task", self.on_task, ""), *_rows(self.shifted)]
        for name, decision, reason in decided:
            if decision is None:
                table.add(name, reason, "", "", "")
                continue
            best = decision.best
            table.add(
                name,
                str(best.candidate),
                "identical" if best.identical else best.error_share.percent(),
                "identical" if best.identical else best.prediction_share.percent(),
                ", ".join(s.candidate.name for s in decision.leading[1:]),
            )
        return table


def distinguish(
    learner: Learner | Estimator,
    task: Task,
    identification: Identification,
    *,
    samples: int,
    generator: torch.Generator,
    shifts: Sequence[Shift] | None = None,
    watch: Callable[[str], None] = lambda doing: None,
) -> Distinguished:
    """The fitted candidates against the learner on shifts of the task.

    On each shift a quarter of the prompts, since nothing is fitted there.
    """
    rows = []
    for shift in telling_shifts(task) if shifts is None else shifts:
        watch(f"on the shift: {shift.name}")
        try:
            asked = ask(learner, shift.task, max(100, samples // 4), generator)
        except ValueError as reason:  # a model that cannot read it, or answers infinity
            rows.append(ShiftedDecision(shift, None, str(reason)))
            continue
        decision = Decision(compare(identification.candidates, asked, generator))
        rows.append(ShiftedDecision(shift, decision))
    return Distinguished(identification.decision, rows)


def _rows(shifted: Sequence[ShiftedDecision]) -> list[tuple[str, Decision | None, str]]:
    return [(each.shift.name, each.decision, each.reason) for each in shifted]


def _best(decision: Decision | None) -> str:
    assert decision is not None, "without a decision there is a reason"
    best = decision.best
    share = "identical" if best.identical else best.error_share.percent()
    return f"best there {best.candidate}, {share}"
