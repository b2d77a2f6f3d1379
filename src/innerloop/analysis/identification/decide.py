"""The decision: what a learner is, from how far every candidate is from it on prompts that were not
used to fit them.

**The rule.** Candidates are ranked by the squared prediction difference D on the held-out half.

1. *Identical to rounding*: D is at most (rounding)^2 times the learner's mean square prediction,
   with rounding = sqrt(eps) of the learner's floating point numbers, 1.5e-8 in double precision.
   An algorithm by another route, such as normal equations in place of a pseudo-inverse, loses
   digits in proportion to the square of the condition number: sqrt(eps) leaves room for condition
   numbers up to 10^4, and no two algorithms that differ at all come so near by chance. Where a
   candidate itself stops at a tolerance, twice its own measured error is allowed. There is no
   interval to this statement: it speaks of every prompt.
2. Otherwise the answer is *none of these*: a difference that is not rounding was seen, and more
   prompts would not make it smaller. It comes with the nearest candidate and how near it is:
   a. *nearest is X*: the intervals of both of its shares, of the error and of the prediction, lie
      above 1/2. Then more of the learner's error is also the candidate's than is not, and the same
      of its prediction. Below that, what the two do differently outweighs what they have in common,
      and to call one the nearest to the other would tell a reader more that is false than true.
   b. else nothing is near.

A planted algorithm is 1 and a trained transformer never: it is 2a with its share, or 2b. The
level of 1/2 decides only between 2a and 2b, words for a number that is always printed beside them.

**Ties.** All candidates that are identical to rounding are tied, the one with the fewest numbers
fitted first: prompts of this task cannot tell them apart. Otherwise a candidate is tied with the
best one if the paired interval of the difference of their D contains 0. Each interval is of level
95% for itself: of 20 candidates that are exactly as good as the best, one is not named as a tie.

**A twin**, the same model trained from another seed, is a natural yardstick for a trained
model: no candidate can be expected to say more about it than its own repetition does. If
one is given and the nearest candidate is at most as far (or tied), the sentence says so.

**Errors of the rule.** An outsider is called a candidate only if it agrees with it to
rounding, which has no probability to speak of; so *none of these* has no false alarms by chance. A
member of a family is missed if its parameters are outside the range that was searched, or if
prompts are so ill-conditioned (n = d in single precision) that rounding exceeds sqrt(eps).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.analysis.identification import measures
from innerloop.analysis.identification.bootstrap import Bootstrap, Interval
from innerloop.analysis.identification.candidates import Candidate
from innerloop.tables import TextTable

HALF = 0.5
"""Of the error and of the prediction: what the nearest candidate must reproduce to be near."""


class Grade(StrEnum):
    """How the best candidate stands to the learner."""

    IDENTICAL = "identical to rounding"
    NEAR = "none of these exactly"
    NONE = "none of these"


@dataclass(frozen=True)
class Standing:
    """How one candidate did on the held-out prompts.

    Attributes:
        distance: root mean square difference of predictions.
        relative: the same over the root mean square of the learner's predictions.
        error_share, prediction_share: see `measures`.
        behind: its squared distance minus that of the best candidate, paired.
        identical: whether it agrees with the learner to rounding.
        samples: prompts that it was asked.
    """

    candidate: Candidate
    distance: Interval
    relative: float
    error_share: Interval
    prediction_share: Interval
    behind: Interval
    identical: bool
    samples: int

    @property
    def near(self) -> bool:
        return self.error_share.low > HALF and self.prediction_share.low > HALF


def rounding(dtype: torch.dtype, candidate: Candidate) -> float:
    """The relative difference that is no difference; see the rule."""
    return max(torch.finfo(dtype).eps ** 0.5, 2 * candidate.precision)


def standings(
    predictions: Float[Tensor, "prompts ..."],
    targets: Float[Tensor, "prompts ..."],
    answered: Mapping[Candidate, Float[Tensor, "asked ..."]],
    dtype: torch.dtype,
    *,
    generator: torch.Generator,
) -> list[Standing]:
    """Every candidate's, the best first. A slow one may have been asked the first prompts only."""
    columns = {
        candidate: measures.squares(predictions[: len(g)], g, targets[: len(g)])
        for candidate, g in answered.items()
    }
    relative = {
        candidate: measures.relative_distance(values.mean(0)).item()
        for candidate, values in columns.items()
    }
    identical = {c for c in columns if relative[c] <= rounding(dtype, c)}

    def place(candidate: Candidate) -> tuple[bool, int, float]:
        if candidate in identical:
            return False, candidate.fitted, 0.0
        return True, 0, relative[candidate]

    ranked = sorted(columns, key=place)
    best = columns[ranked[0]]
    table = []
    for candidate in ranked:
        count = min(len(columns[candidate]), len(best))
        own, ahead = columns[candidate][:count], best[:count]
        drawn = Bootstrap.of(torch.stack([own, ahead], dim=1), generator=generator)
        table.append(_standing(candidate, drawn, relative[candidate], candidate in identical, own))
    return table


