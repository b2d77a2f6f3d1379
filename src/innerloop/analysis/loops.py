"""What looping a model longer does: losses after every loop, and whether a loop contracts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import jacrev, vmap

from innerloop.analysis.risk import Estimate, require_samples
from innerloop.memory import FLOAT64, require_memory
from innerloop.models import InContext, LinearAttention, Looped, Translator
from innerloop.prompt import Prompt
from innerloop.tasks import Task

CHUNK = 64
"""Prompts of a transformer at one time: the residuals after every loop are kept."""
MOST_LOOPS = 1000
"""Every number of loops up to the last is measured from the start: their cost is a square."""


def require_loops(loops: int) -> None:
    if loops < 1:
        raise ValueError(f"loops must be at least 1, got {loops}")
    if loops > MOST_LOOPS:
        raise ValueError(f"loops must be at most {MOST_LOOPS}, got {loops}")


def loop_spectral_radius(model: Any, batch: Any) -> Float[Tensor, " batch"]:
    """By how much one more loop can stretch a small difference, prompt by prompt.

    Below 1, looping longer converges near where it is; of linear attention, on the whole prompt.
    """
    if isinstance(model, LinearAttention):
        return _of_unexplained_labels(model, batch)
    inner = model.model if isinstance(model, InContext | Translator) else model
    if not isinstance(inner, Looped):
        raise ValueError(f"only a looped model has loops, got {type(inner).__name__}")
    sequence = batch.interleave() if isinstance(batch, Prompt) else batch
    if isinstance(model, Translator):
        sequence = model.embedded(batch)
    return _of_the_residual(*inner.loop_at_its_end(sequence))


POWER_STEPS = 200
"""The error falls as one over their number where eigenvalues are of nearly equal size."""


def _of_the_residual(
    loop: Callable[[Tensor], Tensor], z: Float[Tensor, "batch length width"]
) -> Float[Tensor, " batch"]:
    """The largest |eigenvalue| of the loop's Jacobian at z, by the power method on its transpose.

    The mean growth over the second half of the steps: a pair of complex eigenvalues turns the
    vector for ever, and only its length settles.
    """
    z = z.detach().requires_grad_()
    after = loop(z)
    v = torch.randn(z.shape, generator=torch.Generator().manual_seed(0)).to(z)
    logs = []
    for _ in range(POWER_STEPS):
        v = v / v.flatten(1).norm(dim=1).clamp_min(1e-30)[:, None, None]
        (v,) = torch.autograd.grad(after, z, v, retain_graph=True)
        logs.append(v.flatten(1).norm(dim=1).clamp_min(1e-30).log())
    return torch.stack(logs[POWER_STEPS // 2 :]).mean(0).exp()


@torch.no_grad()
def _of_unexplained_labels(model: LinearAttention, prompt: Prompt) -> Float[Tensor, " batch"]:
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
    """The loss of a model that is looped this many times."""

    loops: int
    mean: Estimate
    median: float
    upper: float
    """The 99th percentile."""


@torch.no_grad()
def loop_curve(
    model: Any,
    task: Task,
    *,
    loops: int,
    samples: int,
    generator: torch.Generator,
    watch: Callable[[int], None] = lambda done: None,
) -> list[AfterLoops]:
    """Losses on the same fresh prompts after 1, 2, ..., `loops` loops.

    Of any model with `after_loops(batch, counts)`; the losses of a prompt are averaged over its
    targets. `watch` is told how many prompts are done. The mean can grow while the median falls: a
    few prompts on which the loop expands carry it, and a sample that misses them shows neither the
    growth nor the right standard error.
    """
    require_loops(loops)
    require_samples(samples)
    # All at once: a percentile needs every error.
    require_memory(f"{samples} prompts", 3 * FLOAT64 * samples * (task.n + 1) * (task.d + 1))
    counts, parts = range(1, loops + 1), []
    size = samples if isinstance(model, LinearAttention) else CHUNK
    for first in range(0, samples, size):
        batch = task.sample(min(size, samples - first), generator=generator)
        parts.append(batch.errors(model.after_loops(batch, counts)).double().cpu())
        watch(min(first + size, samples))
    curve = []
    for count, errors in zip(counts, torch.cat(parts, dim=1), strict=True):
        # NumPy, since torch takes the quantiles of 16 million numbers at most.
        median, upper = np.quantile(errors.numpy(), [0.5, 0.99]).tolist()
        curve.append(AfterLoops(count, Estimate.of(errors), median, upper))
    return curve
