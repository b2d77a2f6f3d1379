"""`innerloop bench dictionary`: softmax heads over a dictionary, exact loss against sampled loss.

Both losses belong to the same weights and differ only in how the expectation over prompts is taken:
as a quadratic form in the matrix of attention weights, or over 256 prompts as in Yang 2024.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from innerloop import theory
from innerloop.benchmarks.timing import seconds
from innerloop.models import DictionaryAttention, block_form_forward
from innerloop.prompt import Prompt
from innerloop.tasks import DictionaryRegression
from innerloop.training import Exact, Objective, Prompts, train

BATCH = 256


@dataclass(frozen=True)
class Sizes:
    """The d, m, N, K and H of Yang 2024, by default those of its Figure 2."""

    d: int = 100
    features: int = 20
    shown: int = 30
    tokens: int = 200
    heads: int = 64

    def task(self) -> DictionaryRegression:
        return DictionaryRegression.gaussian(
            self.d, self.features, self.tokens, self.shown, 0.01, generator=_generator()
        )

    def model(self) -> DictionaryAttention:
        return DictionaryAttention.gaussian(
            self.heads, self.d, self.tokens, generator=_generator(1)
        )


FIGURE2 = Sizes()
FIFTH = Sizes(20, 4, 6, 40, 13)
CHANGES: dict[str, list[Sizes]] = {
    "H": [replace(FIGURE2, heads=heads) for heads in (16, 32, 64, 128)],
    "K": [replace(FIGURE2, tokens=tokens) for tokens in (50, 100, 200, 400)],
    "N": [replace(FIGURE2, shown=shown) for shown in (15, 30, 60, 120)],
}


def run(console: Console) -> None:
    """All tables, one after another."""
    console.print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, float64")
    for table in (steps, growth, progress):
        console.print(table())


@dataclass(frozen=True)
class AllBlocks:
    """The sampled loss in the block form, with the K x K output of which the diagonal is used."""

    prompts: Prompts

    def sample(self, generator: torch.Generator) -> Prompt:
        return self.prompts.sample(generator)

    def loss(self, model: DictionaryAttention, batch: Prompt) -> Tensor:
        prediction = block_form_forward(model.q, model.w, batch)
        return (prediction - batch.targets).square().mean()


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _step(objective: Objective, model: DictionaryAttention) -> Callable[[], None]:
    """One step of Adam, with its prompts drawn within the measured time."""
    optimizer, source = torch.optim.Adam(model.parameters(), 1e-2, fused=True), _generator(2)

    def call() -> None:
        optimizer.zero_grad()
        objective.loss(model, objective.sample(source)).backward()
        optimizer.step()

    return call


def steps() -> Table:
    """A step on the exact loss, on sampled prompts, and with every matrix written out."""
    table = Table(title=f"one step of Adam, relative to the exact loss (batch {BATCH} if sampled)")
    for column in ("d", "m", "N", "K", "H", "sampled", "all blocks", "gradient error"):
        table.add_column(column, justify="right")
    for sizes, with_blocks in ((FIFTH, True), (FIGURE2, False)):
        task, model = sizes.task(), sizes.model()
        exact, sampled = Exact(task), Prompts(task, BATCH)
        error = _gradient_error(exact, sampled, sizes.model())
        base = seconds(_step(exact, model))
        ratio = seconds(_step(sampled, sizes.model())) / base
        blocks = (
            seconds(_step(AllBlocks(sampled), sizes.model()), repeats=2) / base
            if with_blocks
            else None
        )
        table.add_row(
            *map(str, (sizes.d, sizes.features, sizes.shown, sizes.tokens, sizes.heads)),
            f"{ratio:.2f}",
            "-" if blocks is None else f"{blocks:.0f}",
            f"{error:.0%}",
        )
    return table


def _gradient_error(exact: Exact, sampled: Prompts, model: DictionaryAttention) -> float:
    """How far the gradient of one batch is from the exact one, relative to it."""
    parameters = [model.w]  # Q has no gradient where w = 0
    (true,) = torch.autograd.grad(exact.loss(model), parameters)
    (noisy,) = torch.autograd.grad(sampled.loss(model, sampled.sample(_generator(3))), parameters)
    return ((noisy - true).norm() / true.norm()).item()


def growth() -> Table:
    """Cost of an exact step as H, K and N double, relative to the first; and of a sampled one."""
    table = Table(title="one step of Adam as one size grows from Figure 2's: relative to the first")
    table.add_column("size")
    for column in ("value", "exact", "sampled", "sampled / exact"):
        table.add_column(column, justify="right")
    for name, settings in CHANGES.items():
        first: tuple[float, float] | None = None
        for sizes in settings:
            task = sizes.task()
            times = (
                seconds(_step(Exact(task), sizes.model()), repeats=3),
                seconds(_step(Prompts(task, BATCH), sizes.model()), repeats=3),
            )
            first = first or times
            value = {"H": sizes.heads, "K": sizes.tokens, "N": sizes.shown}[name]
            table.add_row(
                name,
                str(value),
                *(f"{time / base:.2f}" for time, base in zip(times, first, strict=True)),
                f"{times[1] / times[0]:.2f}",
            )
    return table


def progress() -> Table:
    """What the same steps achieve: the loss above its infimum, relative to the start."""
    task, checkpoints = FIFTH.task(), (100, 300, 1000)
    table = Table(title="gap to the infimum relative to the start, a fifth of Figure 2's sizes")
    table.add_column("loss")
    for steps_taken in checkpoints:
        table.add_column(f"{steps_taken} steps", justify="right")
    risk = theory.softmax.DictionaryRisk.of(task.features, task.shown, task.tau, task.second_moment)
    objectives: dict[str, Objective] = {
        "exact": Exact(task),
        f"sampled, {BATCH}": Prompts(task, BATCH),
    }
    for name, objective in objectives.items():
        model = FIFTH.model()
        history = train(
            model,
            objective,
            torch.optim.Adam(model.parameters(), 1e-2),
            steps=checkpoints[-1],
            generator=_generator(4),
            metrics={"gap": lambda model: risk.gap(model.attention(task.tokens, task.n)).item()},
        )
        gaps = dict(zip(history["step"], history["gap"], strict=True))
        table.add_row(name, *(f"{gaps[step] / gaps[0]:.1e}" for step in checkpoints))
    return table
