"""What a training costs: parameters, layers, products of matrices, and time on one core."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from innerloop.experiments import CURRICULA, TASKS, Experiment, Record, Run
from innerloop.experiments.kinds import one_sample
from innerloop.experiments.pace import step_seconds
from innerloop.papers.plots import as_rows, as_table
from innerloop.papers.registry import Table
from innerloop.prompt import Prompt

FLOPS_PER_SECOND, SECONDS_PER_ENTRY = 1e11, 5e-8
"""Of one core here: products of matrices, and what else a layer does with an entry of its input."""
TIMED_STEPS = 3


@dataclass(frozen=True)
class Passes:
    """How often layers are applied in one step of training, and how often gradients pass them."""

    forward: int
    backward: int
    inference: int
    """Layers that a token passes on its way to the prediction."""
    last: int
    """How often a layer is applied that only predictions are read from."""

    @classmethod
    def of(cls, experiment: Experiment, most: int | None = None) -> Passes:
        """With at most so many loops, where a curriculum has not come to all of them."""
        model, objective = experiment.model.options, experiment.objective.options
        inside = model["layers"]
        if "loops" not in model:
            return cls(inside, inside, inside, 1)
        around = model.get("around", 0)  # the vanilla looped transformer has no such layers
        loops = min(objective["loops"], most or objective["loops"])
        window = min(objective["window"], loops)
        with_gradient = window if objective["truncate"] else loops
        after = window * around  # they run for every loop of the window
        return cls(
            around + loops * inside + after,
            around + with_gradient * inside + after,
            around + loops * inside + around,
            window if around else 0,
        )


@dataclass(frozen=True)
class Tokens:
    """Of a batch, of a sequence, and those of a batch at which a prediction is read."""

    batch: int
    sequence: int
    read: int

    @classmethod
    def of(cls, experiment: Experiment) -> Tokens:
        sample = one_sample(experiment.task.build(TASKS))
        sequence = sample.interleave() if isinstance(sample, Prompt) else sample
        length, rows = sequence.tokens.shape[1], experiment.objective.options["batch"]
        return cls(rows * length, length, rows * len(sequence.readout))


def step_flops(passes: Passes, tokens: Tokens, width: int) -> float:
    """Of matrix products in a step: 2 for each of 12 width^2 weights and each token forward, and
    2 length width twice for attention; backward twice that. In a last layer, the 8 width^2 weights
    of the feed-forward network meet the tokens that are read. Read-in and read-out are left out."""
    a_layer = 2 * tokens.batch * (12 * width**2 + 2 * tokens.sequence * width)
    not_read = 2 * (tokens.batch - tokens.read) * 8 * width**2
    return float(a_layer * (passes.forward + 2 * passes.backward) - 3 * passes.last * not_read)


def training_flops(experiment: Experiment) -> float:
    """Of all steps; a curriculum over loops has fewer at first."""
    if experiment.curriculum.options.get("loops") is None:
        return experiment.steps * _flops(experiment)
    stage_at = experiment.curriculum.build(CURRICULA, experiment.task.build(TASKS))
    stages = Counter(stage_at(step).loops for step in range(experiment.steps))
    return sum(count * _flops(experiment, most) for most, count in stages.items())


def seconds_per_step(experiment: Experiment) -> float:
    """On one core here, about."""
    passes, tokens = Passes.of(experiment), Tokens.of(experiment).batch
    entries = (passes.forward + passes.backward) * tokens * experiment.model.options["width"]
    return SECONDS_PER_ENTRY * entries + _flops(experiment) / FLOPS_PER_SECOND


def cost_table(run: Run, unit: float) -> Table:
    """One row: what was spent on this model, and E |target|^2 of its task."""
    row = {
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "layers": Passes.of(run.experiment).inference,
        "training FLOPs": training_flops(run.experiment),
        "tokens": run.experiment.steps * Tokens.of(run.experiment).batch,
        "E target^2": unit,
    }
    return as_table([row])


def with_seconds(costs: Table, results: Mapping[str, Record]) -> Table:
    """The costs of these trainings, and the seconds that they take of one core, measured now: those
    that a record counts are of a machine that others may have used."""
    rows = zip(as_rows(costs), results.values(), strict=True)
    return as_table({**row, "seconds": _seconds(record.experiment)} for row, record in rows)


def _seconds(experiment: Experiment) -> float:
    parts = (experiment.model, experiment.task, experiment.objective, experiment.optimizer)
    return experiment.steps * _step_seconds(*map(str, parts))


@cache
def _step_seconds(model: str, task: str, objective: str, optimizer: str) -> float:
    return step_seconds(Experiment(model, task, objective, optimizer), TIMED_STEPS)


def _flops(experiment: Experiment, most: int | None = None) -> float:
    width = experiment.model.options["width"]
    return step_flops(Passes.of(experiment, most), Tokens.of(experiment), width)
