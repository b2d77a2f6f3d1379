"""`innerloop bench linear`: linear attention in Gram space, and the three objectives."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from innerloop import theory
from innerloop.benchmarks.gram_space import FORMS, LAYERS, D, forward_forms, loss_and_gradient
from innerloop.benchmarks.timing import seconds
from innerloop.models import GradientDescentWeights, LinearAttention
from innerloop.tasks import LinearRegression
from innerloop.training import (
    Ensemble,
    Exact,
    Objective,
    Prompts,
    Together,
    Wishart,
    minimise,
    train,
)

N = 20
MARGINS = (0.05, 0.01, 0.001)


def run(console: Console) -> None:
    """All tables, one after another."""
    console.print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, float64 but where said"
    )
    for table in forward_forms():
        console.print(table)
    for measure in (growth, time_to_optimum, seeds_together):
        console.print(measure())


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def growth() -> Table:
    """How the time after G_0 grows when one of n, d, L is changed; the rest as in the first row."""
    table = Table(title="time of loss and gradient after G_0, relative to n = 20, d = 5, L = 3")
    for column in ("n", "d", "L", "A", "A, B"):
        table.add_column(column, justify="right")
    settings = [(20, 5, 3), (200, 5, 3), (2000, 5, 3), (20, 10, 3), (20, 20, 3), (20, 5, 6),
                (20, 5, 12)]  # fmt: skip
    first: dict[str, float] = {}
    for n, d, layers in settings:
        cells = []
        for name, form in FORMS.items():
            weights = form.gaussian(d, layers, 0.01, generator=_generator())
            model = LinearAttention(weights)
            prompt = LinearRegression.isotropic(d, n).sample(2_000, generator=_generator())
            gram, queries = prompt.gram(), prompt.x_query
            predict = partial(model.answer, gram, queries)
            call = loss_and_gradient(weights, predict, prompt.y_query)
            elapsed = seconds(call)
            first.setdefault(name, elapsed)
            cells.append(f"{elapsed / first[name]:.2f}")
        table.add_row(str(n), str(d), str(layers), *cells)
    return table


def _figure1_task() -> LinearRegression:
    return LinearRegression.with_inverse_prior(
        torch.diag(torch.tensor([1.0, 1.0, 0.25, 0.0625, 1.0], dtype=torch.float64)), N
    )


@dataclass
class Race:
    """L-BFGS on one objective, watched through the exact loss; watching is not counted."""

    objective: Objective
    reached: dict[float, float] = field(default_factory=dict)
    excess: float = float("inf")
    seconds_per_evaluation: float = float("nan")

    def run(self, task: LinearRegression, optimum: float, steps: int = 300) -> None:
        weights = GradientDescentWeights.gaussian(D, LAYERS, 0.05, generator=_generator())
        model, exact = LinearAttention(weights), Exact(task)
        batch = self.objective.sample(_generator(1))
        self.objective.loss(model, batch).backward()  # warms up
        evaluations, watching, start = 0, 0.0, time.perf_counter()

        def loss() -> Tensor:
            nonlocal evaluations
            evaluations += 1
            return self.objective.loss(model, batch)

        def watch(step: int, _: float) -> None:
            nonlocal watching
            pause = time.perf_counter()
            with torch.no_grad():
                self.excess = exact.loss(model).item() / optimum - 1
            for margin in MARGINS:
                if self.excess < margin:
                    self.reached.setdefault(margin, pause - start - watching)
            watching += time.perf_counter() - pause

        minimise(model, loss, steps=steps, watch=watch)
        self.seconds_per_evaluation = (time.perf_counter() - start - watching) / evaluations


def time_to_optimum() -> Table:
    """Seconds of L-BFGS until the exact loss is within a margin of the optimum of Figure 1."""
    task = _figure1_task()
    optimum = theory.linear.untied_optimum(LAYERS, N, D).risk
    # The polynomial is found once, and torch imports much at its first optimizer: neither is part
    # of an objective's time.
    Race(Exact(task)).run(task, optimum, steps=1)
    table = Table(title=f"L-BFGS to {optimum:.5f} ({LAYERS} layers, n = {N}, d = {D})")
    table.add_column("objective")
    for margin in MARGINS:
        table.add_column(f"s to +{margin:.1%}", justify="right")
    table.add_column("final excess", justify="right")
    table.add_column("s per evaluation / exact", justify="right")
    races = {
        "exact": Race(Exact(task)),
        "wishart, 20,000": Race(Wishart(task, 20_000)),
        "prompts, 20,000": Race(Prompts(task, 20_000)),
    }
    for name, race in races.items():
        race.run(task, optimum)
        times = [race.reached.get(margin) for margin in MARGINS]
        table.add_row(
            name,
            *("never" if t is None else f"{t:.2f}" for t in times),
            f"{race.excess:.1e}",
            f"{race.seconds_per_evaluation / races['exact'].seconds_per_evaluation:.1f}",
        )
    return table


def _adam_steps(task: LinearRegression, members: int, batch: int, steps: int) -> None:
    weights = [
        GradientDescentWeights.gaussian(D, LAYERS, 0.05, generator=_generator(seed))
        for seed in range(members)
    ]
    ensemble = Ensemble([LinearAttention(w) for w in weights])
    train(
        ensemble,
        Together(Wishart(task, batch), members),
        torch.optim.Adam(ensemble.parameters(), lr=0.01),
        steps=steps,
        generator=_generator(),
    )


def seeds_together() -> Table:
    """Adam steps of five models at once, relative to those of one."""
    task, steps = _figure1_task(), 50
    table = Table(title=f"{steps} Adam steps on Wishart samples: five seeds together")
    for column in ("batch each", "one seed, s", "five together / one"):
        table.add_column(column, justify="right")
    for batch in (50, 500, 5_000):
        one = seconds(partial(_adam_steps, task, 1, batch, steps), repeats=2)
        five = seconds(partial(_adam_steps, task, 5, batch, steps), repeats=2)
        table.add_row(str(batch), f"{one:.2f}", f"{five / one:.2f}")
    return table
