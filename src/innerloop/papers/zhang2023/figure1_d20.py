"""Figure 1 at the paper's own d = 20 and N = 40, with a smaller network: one training each.

Its statements are judged as in `figure1_gpt2`, with one difference: there is one training of each
kind, so that the standard errors are over parts of the test prompts, and a verdict speaks of these
two models.
"""

from __future__ import annotations

import torch

from innerloop.experiments import Experiment, Run, Study
from innerloop.papers.plots import as_rows, as_table
from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Scale
from innerloop.papers.zhang2023.figure1_gpt2 import draw, judge, references, training_losses
from innerloop.papers.zhang2023.figure1_trainings import (
    TASKS,
    TESTS,
    errors,
    longest_prompt,
    seconds_per_step,
    tested,
)

D, N, LONGEST = 20, 40, 52
PARTS = 8
"""Of the test prompts: their means are compared as other figures compare seeds."""


def experiments(scale: str) -> dict[str, Experiment]:
    """The same at every scale. Without the curriculum over dimensions, errors stay near those of
    predicting 0 for the first thousand steps."""
    return {
        f"{kind}-{N}": Experiment(
            f"gpt2:layers=6,heads=4,width=128,examples={LONGEST}",
            f"{task}:d={D},n={N},dtype=float32",
            "positions:batch=64",
            "muon",
            "stable-decay",
            "grow:dims=5,every=100",
            steps=4000,
        )
        for kind, task in TASKS.items()
    }


def measure(run: Run) -> Tables:
    """Errors of predicting the query after M examples, over E y^2, on each part of the prompts."""
    longest, rows = longest_prompt(run.model), []
    for test, c in TESTS.items():
        task = tested(run.task, c, longest)
        off = errors(run.model, task, torch.Generator().manual_seed(0)) / (D * (c or 1.0))
        for part, means in enumerate(chunk.mean(0).tolist() for chunk in off.chunk(PARTS)):
            rows += [
                {"test": test, "part": part, "examples": m, "error": mean}
                for m, mean in enumerate(means)
            ]
    return {"curves": as_table(rows)}


STUDY = Study(
    "zhang2023/figure1-d20", experiments, measure, seconds_per_step, with_weights=lambda name: True
)


@figure(
    "zhang2023/figure1-d20",
    "What Figure 1 is said to show, at the paper's d = 20 and N = 40, of one training each",
    source="Figure 1 and section 4.3",
    judge=judge,
    draw=draw,
    study=STUDY,
)
def figure1_d20(scale: Scale) -> Numbers:
    records = STUDY.results(scale)
    curves = []
    for kind in TASKS:
        for row in as_rows(records[f"{kind}-{N}"].tables["curves"]):
            part, error = row.pop("part"), row["error"]
            of_part = {"seed": part, "low": error, "high": error}
            curves.append({"training": kind, "N": N, **row, **of_part})
    task = records[f"fixed-{N}"].task()
    squares, linear = references(task, LONGEST, [N])
    tables = {"curves": as_table(curves), "least squares": squares, "linear": linear}
    tables["training"] = training_losses({(k, N, 0): records[f"{k}-{N}"] for k in TASKS}, D)
    caption = (
        f"As Figure 1, with d = {D} and N = {N} as in the paper, and GPT-2 with 6 layers of width "
        "128: one training of each kind, 4,000 steps of Muon for 500,000 of Adam, with a "
        "curriculum over dimensions. Bands reach from the lowest to the highest of "
        f"{PARTS} parts of 4,096 prompts."
    )
    return Numbers(tables, caption, {"d": D, "N": N, "parts": PARTS})
