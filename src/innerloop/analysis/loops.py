"""What looping a model longer does: losses after every loop, and whether a loop contracts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import jacrev, vmap

from innerloop.analysis.risk import Estimate, require_samples
from innerloop.memory import FLOAT64, require_memory
from innerloop.models import LinearAttention
from innerloop.prompt import Prompt
from innerloop.tasks import Task

MOST_LOOPS = 1000
"""Every number of loops up to the last is measured from the start: their cost is a square."""


@torch.no_grad()
def loop_spectral_radius(model: LinearAttention, prompt: Prompt) -> Float[Tensor, " batch"]:
    """By how much one loop can stretch the part of the labels that is not yet explained.

    The largest |eigenvalue| of d m' / d m, where m = (1/n) sum_i y_i x_i correlates what is left of
    the labels with the covariates, and m' is the same after one application of the model's block.
    For preconditioned gradient descent this is I - S A at every loop, the same spectrum as of the
    error's map I - A S: looping longer converges on a prompt if and only if it is below 1. For
    other weights it is the first loop, linearised at the prompt.
    """
    gram = prompt.gram()
    p, q = model.weights.matrices()

    def after_one_loop(m: Tensor, gram: Tensor) -> Tensor:
        d = len(m)
        top = torch.cat([gram[:d, :d], m[:, None]], dim=1)
        g = torch.cat([top, torch.cat([m, gram[d, d:]])[None]])
        for p_layer, q_layer in zip(p, q, strict=True):
            t = torch.eye(d + 1).to(g) - p_layer @ g @ q_layer
            g = t @ g @ t.mT
        return g[:d, d]

    jacobians = vmap(jacrev(after_one_loop))(gram[:, :-1, -1], gram)  # [batch, d, d]
    return torch.linalg.eigvals(jacobians).abs().amax(-1)


@dataclass(frozen=True)
class AfterLoops:
    """The squared error of a model that is looped this many times."""

    loops: int
    mean: Estimate
    median: float
    upper: float
    """The 99th percentile."""


@torch.no_grad()
def loop_curve(
    model: LinearAttention, task: Task, *, loops: int, samples: int, generator: torch.Generator
) -> list[AfterLoops]:
    """Squared errors on the same fresh prompts after 1, 2, ..., `loops` loops.

    The mean can grow while the median falls: a few prompts on which the loop expands carry it, and
    a sample that misses them shows neither the growth nor the right standard error.
    """
    if loops < 1:
        raise ValueError(f"loops must be at least 1, got {loops}")
    if loops > MOST_LOOPS:
        raise ValueError(f"loops must be at most {MOST_LOOPS}, got {loops}")
    require_samples(samples)
    # All at once: a percentile needs every error.
    require_memory(f"{samples} prompts", 3 * FLOAT64 * samples * (task.n + 1) * (task.d + 1))
    prompt = task.sample(samples, generator=generator)
    curve = []
    for count in range(1, loops + 1):
        looped = LinearAttention(model.weights, count, masked=model.masked)
        errors = (looped(prompt) - prompt.y_query).square().mean(1)
        # NumPy, since torch takes the quantiles of 16 million numbers at most.
        median, upper = np.quantile(errors.double().cpu().numpy(), [0.5, 0.99]).tolist()
        curve.append(AfterLoops(count, Estimate.of(errors), median, upper))
    return curve
