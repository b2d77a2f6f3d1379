"""How the four-layer encoders of Figures 2b and 5 are trained and timed.

Departures from the paper, which has no public code and leaves open how labels enter, how tokens are
scaled, tau and the meaning of an iteration: the encoder is `DictionaryEncoder`, tokens have norm 1,
tau = 0.01 as in Figure 3. Batches are drawn from 10,000 fixed functions, as printed, with fresh
noise. An iteration is taken to be one pass over these functions, 39 batches of 256. Figure 5 then
has the 35 iterations of its printed curves.

At the printed sizes a step takes 14 seconds on one CPU core. `quick` and `smoke` have a tenth of
the paper's d, m, N and K, a width of 32 and a larger learning rate. Weights are float32.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import count

import torch
from torch import Tensor, nn

from innerloop import theory
from innerloop.analysis import Estimate
from innerloop.models import DictionaryAttention, DictionaryEncoder
from innerloop.papers.common import generator
from innerloop.papers.verdict import Scale
from innerloop.papers.yang2024.half_loss import SampledHalfLoss
from innerloop.papers.yang2024.settings import OUT_OF_DOMAIN, Instance, Sizes, instance
from innerloop.prompt import Prompt
from innerloop.tasks import (
    Coefficients,
    DictionaryRegression,
    GaussianCoefficients,
    TabulatedCoefficients,
)
from innerloop.training import History, train

DOMAINS = {"in domain": GaussianCoefficients(), "out of domain": OUT_OF_DOMAIN}
TRAINING_SET = 10_000
TEST_PROMPTS = 200
PRINTED_RATE = 1e-4


@dataclass(frozen=True)
class Plan:
    """Sizes and training of one scale."""

    sizes: Sizes
    """Of the dictionary; its number of heads is that of Figure 2b."""
    width: int
    hidden: int
    batch: int
    rate: float
    steps: int
    """Of Figure 2b."""
    compared_steps: int
    """Of every number of heads in Figure 5."""
    heads: tuple[int, ...]
    """Of Figure 5."""
    seeds: int
    """Starts of every encoder, all on one dictionary."""
    prompts: int
    """On which the losses at the end are estimated."""
    reduction: str

    @property
    def description(self) -> dict[str, str | int | float]:
        return {
            "sizes": f"{self.sizes.with_heads(0)}: {self.reduction}",
            "encoder": f"4 layers, d_model = {self.width}, d_ff = {self.hidden}, float32",
            "optimizer": f"Adam, learning rate {self.rate}, batches of {self.batch}",
            "training set": f"{TRAINING_SET} functions, fresh noise",
            "starts": self.seeds,
        }

    @property
    def in_words(self) -> str:
        """For a caption: what differs from the paper."""
        rate = "" if self.rate == PRINTED_RATE else f", where {PRINTED_RATE:g} is printed"
        return (
            f"Sizes are {self.reduction}, d_model = {self.width}, and Adam has the learning rate "
            f"{self.rate:g}{rate}."
        )


def plan(scale: Scale) -> Plan:
    tenth = Sizes(10, 2, 3, 20, 0.01, 8)
    small = partial(Plan, tenth, 32, 64, 32, 3e-3, reduction="a tenth of the paper's")
    return scale.pick(
        smoke=small(150, 150, (1, 16), seeds=2, prompts=2000),
        quick=small(400, 400, (1, 4, 8, 32), seeds=3, prompts=4000),
        paper=Plan(
            *(Sizes(100, 20, 30, 200, 0.01, 8), 256, 512, 256, PRINTED_RATE, 200 * 39, 35 * 39),
            heads=(1, 2, 4, 8, 16, 32, 64),
            seeds=1,
            prompts=2000,
            reduction="the paper's",
        ),
    )


@dataclass(frozen=True)
class Dictionary:
    """The task of a plan with its exact risk."""

    made: Instance
    """With one head, at its start."""
    seed: int

    @property
    def task(self) -> DictionaryRegression:
        return self.made.task

    @cached_property
    def one_head_floor(self) -> float:
        """Below which the gap of a one-layer transformer with one head cannot come."""
        return theory.softmax.one_head_floor(self.made.risk)

    @property
    def start(self) -> float:
        """The gap at w = 0."""
        return self.made.objective.gap(self.made.model).item()

    def with_coefficients(self, coefficients: Coefficients) -> DictionaryRegression:
        """The same tokens in single precision, with other functions."""
        tokens, features = self.task.tokens.float(), self.task.features.float()
        return replace(self.task, tokens=tokens, features=features, coefficients=coefficients)

    def ridge(self) -> Tensor:
        """y* of (22), by ridge regression on the features."""
        task = self.task
        penalty = task.features.shape[1] * task.tau
        return theory.softmax.ridge_matrix(task.features, task.shown, penalty)

    def squared_errors(self, model: nn.Module, prompt: Prompt) -> Tensor:
        """(1/K) |prediction - y*|^2 of every prompt: the paper's inference loss."""
        with torch.no_grad():
            return (model(prompt).double() - prompt.y.double() @ self.ridge()).square().mean(1)

    def inference(self, model: nn.Module, coefficients: Coefficients, prompts: int) -> Estimate:
        """The inference loss over fresh prompts, in parts that fit into memory."""
        task, source = self.with_coefficients(coefficients), generator(8)
        parts = [
            self.squared_errors(model, task.sample(TEST_PROMPTS, generator=source))
            for _ in range(prompts // TEST_PROMPTS)
        ]
        return Estimate.of(torch.cat(parts))

    def one_layer(self, heads: int, steps: int) -> Instance:
        """The one-layer transformer, trained on the exact loss of the same dictionary."""
        tokens, d = self.task.tokens.shape
        model = DictionaryAttention.gaussian(heads, d, tokens, generator=generator(self.seed))
        optimizer = torch.optim.Adam(model.parameters(), 2e-2)
        objective = self.made.objective
        train(model, objective, optimizer, steps=steps, generator=generator(0), every=steps)
        return Instance(self.task, model)


@cache
def dictionary(chosen: Plan) -> Dictionary:
    """The first whose floor for one head of one layer is at least a tenth of the gap at w = 0.

    The floor differs much between small dictionaries; this one has about what the printed sizes
    give, and depends on no training.
    """
    made = (Dictionary(instance(chosen.sizes.with_heads(1), seed), seed) for seed in count())
    return next(d for d in made if d.one_head_floor >= d.start / 10)


def encoder(chosen: Plan, heads: int, seed: int) -> DictionaryEncoder:
    source = generator(1 + 100 * seed)
    return DictionaryEncoder(
        chosen.sizes.d, heads, width=chosen.width, hidden=chosen.hidden, generator=source
    )


def objective(chosen: Plan) -> SampledHalfLoss:
    features = chosen.sizes.features
    drawn = DOMAINS["in domain"].draw(TRAINING_SET, features, generator=generator(2))
    task = dictionary(chosen).with_coefficients(TabulatedCoefficients(drawn))
    return SampledHalfLoss(task, chosen.batch)


def adam(chosen: Plan, model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), chosen.rate, fused=True)


