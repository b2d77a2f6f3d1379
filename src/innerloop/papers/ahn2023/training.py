"""How the transformers of the paper's experiments are trained here.

Sparse weights (9), Figures 1 and 2: L-BFGS from Gaussian matrices, on the exact expected loss, and
for comparison on one fixed sample of prompts, as the authors' notebooks do.

Weights (13), Figures 3 and 4: on a fixed sample these overfit without bound (the loss has degree 26
in the sample covariance). Here every estimate of the loss is unbiased with its noise taken out
(`ControlledWishart`), each round of L-BFGS has a fresh sample, and depth grows one layer at a time:
a new Gaussian layer is put in front of the trained ones. Rounds after the first run in Gauss-Newton
coordinates, without which L-BFGS crawls (the best A_2 is 20 times A_0 and Sigma^-1 reaches 16).
Training is chaotic, so there are several starts for each seed: the one with the lowest training
loss is kept, and all are shown. The length of the opening round was chosen by looking at where
training ends: on other seeds, 20, 30 and 40 iterations led to the best known point of the ray in
12 of 12, 12 of 12 and 16 of 16 runs, 10 in 5 of 12, and 60 (on a larger sample) in 8 of 16; the
rest ended at local minima of the ray. 30 is the middle.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from innerloop import theory
from innerloop.analysis import Estimate, distance_to_identity
from innerloop.models import GDPlusPlusWeights, GradientDescentWeights, LinearAttention
from innerloop.papers.ahn2023.settings import LAYERS, SPARSE_N, TRANSFORMED_N, D, experiment
from innerloop.papers.common import DTYPE, generator, square_root
from innerloop.papers.quantity import at_most, measured
from innerloop.papers.registry import Table, Tables
from innerloop.papers.verdict import Check, Scale
from innerloop.tasks import LinearRegression
from innerloop.training import (
    ControlledWishart,
    Exact,
    History,
    Metric,
    Prompts,
    gauss_newton_coordinates,
    minimise,
)

INITIAL_STD = 0.05
OPENING = 30
"""L-BFGS iterations of the opening round, on the plain sampled loss."""
REFINING = 60
"""L-BFGS iterations of every later round, at most."""
ROUNDS = 14
"""Later rounds, at most; fewer if a fresh sample changes nothing."""

DEPARTURES = (
    "Departures from the paper: depth grows a layer at a time, from the front; the loss is sampled "
    "afresh for every round, with the part on the ray exact; rounds after the first run in "
    "Gauss-Newton coordinates; the best of several starts is kept by its training loss; and A is "
    "not constrained to be symmetric. Preconditioners have innerloop's sign, minus the paper's."
)
LIMIT = at_most(
    1e-6,
    "training has converged to more digits than this; every bound between it and the loss that is "
    "left gives the same verdict",
)
ARRIVED = at_most(
    1e-3, "a place is known to the root of what its loss is known to, 1e-8 or better, times 10"
)


@dataclass(frozen=True)
class Trained:
    """A transformer at the end of training, and how it got there."""

    seed: int
    task: LinearRegression
    model: LinearAttention
    history: History

    @property
    def white_preconditioners(self) -> Tensor:
        """Sigma^1/2 A_l Sigma^1/2."""
        root = square_root(self.task.covariance)
        return root @ self.model.weights.get_parameter("preconditioners").detach() @ root

    @property
    def transforms(self) -> Tensor:
        """B_l, without the last one, which changes nothing."""
        return self.model.weights.get_parameter("transforms").detach()[:-1]

    @property
    def loss(self) -> float:
        return self.history["loss"][-1]


def distances(task: LinearRegression, *, transformed: bool = False) -> dict[str, Metric]:
    """Dist, one number per layer: of Sigma^1/2 A_l Sigma^1/2 ("white"), of A_l and of B_l."""
    root = square_root(task.covariance)
    metrics: dict[str, Metric] = {
        "white": lambda m: distance_to_identity(root @ m.weights.preconditioners.detach() @ root),
        "plain": lambda m: distance_to_identity(m.weights.preconditioners.detach()),
    }
    if transformed:
        metrics["transforms"] = lambda m: distance_to_identity(m.weights.transforms.detach()[:-1])
    return metrics


def final(table: Table, column: str, training: str) -> list[float]:
    """Of every seed, the last value of this column: of all layers if it has one for each."""
    chosen = np.asarray(table["training"]) == training
    seeds = np.asarray(table["seed"])[chosen]
    columns = [c for c in table if c == column or c.startswith(f"{column} ")]
    values = [np.asarray(table[c], dtype=float)[chosen] for c in columns]
    return [float(v[seeds == seed][-1]) for v in values for seed in np.unique(seeds)]


def matches_theory(tables: Tables, training: str) -> list[Check]:
    """The learned matrices against a Sigma^-1 and, if there are transforms, b I."""
    table = tables["training"]
    to = {key: float(values[0]) for key, values in tables["reference"].items()}
    plain = [abs(v - to["Dist of Sigma^-1"]) for v in final(table, "plain", training)]
    white = {
        "trained": max(final(table, "white", training)),
        "Theorem 1's A": to["white, Theorem 1"],
    }
    checks = [
        measured("largest Dist of Sigma^1/2 A Sigma^1/2 at the end", ARRIVED, white).check(
            "trained", unlike="Theorem 1's A"
        ),
        measured(
            "largest difference of Dist of A at the end from that of Sigma^-1",
            ARRIVED,
            {
                "trained": max(plain),
                "Theorem 1's A": abs(to["plain, Theorem 1"] - to["Dist of Sigma^-1"]),
            },
        ).check("trained", unlike="Theorem 1's A"),
    ]
    if "transforms 0" in table:
        near = "Sigma^1/2 B Sigma^1/2, were B = I"
        dist = {"trained": max(final(table, "transforms", training)), near: to["Dist of Sigma"]}
        cases = measured("largest Dist of B at the end", ARRIVED, dist)
        checks.append(cases.check("trained", unlike=near))
    return checks


def reference_distances(n: int) -> Mapping[str, float]:
    """Dist of Sigma, Sigma^-1 and Theorem 1's preconditioner, which depend on no seed."""
    task = experiment(n, seed=0)
    root = square_root(task.covariance)
    other = theory.linear.one_step_preconditioner(task.covariance, n)
    return {
        "Dist of Sigma": distance_to_identity(task.covariance).item(),
        "Dist of Sigma^-1": distance_to_identity(task.covariance.inverse()).item(),
        "plain, Theorem 1": distance_to_identity(other).item(),
        "white, Theorem 1": distance_to_identity(root @ other @ root).item(),
    }