def _standing(
    candidate: Candidate, drawn: Bootstrap, relative: float, identical: bool, own: Tensor
) -> Standing:
    def share(function: measures.Measure) -> Interval:
        return drawn.interval(lambda means: function(means[..., 0, :]))

    def difference(means: Tensor) -> Tensor:
        return means[..., 0, measures.DIFFERENCE] - means[..., 1, measures.DIFFERENCE]

    return Standing(
        candidate,
        share(measures.distance),
        relative,
        share(measures.error_share),
        share(measures.prediction_share),
        drawn.interval(difference),
        identical,
        len(own),
    )


@dataclass(frozen=True)
class Decision:
    """The answer, from the standings by the rule of this module."""

    ranked: Sequence[Standing]

    def __post_init__(self) -> None:
        if not self.ranked:
            raise ValueError("ranked must hold at least one candidate, got none")

    @property
    def best(self) -> Standing:
        return self.ranked[0]

    @property
    def grade(self) -> Grade:
        if self.best.identical:
            return Grade.IDENTICAL
        return Grade.NEAR if self.best.near else Grade.NONE

    @property
    def leading(self) -> list[Standing]:
        """The best candidate and those tied with it."""
        if self.best.identical:
            return [standing for standing in self.ranked if standing.identical]
        return [s for s in self.ranked if s is self.best or 0.0 in s.behind]

    @property
    def sentence(self) -> str:
        best, ties = self.best, self.leading[1:]
        others = ", ".join(str(tie.candidate) for tie in ties)
        error, prediction = best.error_share.percent(), best.prediction_share.percent()
        if self.grade is Grade.IDENTICAL:
            same = f"; tied with it, the same on these prompts: {others}" if ties else ""
            return f"{best.candidate}: identical to rounding{same}"
        tied = f"; tied with it: {others}" if ties else ""
        if self.grade is Grade.NEAR:
            return (
                f"none of these exactly; nearest is {best.candidate}, which reproduces {error} of "
                f"the error and {prediction} of the prediction{tied}"
            )
        return (
            f"none of these; the best of them, {best.candidate}, reproduces {error} of the error "
            f"and {prediction} of the prediction{tied}"
        )

    def as_text(self, title: str) -> TextTable:
        """A row for each candidate, after "=" if it is identical, "~" if nearest or tied."""
        leading = self.leading
        marks = {True: "= ", False: "~ "}
        table = TextTable(
            title,
            ["candidate", "share of the error", "of the prediction", "distance"],
        )
        for standing in self.ranked:
            mark = marks[standing.identical] if standing in leading else "  "
            table.add(
                f"{mark}{standing.candidate}",
                standing.error_share.percent(),
                standing.prediction_share.percent(),
                str(standing.distance),
            )
        return table
