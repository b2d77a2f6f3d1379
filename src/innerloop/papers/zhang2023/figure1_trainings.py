"""The trainings behind Figure 1: GPT-2 on prompts of one covariance, or each of a fresh one.

Here they are of a size that two cores train in minutes: d = 5 and N = 10, 18, 25 for the paper's 20
and 40, 70, 100, a smaller network, and a recipe that needs a hundredth of the paper's steps.
`paper` is the paper's own (its Appendix E and Garg et al. 2022).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.algorithms import curve_answers
from innerloop.analysis.identification import Bootstrap
from innerloop.experiments import Experiment, Run, Study
from innerloop.models import InContext
from innerloop.models.blocks import Positions
from innerloop.papers.plots import as_table
from innerloop.papers.registry import Tables
from innerloop.tasks import Exponential, LinearRegression, Task, with_random_covariance

TASKS = {"fixed": "linear", "random": "random-covariance"}
"""Covariance I in every training prompt, or diag of Exponential(1) drawn anew."""
LENGTHS = {"quick": (10, 18, 25), "paper": (40, 70, 100)}
"""N, the examples of a training prompt."""
LONGEST = {"quick": 32, "paper": 130}
"""Examples of the longest test prompt, for which the table of positions is made."""
SEEDS = (0, 1, 2)
POSITIONS = {"no positions": "positions=false", "random offsets": "offsets=true"}
"""Two ways to train without rows of the table that no training prompt reaches."""
ALONG = (25, 50, 100, 200, 400, 800, 1600, 3200)
"""Steps of one training, at a constant rate, at which its model is kept."""


TESTS = {"I": 0.0, "Exponential(1)": 1.0, "4 Exponential(1)": 4.0, "9 Exponential(1)": 9.0}
"""The four panels: test prompts of the covariance I, or of diag(c Exponential(1)) drawn anew."""
PROMPTS = 64**2
RESAMPLES, COVERED = 1000, 0.9
"""Of the bootstrap, and the share of it between `low` and `high`."""


def experiments(scale: str) -> dict[str, Experiment]:
    """Every training by name; `smoke` shows those of `quick`."""
    if scale == "paper":
        return {
            f"{kind}-{n}-seed{seed}": as_printed(kind, n, seed)
            for seed, n, kind in product(SEEDS, LENGTHS["paper"], TASKS)
        }
    every = {
        f"{kind}-{n}-seed{seed}": small(kind, n, seed)
        for seed, n, kind in product(SEEDS, LENGTHS["quick"], TASKS)
    }
    every |= {
        f"{name.replace(' ', '-')}-10-seed{seed}": small("fixed", 10, seed, option)
        for seed, (name, option) in product(SEEDS, POSITIONS.items())
    }
    return every | {f"along-{steps}": on_the_way(steps) for steps in ALONG}


def small(kind: str, n: int, seed: int, option: str = "positions=true") -> Experiment:
    return Experiment(
        f"gpt2:layers=4,heads=4,width=64,examples={LONGEST['quick']},{option}",
        f"{TASKS[kind]}:d=5,n={n},dtype=float32",
        "positions:batch=64",
        "muon",
        "stable-decay",
        steps=4000,
        seed=seed,
    )


def on_the_way(steps: int) -> Experiment:
    """At a constant rate the shorter training is the beginning of the longer one."""
    return Experiment(
        "gpt2:layers=4,heads=4,width=64",
        "linear:d=5,n=10,dtype=float32",
        "positions:batch=64",
        "muon",
        "warm-up:over=80",
        steps=steps,
    )


def as_printed(kind: str, n: int, seed: int) -> Experiment:
    """What is not printed is Garg et al.'s: initial scale, curriculum, no schedule. The figure has
    one training of each; more seeds are what can be judged."""
    return Experiment(
        f"gpt2:layers=12,heads=8,width=256,examples={LONGEST['paper']},start=gpt2",
        f"{TASKS[kind]}:d=20,n={n},dtype=float32",
        "positions:batch=64",
        "adam:lr=0.0001",
        "constant",
        "grow:dims=5,points=11,every=2000",
        steps=500_000,
        clip=None,
        seed=seed,
    )


def measure(run: Run) -> Tables:
    """Errors of predicting the query after M examples, over E y^2, on the four kinds of prompts;
    and on those of the covariance I with other rows in the table of positions."""
    table, longest = _positions(run.model), longest_prompt(run.model)
    tables = {
        "curves": as_table(
            {"test": test, **row}
            for test, c in TESTS.items()
            for row in curve(run.model, tested(run.task, c, longest), run.task.d * (c or 1.0))
        )
    }
    if table is not None and not table.offsets and longest > run.task.n:
        tables["rows"] = as_table(
            {"rows": name, **row}
            for name, model in with_other_rows(run.model, run.task.n).items()
            for row in curve(model, tested(run.task, 0.0, longest), float(run.task.d))
        )
    return tables


def longest_prompt(model: nn.Module) -> int:
    """Examples of the longest prompt that the model can read, or of the longest here."""
    table = _positions(model)
    return LONGEST["quick"] if table is None else (len(table.table) - 1) // 2


def tested(trained: Task, c: float, n: int) -> Task:
    """Noiseless linear regression with prompts of n examples; c = 0 is the covariance I."""
    white = LinearRegression.isotropic(trained.d, n, dtype=torch.float32)
    return white if not c else with_random_covariance(white, Exponential(trained.d, c))


@torch.no_grad()
def errors(
    model: nn.Module, task: Task, generator: torch.Generator
) -> Float[Tensor, "prompts examples"]:
    """The squared error at every M, on fresh prompts."""
    parts = []
    for _ in range(PROMPTS // 64):
        prompt = task.sample(64, generator=generator)
        parts.append((curve_answers(model, prompt) - prompt.curve_targets()).square())
    return torch.cat(parts).double()


def curve(model: nn.Module, task: Task, unit: float) -> Iterator[Mapping[str, Any]]:
    """The mean of the squared error over `unit` at every M, with its bootstrap interval."""
    generator = torch.Generator().manual_seed(0)
    off = errors(model, task, generator) / unit
    drawn = Bootstrap.of(off, generator=generator, resamples=RESAMPLES)
    tail = (1 - COVERED) / 2
    low, high = (drawn.resampled.quantile(share, dim=0) for share in (tail, 1 - tail))
    for count, values in enumerate(
        zip(drawn.mean.tolist(), low.tolist(), high.tolist(), strict=True)
    ):
        yield {"examples": count, **dict(zip(("error", "low", "high"), values, strict=True))}


def with_other_rows(model: nn.Module, n: int) -> dict[str, nn.Module]:
    """The model with three kinds of rows where no training prompt of n examples has been.

    x and y alternate: the last trained rows of each are repeated in turn.
    """
    models = {name: deepcopy(model) for name in ("as drawn", "last trained ones", "zero")}
    for name, changed in models.items():
        positions = _positions(changed)
        assert positions is not None
        rows = positions.table.data
        beyond = rows[2 * n + 1 :]
        if name == "zero":
            beyond.zero_()
        elif name == "last trained ones":
            beyond[0::2], beyond[1::2] = rows[2 * n - 1].clone(), rows[2 * n].clone()
    return models


def _positions(model: nn.Module) -> Positions | None:
    assert isinstance(model, InContext)
    return model.model.positions if isinstance(model.model.positions, Positions) else None


def seconds_per_step(experiment: Experiment) -> float:
    """On one core here: grows with tokens and weights, measured at N = 10 and at the paper's."""
    model, task, _ = experiment.build()
    weights = sum(p.numel() for p in model.parameters())
    return 1.0e-10 * weights * 64 * (2 * task.n + 1)


STUDY = Study(
    "zhang2023/figure1",
    experiments,
    measure,
    seconds_per_step,
    with_weights=lambda name: name.endswith("seed0") or name.startswith("along"),
)
