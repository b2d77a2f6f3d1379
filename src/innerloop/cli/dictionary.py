"""The command that trains softmax heads on a dictionary and compares them with ridge regression."""

from __future__ import annotations

from typing import Literal

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from torch import Tensor

from innerloop import theory
from innerloop.models import DictionaryAttention
from innerloop.tasks import DictionaryRegression, GaussianCoefficients
from innerloop.training import DictionaryExact, DictionaryPrompts, Objective, cosine, train


def dictionary(
    heads: int = 16,
    d: int = 8,
    features: int = 4,
    tokens: int = 20,
    shown: int = 6,
    tau: float = 0.01,
    objective: Literal["exact", "prompts"] = "exact",
    batch: int = 256,
    steps: int = 1000,
    lr: float = 0.02,
    seed: int = 0,
) -> None:
    """Trains softmax heads on a dictionary of tokens and compares them with ridge regression.

    Tokens of norm 1 have Gaussian features that the heads are not shown; a prompt gives the first
    labels, and all are to be predicted (Yang 2024). All losses printed are exact expectations.

    Example: innerloop dictionary --heads 64 --d 100 --features 20 --tokens 200 --shown 30

    Args:
        heads: H, of the one softmax layer.
        d: the dimension of tokens.
        features: m, the dimension of the representation.
        tokens: K, the size of the dictionary.
        shown: N, how many labels a prompt shows.
        tau: variance of the noise on every feature.
        objective: exact (no sampling) or prompts.
        batch: prompts per step, if they are sampled.
        steps: of Adam.
        lr: the first learning rate; it falls to a hundredth along half a cosine.
        seed: of the dictionary, the initial weights and the prompts.
    """
    generator = torch.Generator().manual_seed(seed)
    task = DictionaryRegression.gaussian(d, features, tokens, shown, tau, generator=generator)
    model = DictionaryAttention.gaussian(heads, d, tokens, generator=generator)
    if not lr > 0:
        raise ValueError(f"lr must be positive, got {lr}")
    exact = DictionaryExact(task)
    objectives: dict[str, Objective] = {"exact": exact, "prompts": DictionaryPrompts(task, batch)}
    console = Console()
    with console.status("training"):
        train(
            model,
            objectives[objective],
            torch.optim.Adam(model.parameters(), lr),
            steps=steps,
            generator=generator,
            schedule=cosine(steps, floor=0.01),
            every=steps,
        )
    console.print(_comparison(task, exact.risk, model))
    console.print(
        f"the best predictor linear in the labels has the loss {exact.risk.infimum:.5g}; with one "
        f"head none is closer to it than {theory.softmax.one_head_floor(exact.risk):.3g}"
    )


def _comparison(
    task: DictionaryRegression, risk: theory.softmax.DictionaryRisk, model: DictionaryAttention
) -> Table:
    m = task.features.shape[1]
    moment = GaussianCoefficients(1.0, 2.0).second_moment(m).to(task.features)
    outside = theory.softmax.DictionaryRisk.of(task.features, task.shown, task.tau, moment)
    repeated = torch.eye(task.shown, len(task.tokens)).to(task.features)
    heads = f"{model.heads} head" + "s" * (model.heads > 1)
    learners: dict[str, Tensor] = {
        f"{heads}, trained": model.attention(task.tokens, task.shown).detach(),
        "ridge on the features, penalty m tau": risk.optimum,
        "ridge on the features, penalty N tau": theory.softmax.ridge_matrix(
            task.features, task.shown, task.shown * task.tau
        ),
        "the shown labels, 0 for the others": repeated,
        "zero": torch.zeros_like(repeated),
    }
    table = Table(
        title="exact expected loss; coefficients N(0, I) in domain, N(1, 4I) out of it",
        box=SIMPLE_HEAD,
    )
    table.add_column("predictor", no_wrap=True)
    for column in ("loss", "above the best", "out of domain"):
        table.add_column(column, justify="right")
    for name, matrix in learners.items():
        values = (risk(matrix), risk.gap(matrix), outside(matrix))
        table.add_row(name, *(f"{value.item():.4g}" for value in values))
    return table
