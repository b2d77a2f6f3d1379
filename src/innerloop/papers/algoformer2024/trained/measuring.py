"""What is measured of every model that is trained for Figures 2 to 5, and kept in its record.

All models of a task answer the same fresh prompts. Errors are divided by E |target|^2, so that
predicting 0 has the error 1. Means over blocks of prompts are kept as well: the difference of two
models on the same prompts is known better than each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms import Learner
from innerloop.analysis import Estimate, loop_spectral_radius, position_errors
from innerloop.experiments import ALGORITHMS, REFERENCES, Run
from innerloop.models import InContext, Looped
from innerloop.papers.algoformer2024.trained.costs import cost_table
from innerloop.papers.plots import as_table
from innerloop.papers.registry import Table
from innerloop.prompt import Prompt
from innerloop.tasks import ChainOfThought, Regression, RepresentedFunctions, Task

PROMPTS, BLOCKS, CHUNK = 2048, 16, 64
"""Fresh prompts, the parts of them whose means are kept, and how many are answered at a time."""
SEED = 777
"""Of the fresh prompts. No training has it."""
LONGER = 10
"""Loops are measured up to so many times T."""
MODEL, UNTRAINED, LOOPED_LONGER = "model", "untrained", "model, 10 T loops"
"""Whose errors a record has, beside the task's reference learners."""


@dataclass(frozen=True)
class Sample:
    """Fresh prompts of a task, in batches."""

    batches: Sequence[Any]
    positions: int
    """Asked about for each number of examples: the steps of a chain, or one."""

    @classmethod
    def of(cls, task: Task) -> Sample:
        generator = torch.Generator().manual_seed(SEED)
        count = PROMPTS // CHUNK
        batches = [task.sample(CHUNK, generator=generator) for _ in range(count)]
        return cls(batches, task.layers if isinstance(task, ChainOfThought) else 1)

    def unit(self) -> float:
        """E |target|^2 for one coordinate, over all positions."""
        targets = torch.cat([_sequence(batch).targets for batch in self.batches])
        return targets.double().square().mean().item()

    def errors(self, learner: Learner) -> Float[Tensor, "prompts counts"]:
        """Of every prompt after every number of examples, beginning with none."""
        return self._by_count([position_errors(learner, batch) for batch in self.batches])

    @torch.no_grad()
    def errors_after_loops(
        self, model: Looped, counts: Sequence[int]
    ) -> Float[Tensor, "loops prompts counts"]:
        parts = []
        for batch in map(_sequence, self.batches):
            off = model.after_loops(batch, counts) - batch.targets
            parts.append(off.square().mean(-1).transpose(0, 1))  # [prompts, loops, positions]
        return self._by_count(parts).transpose(0, 1)

    def _by_count(self, parts: Sequence[Tensor]) -> Tensor:
        errors = torch.cat(list(parts)).double()
        return errors.unflatten(-1, (-1, self.positions)).mean(-1)


def measured(run: Run) -> dict[str, Table]:
    """The tables of a record, from a trained model."""
    sample = Sample.of(run.task)
    unit = sample.unit()
    learners = {MODEL: run.model, **references(run)}
    curves = {name: sample.errors(learner) / unit for name, learner in learners.items()}
    errors = {**curves, UNTRAINED: sample.errors(untrained(run)) / unit}
    tables: dict[str, Table] = {"costs": cost_table(run, unit)}
    looped = inner_model(run)
    if isinstance(looped, Looped):
        counts = loop_counts(looped.loops)
        longer = sample.errors_after_loops(looped, counts) / unit
        errors[LOOPED_LONGER] = longer[-1]
        tables["loops"] = loop_table(counts, longer)
        tables["jacobian"] = jacobian_table(run, sample)
    if isinstance(run.task, Regression) and isinstance(run.task.functions, RepresentedFunctions):
        tables["spectrum"] = spectrum_table(run.task.functions)
    return {**tables, "curve": curve_table(curves), "blocks": block_table(errors)}


def untrained(run: Run) -> Learner:
    """The model as it was at its start."""
    return run.experiment.build()[0].eval()


def references(run: Run) -> dict[str, Learner]:
    """What the catalogue compares the task with."""
    return {name: ALGORITHMS[name](run.task) for name in REFERENCES[run.experiment.task.name]}


def inner_model(run: Run) -> Any:
    """The model of sequences."""
    return run.model.model if isinstance(run.model, InContext) else run.model


def loop_counts(loops: int) -> list[int]:
    """All up to twice T, then every half T, to the last."""
    far = range(2 * loops, LONGER * loops + 1, max(1, loops // 2))
    return sorted({*range(1, 2 * loops + 1), *far, LONGER * loops})


def curve_table(errors: Mapping[str, Float[Tensor, "prompts counts"]]) -> Table:
    """Means and standard errors after every number of examples."""
    return as_table(
        {"learner": name, "examples": k, **_estimated(column)}
        for name, values in errors.items()
        for k, column in enumerate(values.unbind(1))
    )


def block_table(errors: Mapping[str, Float[Tensor, "prompts counts"]]) -> Table:
    """Means over blocks of prompts: over all numbers of examples, and after all examples."""
    return as_table(
        {"learner": name, "block": i, "averaged": block.mean().item(), "last": last.mean().item()}
        for name, values in errors.items()
        for i, (block, last) in enumerate(
            zip(values.chunk(BLOCKS), values[:, -1].chunk(BLOCKS), strict=True)
        )
    )


def loop_table(counts: Sequence[int], errors: Float[Tensor, "loops prompts counts"]) -> Table:
    """The error after all examples, for every number of loops."""
    rows = zip(counts, errors[:, :, -1], strict=True)
    return as_table({"loops": count, **_estimated(values)} for count, values in rows)


def jacobian_table(run: Run, sample: Sample) -> Table:
    """By how much one more loop after T stretches small differences; below 1 it settles."""
    radii = loop_spectral_radius(run.model, sample.batches[0]).detach().double()
    low, median, high = torch.quantile(radii, torch.tensor([0.1, 0.5, 0.9]).double()).tolist()
    return {"lowest tenth": [low], "median": [median], "highest tenth": [high]}


def spectrum_table(functions: RepresentedFunctions) -> Table:
    """Eigenvalues of E phi phi^T: how many dimensions the regression has."""
    generator = torch.Generator().manual_seed(SEED)
    values = functions.representation.spectrum(generator=generator).tolist()
    return {"index": list(range(1, len(values) + 1)), "eigenvalue": values}


def _estimated(values: Float[Tensor, " prompts"]) -> dict[str, float]:
    estimate = Estimate.of(values)
    return {"mean": estimate.mean, "error": estimate.standard_error}


def _sequence(batch: Any) -> Any:
    return batch.interleave() if isinstance(batch, Prompt) else batch
