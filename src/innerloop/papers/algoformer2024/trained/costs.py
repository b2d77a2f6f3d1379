"""What a training costs: parameters, layers, products of matrices, and time on one core."""

from __future__ import annotations

from dataclasses import dataclass

from innerloop.experiments import TASKS, Experiment, Run
from innerloop.experiments.kinds import one_sample
from innerloop.papers.plots import as_table
from innerloop.papers.registry import Table
from innerloop.prompt import Prompt

FLOPS_PER_SECOND, SECONDS_PER_ENTRY = 1e11, 5e-8
"""Of one core here: products of matrices, and what else a layer does with an entry of its input."""


@dataclass(frozen=True)
class Passes:
    """How often layers are applied in one step of training, and how often gradients pass them."""

    forward: int
    backward: int
    inference: int
    """Layers that a token passes on its way to the prediction."""

    @classmethod
    def of(cls, experiment: Experiment) -> Passes:
        model, objective = experiment.model.options, experiment.objective.options
        inside = model["layers"]
        if "loops" not in model:
            return cls(inside, inside, inside)
        around = model.get("around", 0)  # the vanilla looped transformer has no such layers
        loops, window = objective["loops"], objective["window"]
        with_gradient = window if objective["truncate"] else loops
        after = window * around  # they run for every loop of the window
        return cls(
            around + loops * inside + after,
            around + with_gradient * inside + after,
            around + loops * inside + around,
        )


def step_flops(passes: Passes, *, tokens: int, length: int, width: int) -> float:
    """Of matrix products in a step: 2 for each of 12 width^2 weights and each token forward, and
    2 length width twice for attention; backward twice that. Read-in and read-out are left out."""
    a_layer = 2 * tokens * (12 * width**2 + 2 * length * width)
    return float(a_layer * (passes.forward + 2 * passes.backward))


def training_flops(experiment: Experiment) -> float:
    return experiment.steps * _flops(experiment)


def seconds_per_step(experiment: Experiment) -> float:
    """On one core here, about."""
    passes, (tokens, _) = Passes.of(experiment), _tokens(experiment)
    entries = (passes.forward + passes.backward) * tokens * experiment.model.options["width"]
    return SECONDS_PER_ENTRY * entries + _flops(experiment) / FLOPS_PER_SECOND


def cost_table(run: Run, unit: float) -> Table:
    """One row: what was spent on this model, and E |target|^2 of its task."""
    tokens, _ = _tokens(run.experiment)
    row = {
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "layers": Passes.of(run.experiment).inference,
        "training FLOPs": training_flops(run.experiment),
        "tokens": run.experiment.steps * tokens,
        "E target^2": unit,
    }
    return as_table([row])


def _flops(experiment: Experiment) -> float:
    tokens, length = _tokens(experiment)
    width = experiment.model.options["width"]
    return step_flops(Passes.of(experiment), tokens=tokens, length=length, width=width)


def _tokens(experiment: Experiment) -> tuple[int, int]:
    """Of a batch, and of a sequence."""
    sample = one_sample(experiment.task.build(TASKS))
    sequence = sample.interleave() if isinstance(sample, Prompt) else sample
    length = sequence.tokens.shape[1]
    return experiment.objective.options["batch"] * length, length