@cache
def sparse_transformers(scale: Scale, *, prompts: int = 0) -> list[Trained]:
    """Figures 1 and 2: three layers of weights (9), one transformer for each seed.

    On the exact expected loss, or on a fixed sample of so many prompts.
    """
    results = []
    for seed in range(scale.pick(smoke=2, quick=5, paper=5)):
        task, source = experiment(SPARSE_N, seed), generator(seed)
        weights = GradientDescentWeights.gaussian(D, LAYERS, INITIAL_STD, generator=source)
        model = LinearAttention(weights)
        loss = partial(Exact(task).loss, model)
        if prompts:
            objective = Prompts(task, prompts)
            loss = partial(objective.loss, model, objective.sample(source))
        steps = scale.pick(smoke=200, quick=400, paper=2000)
        history = minimise(model, loss, steps=steps, metrics=distances(task))
        results.append(Trained(seed, task, model, history))
    return results


@cache
def transformed_transformers(scale: Scale) -> list[list[Trained]]:
    """Figures 3 and 4: three layers of weights (13); for every seed its starts, best first."""
    seeds, starts = scale.pick(smoke=(1, 2), quick=(5, 2), paper=(5, 5))
    return [trained_from(experiment(TRANSFORMED_N, s), LAYERS, s, starts) for s in range(seeds)]


def trained_from(task: LinearRegression, layers: int, seed: int, starts: int) -> list[Trained]:
    """The transformers of several starts, that of the lowest training loss first."""
    runs = [
        Trained(seed, task, *grown(task, layers, generator(1000 * seed + start)))
        for start in range(starts)
    ]
    return sorted(runs, key=lambda run: run.loss)


def grown(
    task: LinearRegression, layers: int, source: torch.Generator
) -> tuple[LinearAttention, History]:
    """Weights (13) trained one layer, then two, ... ; the history is that of the last depth."""
    preconditioners = transforms = torch.zeros(0, task.d, task.d, dtype=DTYPE)
    for _ in range(layers):
        new = GDPlusPlusWeights.gaussian(task.d, 1, INITIAL_STD, generator=source)
        weights = GDPlusPlusWeights(
            torch.cat([new.preconditioners.detach(), preconditioners]),
            torch.cat([new.transforms.detach(), transforms]),
        )
        model = LinearAttention(weights)
        history = refine(model, task, source)
        preconditioners, transforms = weights.preconditioners.detach(), weights.transforms.detach()
    return model, history


def refine(model: LinearAttention, task: LinearRegression, source: torch.Generator) -> History:
    """An opening round of plain L-BFGS, then rounds in Gauss-Newton coordinates."""
    transformed = model.weights.layers > 1
    fit = partial(minimise, model, metrics=distances(task, transformed=transformed))
    opening = ControlledWishart(task, 200, control=False)
    history = fit(partial(opening.loss, model, opening.sample(source)), steps=OPENING)
    objective = ControlledWishart(task, 400)
    for _ in range(ROUNDS):
        before = copy.deepcopy(model.state_dict())
        probe, _ = ControlledWishart(task, 100).sample(source)
        round_history = fit(
            partial(objective.loss, model, objective.sample(source)),
            steps=REFINING,
            gradient_tolerance=1e-8,
            loss_tolerance=1e-10,
            coordinates=gauss_newton_coordinates(model, objective.residuals, probe),
        )
        first, last = round_history["loss"][0], round_history["loss"][-1]
        if last <= 0:
            # The expected loss is positive: this sample was not large enough. Draw another.
            model.load_state_dict(before)
            continue
        history.extend(round_history)
        if first - last < 1e-6 * last:
            break
    return history


def exact_and_sampled(trained: Trained, draws: int) -> Estimate:
    """The loss: that of the projection on the ray exactly, what exceeds it on fresh samples."""
    objective = ControlledWishart(trained.task, draws)
    with torch.no_grad():
        s, eigenvalues = objective.sample(generator(10_000 + trained.seed))
        full = objective.residuals(trained.model, s).square().sum((-2, -1))
        nearest = objective.ray(trained.model)
        error = theory.linear.ray_error(nearest.steps, eigenvalues, nearest.transforms)
        # The d shifts of one matrix belong together: average them before taking an error.
        excess = Estimate.of(full.view(draws, -1).mean(1) - error.square().sum(-1))
        on_ray = objective.ray_risk(trained.model).item()
    return Estimate(on_ray + excess.mean, excess.standard_error, draws)
