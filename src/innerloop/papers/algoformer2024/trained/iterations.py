"""Gradient descent and Newton's method beside the loops of a trained model, and what noise does.

Both have w_ls - w_k = p_k(S) w_ls with a polynomial p_k of the examples' second moments S alone:
labels, and so their noise, move the limit w_ls and not the way there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.algorithms import Learner, LeastSquares, Newton, StableGradientDescent
from innerloop.analysis import Estimate, estimate_risk
from innerloop.experiments import ALGORITHMS, REFERENCES, TASKS, Run
from innerloop.papers.algoformer2024.trained.costs import cost_table
from innerloop.papers.algoformer2024.trained.measuring import (
    MODEL,
    UNTRAINED,
    Sample,
    block_table,
    curve_table,
    inner_model,
    jacobian_table,
    loop_counts,
    loop_table,
    untrained,
)
from innerloop.papers.common import DTYPE, generator
from innerloop.papers.plots import as_table
from innerloop.papers.registry import Table
from innerloop.prompt import Prompt
from innerloop.tasks import LinearRegression

ALGORITHMS_BESIDE = ("gd", "newton")
BEST = {name: f"best iterate of {name}" for name in ALGORITHMS_BESIDE}
COMPARED = 256
"""Prompts on which iterates with and without noise are compared."""


def measured_with_iterates(run: Run) -> dict[str, Table]:
    """The tables of a record, with both algorithms on the same prompts in double precision."""
    spec = run.experiment.task.with_options({"dtype": "float64"}, TASKS)
    task = spec.build(TASKS)
    precise = Sample.of(task)
    sample = replace(precise, batches=[b.to(dtype=torch.float32) for b in precise.batches])
    unit = precise.unit()
    others = {name: ALGORITHMS[name](task) for name in REFERENCES["linear"]}
    noise_std = spec.options["noise_std"]
    if noise_std:
        others["ridge"] = ALGORITHMS["ridge"](task, penalty=noise_std**2)
    curves = {name: precise.errors(learner) / unit for name, learner in others.items()}
    curves[MODEL] = sample.errors(run.model) / unit
    errors = {**curves, UNTRAINED: sample.errors(untrained(run)) / unit}
    looped = inner_model(run)
    counts = loop_counts(looped.loops)
    tables: dict[str, Table] = {
        "costs": cost_table(run, unit),
        "loops": loop_table(counts, sample.errors_after_loops(looped, counts) / unit),
        "jacobian": jacobian_table(run, sample),
    }
    rows = []
    for name in ALGORITHMS_BESIDE:
        paths = {k: at_query(precise, _algorithm(name, k)) / unit for k in counts}
        for k, values in paths.items():
            estimate = Estimate.of(values)
            rows.append({"algorithm": name, "iteration": k, **_numbers(estimate)})
        best = min(paths.values(), key=lambda values: values.mean().item())
        errors[BEST[name]] = best.unsqueeze(1)
    return {
        **tables,
        "iterates": as_table(rows),
        "curve": curve_table(curves),
        "blocks": block_table(errors),
    }


def at_query(sample: Sample, learner: Learner) -> Float[Tensor, " prompts"]:
    """Squared errors after all examples."""
    parts = [(learner(batch) - batch.targets).square().flatten() for batch in sample.batches]
    return torch.cat(parts)


def _algorithm(name: str, steps: int) -> Learner:
    return StableGradientDescent(steps) if name == "gd" else Newton(steps)


def _numbers(estimate: Estimate) -> dict[str, float]:
    return {"mean": estimate.mean, "error": estimate.standard_error}


def contraction_table(d: int, n: int, noises: Sequence[float]) -> Table:
    """What is left of (w_ls - w_k) / w_ls in every eigendirection of S: with noise, and without.

    On the same covariates and weights. `change` is the largest difference, `slower` the largest
    increase, and `one step behind` the difference from the iterate before: what it would be if
    noise cost no more than that.
    """
    source = generator(55)
    x = torch.randn(COMPARED, n, d, generator=source, dtype=DTYPE)
    w = torch.randn(COMPARED, d, 1, generator=source, dtype=DTYPE)
    noise = torch.randn(COMPARED, n, generator=source, dtype=DTYPE)
    directions = torch.linalg.eigh(x.mT @ x).eigenvectors.mT  # asked about as queries
    clean = (x @ w).squeeze(-1)
    rows = []
    for name in ALGORITHMS_BESIDE:
        left = {
            std: _left(
                name, Prompt(x, clean + std * noise, directions, torch.zeros_like(w[..., 0]))
            )
            for std in (0.0, *noises)
        }
        for std in noises:
            apart = left[std] - left[0.0]
            behind = left[std][:-1] - left[0.0][1:]
            rows.append(
                {
                    **{"algorithm": name, "noise": std},
                    "change": apart.abs().max().item(),
                    "slower": apart.max().item(),
                    "one step behind": behind.abs().max().item(),
                }
            )
    return as_table(rows)


def _left(name: str, prompt: Prompt, steps: int = 8) -> Float[Tensor, "iterates batch d"]:
    limit = LeastSquares()(prompt)
    return torch.stack([1 - _algorithm(name, k)(prompt) / limit for k in range(1, steps + 1)])


def limit_table(d: int, n: int, noise_std: float, samples: int) -> Table:
    """The error that both end with: least squares on sampled prompts, and in closed form.

    It is proportional to the noise's variance, prompt by prompt: one noise says it for all.
    """
    task = LinearRegression(torch.eye(d, dtype=DTYPE), n, noise_std=noise_std)
    risk = estimate_risk(LeastSquares(), task, samples=samples, generator=generator(56))
    exact = {"exact": noise_std**2 * d / (n - d - 1), "with n - d": noise_std**2 * d / (n - d)}
    return as_table([{"noise": noise_std, **_numbers(risk), **exact}])
