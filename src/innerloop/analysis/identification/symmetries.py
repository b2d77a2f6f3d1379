"""Symmetries as tests that refute: what an algorithm keeps, what is inside must keep as well.

A learner *has* a symmetry if its answers change as the symmetry says, up to rounding. Candidates
are asked in the same way rather than believed: a candidate that has a symmetry which the learner
lacks, or lacks one that the learner has, is refuted by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from innerloop.algorithms import Learner, answers
from innerloop.analysis.identification.candidates import Candidate
from innerloop.analysis.identification.decide import rounding
from innerloop.prompt import Prompt
from innerloop.tables import TextTable


@dataclass(frozen=True)
class Symmetry:
    """A change of the prompt, and what it should multiply answers by."""

    name: str
    change: Callable[[Prompt], Prompt]
    factor: float = 1.0

    @torch.no_grad()
    def defect(self, learner: Learner, prompt: Prompt) -> float:
        """Root mean square deviation from the symmetry, relative to the answers."""
        before, after = answers(learner, prompt), answers(learner, self.change(prompt))
        size = before.double().norm().clamp_min(torch.finfo(torch.float64).tiny)
        return ((after - self.factor * before).double().norm() / size).item() / abs(self.factor)


def symmetries(prompt: Prompt, *, generator: torch.Generator) -> list[Symmetry]:
    """Permutation of the examples, labels times 2, and a rotation of all covariates."""
    order = torch.randperm(prompt.n, generator=generator)
    if prompt.n > 1 and torch.equal(order, torch.arange(prompt.n)):
        order = order.flip(0)
    normal = torch.randn(prompt.d, prompt.d, generator=generator, dtype=torch.float64)
    turn = torch.linalg.qr(normal).Q
    if prompt.d == 1:
        turn = -torch.ones_like(turn)

    def permuted(p: Prompt) -> Prompt:
        where = order.to(p.x.device)
        clean = None if p.y_clean is None else p.y_clean[:, where]
        return replace(p, x=p.x[:, where], y=p.y[:, where], y_clean=clean)

    def rotated(p: Prompt) -> Prompt:
        return replace(p, x=p.x @ turn.to(p.x), x_query=p.x_query @ turn.to(p.x))

    return [
        Symmetry("permutation of the examples", permuted),
        Symmetry("labels × 2", lambda p: replace(p, y=2 * p.y), 2.0),
        Symmetry("rotation of the covariates", rotated),
    ]


@dataclass(frozen=True)
class SymmetryRow:
    """One symmetry: by how much the learner misses it, and whom that refutes."""

    name: str
    defect: float
    kept: bool
    refuted: Sequence[Candidate]


@dataclass(frozen=True)
class SymmetryTable:
    rows: Sequence[SymmetryRow]
    candidates: Sequence[Candidate]

    def as_text(self) -> TextTable:
        table = TextTable(
            "symmetries", ["symmetry", "relative defect of the learner", "refuted by it"]
        )
        for row in self.rows:
            word = "kept" if row.kept else f"{row.defect:.2g}"
            table.add(row.name, word, self._refuted(row))
        return table

    def _refuted(self, row: SymmetryRow) -> str:
        spared = [c.name for c in self.candidates if c not in row.refuted]
        if len(spared) < len(row.refuted):
            return f"all but {', '.join(spared)}" if spared else "all"
        return ", ".join(c.name for c in row.refuted) or "none"


@torch.no_grad()
def symmetry_table(
    learner: Learner,
    prompt: Prompt,
    candidates: Sequence[Candidate],
    *,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> SymmetryTable:
    """The learner and all candidates, on the same prompts.

    Args:
        prompt: in double precision; the learner is asked in `dtype`.
    """
    rows = []
    for symmetry in symmetries(prompt, generator=generator):
        own = symmetry.defect(learner, prompt.to(dtype=dtype))
        kept = own <= torch.finfo(dtype).eps ** 0.5
        refuted = []
        for candidate in candidates:
            part = prompt.part(slice(candidate.most))
            has = symmetry.defect(candidate.learner, part) <= rounding(dtype, candidate)
            if has != kept:
                refuted.append(candidate)
        rows.append(SymmetryRow(symmetry.name, own, kept, refuted))
    return SymmetryTable(rows, candidates)