@cache
def trained(
    chosen: Plan, heads: int, steps: int, seed: int = 0
) -> tuple[DictionaryEncoder, History]:
    """An encoder with its history: the loss on training functions and both inference losses."""
    made, goal, model = dictionary(chosen), objective(chosen), encoder(chosen, heads, seed)
    seen = goal.task.sample(TEST_PROMPTS, generator=generator(3))
    tests = {
        name: made.with_coefficients(domain).sample(TEST_PROMPTS, generator=generator(4 + index))
        for index, (name, domain) in enumerate(DOMAINS.items())
    }

    def training_loss(current: nn.Module) -> float:
        with torch.no_grad():
            return goal.loss(current, seen).item()

    def inference_loss(prompt: Prompt, current: nn.Module) -> float:
        return made.squared_errors(current, prompt).mean().item()

    history = train(
        model,
        goal,
        adam(chosen, model),
        steps=steps,
        generator=generator(6 + 100 * seed),
        every=max(steps // 20, 1),
        metrics={"training": training_loss}
        | {name: partial(inference_loss, prompt) for name, prompt in tests.items()},
    )
    return model, history


def step_seconds(chosen: Plan, heads: Sequence[int], rounds: int) -> list[float]:
    """Process time of a training step with each number of heads: the shortest of several.

    A few steps of each in turn, round after round, so that a busy moment of the machine is shared.
    """
    goal = objective(chosen)
    models = [encoder(chosen, h, 0) for h in heads]
    times: list[list[float]] = [[] for _ in heads]
    for _ in range(rounds):
        for model, measured in zip(models, times, strict=True):
            ends: list[float] = []

            def watch(step: int, loss: float, ends: list[float] = ends) -> None:
                ends.append(time.process_time())

            optimizer = adam(chosen, model)
            train(model, goal, optimizer, steps=3, generator=generator(7), every=3, watch=watch)
            measured.extend(after - before for before, after in zip(ends, ends[1:], strict=False))
    return [min(measured) for measured in times]
