"""Which algorithm is inside: any learner against families of candidates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms import Estimator, Learner, answers, answers_or_reason, as_learner
from innerloop.analysis.identification.candidates import (
    CHUNK,
    Candidate,
    Family,
    InItsPrecision,
    Observed,
    bounded,
)
from innerloop.analysis.identification.decide import Decision, Standing, standings
from innerloop.sentences import SentencePairs
from innerloop.tasks import Task

LEAST = 200
"""Prompts; with fewer, an interval by resampling says little."""
MOST = 10**6
"""Prompts that are kept in memory with all answers."""


@dataclass(frozen=True)
class Asked:
    """Prompts of a task and what the learner answered, in double precision on the CPU."""

    prompts: Any
    answers: Float[Tensor, "prompts ..."]
    dtype: torch.dtype
    """In which the learner computes."""

    @property
    def targets(self) -> Float[Tensor, "prompts ..."]:
        return self.prompts.targets

    def halves(self) -> tuple[Asked, Asked]:
        half = len(self.answers) // 2
        return self.part(slice(half)), self.part(slice(half, None))

    def part(self, which: slice) -> Asked:
        return Asked(self.prompts.part(which), self.answers[which], self.dtype)


@dataclass(frozen=True)
class Identification:
    """The answer, and what it rests on.

    Attributes:
        decision: the candidates ranked on the held-out half, and the sentence.
        candidates: as they were fitted, to be asked elsewhere.
        left_out: families that could not be fitted, with the reason.
        error: the learner's mean squared error on the held-out half.
        errors: of the learner and of the best candidate on the first held-out prompts, to be drawn.
        twin: how near another training of the same model is, if one was given.
    """

    decision: Decision
    candidates: Sequence[Candidate]
    left_out: Mapping[str, str]
    samples: int
    error: float
    errors: Sequence[Sequence[float]]
    twin: Twin | None = None

    @property
    def sentence(self) -> str:
        if self.twin is None or self.decision.best.identical:
            return self.decision.sentence
        return (
            f"{self.decision.sentence}; another training of the model reproduces "
            f"{self.twin.standing.error_share.percent()} of the error, which the nearest candidate "
            + ("reaches" if self.twin.reached else "does not reach")
        )

    def __str__(self) -> str:
        title = f"{len(self.candidates)} candidates on {self.samples // 2} held-out prompts"
        return f"{self.decision.as_text(title)}\n\n{self.sentence}"


def identify(
    learner: Learner | Estimator,
    task: Task,
    candidates: Sequence[Family],
    *,
    samples: int = 20_000,
    generator: torch.Generator,
    twin: Learner | None = None,
    watch: Callable[[str], None] = lambda doing: None,
) -> Identification:
    """Which candidate the learner is, to rounding, or none of them; the rule is in `decide`.

    The learner is asked `samples` prompts once. Families are fitted to its answers on the first
    half, and everything that is reported is measured on the second.

    Args:
        learner: anything that is called with prompts, or an estimator of scikit-learn.
        candidates: families, such as `experiments.candidates_for(task)` gives.
        twin: the same model from another seed, to compare the nearest candidate with.
        watch: told what is being done.
    """
    require_sizes(samples, candidates)
    watch(f"asking the learner {samples} prompts")
    asked = ask(learner, task, samples, generator)
    fitting, held_out = asked.halves()
    fitted, left_out = fit(candidates, fitting, watch)
    watch("comparing on the held-out half")
    ranked = compare(fitted, held_out, generator)
    best = ranked[0].candidate
    few = held_out.part(slice(SCATTERED))
    scattered = [
        (each - few.targets).flatten().tolist()
        for each in (few.answers, answers(best.learner, few.prompts))
    ]
    return Identification(
        Decision(ranked),
        fitted,
        left_out,
        samples,
        (held_out.answers - held_out.targets).square().mean().item(),
        scattered,
        None if twin is None else _of_twin(twin, best, held_out, generator),
    )


SCATTERED = 500
"""Prompts whose errors are kept for the picture."""


def require_sizes(samples: int, candidates: Sequence[Family]) -> None:
    if not LEAST <= samples <= MOST:
        raise ValueError(
            f"samples must be between {LEAST} and {MOST} prompts to identify, got {samples}"
        )
    if not candidates:
        raise ValueError("candidates must hold at least one family, got none")
    names = [family.name for family in candidates]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"candidates must have different names, got {sorted(twice)[0]!r} twice")


@torch.no_grad()
def ask(
    learner: Learner | Estimator, task: Task, samples: int, generator: torch.Generator
) -> Asked:
    """Fresh prompts and the learner's answers; refuses answers that say nothing of the prompts."""
    prompts = task.sample(samples, generator=generator)
    if isinstance(prompts, SentencePairs):
        raise ValueError(
            f"candidates answer with a number, and a learner of {type(task).__name__} with the "
            "probability of every word: there is nothing to compare it with"
        )
    answered = []
    for first in range(0, samples, CHUNK):
        part = prompts.part(slice(first, first + CHUNK))
        answered.append(answers_or_reason(as_learner(learner), part).detach())
    found = torch.cat(answered)
    dtype = found.dtype
    prompts, found = prompts.to("cpu", torch.float64), found.to("cpu", torch.float64)
    if not found.isfinite().all():
        index = (~found.isfinite()).nonzero()[0].tolist()
        raise ValueError(
            f"the learner must answer every prompt with a number, got {found[tuple(index)].item()} "
            f"for prompt {index[0]}"
        )
    if (found == found.flatten()[0]).all() and found.flatten()[0] != 0:
        raise ValueError(
            f"the learner answers {found.flatten()[0].item():.4g} to all of {samples} prompts: it "
            "does not read them, and no algorithm can be told from its answers"
        )
    return Asked(prompts, found, dtype)


@torch.no_grad()
def fit(
    candidates: Sequence[Family], asked: Asked, watch: Callable[[str], None]
) -> tuple[list[Candidate], dict[str, str]]:
    """Every family's nearest member, and the reasons of those that have none."""
    observed = Observed(asked.prompts, asked.answers, asked.dtype)
    fitted, left_out = [], {}
    for family in candidates:
        watch(f"fitting {family.name}")
        try:
            fitted.append(family.fit(observed))
        except ValueError as error:
            left_out[family.name] = str(error)
    if not fitted:
        name, reason = next(iter(left_out.items()))
        raise ValueError(f"no candidate could be fitted; {name}: {reason}")
    return fitted, left_out


@torch.no_grad()
def compare(
    candidates: Sequence[Candidate], asked: Asked, generator: torch.Generator
) -> list[Standing]:
    """The candidates' standings on these prompts, the best first."""
    answered = {}
    for candidate in candidates:
        found = answers(candidate.learner, asked.part(slice(candidate.most)).prompts)
        # Steps that are too long for these prompts leave all bounds: infinitely far is far enough.
        answered[candidate] = bounded(found)
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    on_cpu = torch.Generator().manual_seed(seed)
    return standings(asked.answers, asked.targets, answered, asked.dtype, generator=on_cpu)


@dataclass(frozen=True)
class Twin:
    """Another training of the same model, and whether the nearest candidate is as near as it is."""

    standing: Standing
    reached: bool


def _of_twin(learner: Learner, best: Candidate, asked: Asked, generator: torch.Generator) -> Twin:
    other = Candidate("twin", InItsPrecision(learner, asked.dtype))
    nearer, farther = compare([other, best], asked, generator)
    reached = farther.candidate is other or 0.0 in farther.behind
    return Twin(nearer if nearer.candidate is other else farther, reached)
