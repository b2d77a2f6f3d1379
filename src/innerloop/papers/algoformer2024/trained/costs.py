"""What a training costs: parameters, layers, products of matrices, and time on one core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from innerloop.experiments import OBJECTIVES, Experiment, Run
from innerloop.models import InContext, Looped
from innerloop.models.decoder import Decoder
from innerloop.papers.plots import as_table
from innerloop.papers.registry import Table
from innerloop.prompt import Prompt
from innerloop.training import LoopWindow

SECONDS_PER_LAYER, FLOPS_PER_SECOND = 8e-4, 2.5e10
"""Of one core here, while it trains: what every layer takes at least, and products of matrices."""


@dataclass(frozen=True)
class Passes:
    """How often layers are applied in one step of training, and how often gradients pass them."""

    forward: int
    backward: int
    inference: int
    """Layers that a token passes on its way to the prediction."""

    @classmethod
    def of(cls, model: Any, objective: Any) -> Passes:
        if isinstance(model, Decoder):
            layers = len(model.stack.blocks)
            return cls(layers, layers, layers)
        assert isinstance(model, Looped)
        assert isinstance(objective, LoopWindow)
        before, inside, after = (
            0 if stack is None else len(stack.blocks)
            for stack in (model.before, model.inside, model.after)
        )
        loops, window = objective.loops, objective.window
        with_gradient = window if objective.truncate else loops
        read_out = window * after  # the layers after the loop run for every loop of the window
        return cls(
            before + loops * inside + read_out,
            before + with_gradient * inside + read_out,
            before + loops * inside + after,
        )


def step_flops(passes: Passes, *, tokens: int, length: int, width: int) -> float:
    """Of matrix products in a step: 2 for each of 12 width^2 weights and each token forward, and
    2 length width twice for attention; backward twice that. Read-in and read-out are left out."""
    a_layer = 2 * tokens * (12 * width**2 + 2 * length * width)
    return float(a_layer * (passes.forward + 2 * passes.backward))


def training_flops(experiment: Experiment) -> float:
    passes, tokens, length, width = _sizes(experiment)
    return experiment.steps * step_flops(passes, tokens=tokens, length=length, width=width)


def seconds_per_step(experiment: Experiment) -> float:
    """On one core here, about."""
    passes, tokens, length, width = _sizes(experiment)
    flops = step_flops(passes, tokens=tokens, length=length, width=width)
    return SECONDS_PER_LAYER * (passes.forward + passes.backward) + flops / FLOPS_PER_SECOND


def cost_table(run: Run, unit: float) -> Table:
    """One row: what was spent on this model, and E |target|^2 of its task."""
    passes, tokens, _, _ = _sizes(run.experiment)
    row = {
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "layers": passes.inference,
        "training FLOPs": training_flops(run.experiment),
        "tokens": run.experiment.steps * tokens,
        "E target^2": unit,
    }
    return as_table([row])


def _sizes(experiment: Experiment) -> tuple[Passes, int, int, int]:
    """Passes, tokens of a batch, their number in a sequence, and the width."""
    model, task, generator = experiment.build()
    objective = experiment.objective.build(OBJECTIVES, task)
    inner = model.model if isinstance(model, InContext) else model
    batch = task.sample(1, generator=generator)
    sequence = batch.interleave() if isinstance(batch, Prompt) else batch
    length, width = sequence.tokens.shape[1], experiment.model.options["width"]
    batch_size = experiment.objective.options["batch"]
    return Passes.of(inner, objective), batch_size * length, length, width
