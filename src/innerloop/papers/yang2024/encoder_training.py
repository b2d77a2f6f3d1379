"""How the four-layer encoders of Figures 2b and 5 are trained and timed.

Departures from the paper, which has no public code and leaves open how labels enter, how tokens are
scaled, tau and the meaning of an iteration: the encoder is `DictionaryEncoder`, tokens have norm 1,
tau = 0.01 as in Figure 3. Batches are drawn from 10,000 fixed functions, as printed, with fresh
noise. What an iteration is, the paper does not say: it is taken to be one pass over these
functions, 39 batches of 256. Figure 5 then has the 35 iterations of its printed curves.

At the printed sizes a step takes 14 seconds on one CPU core. `quick` has a fifth of the paper's d,
m, N and K, and `smoke` a tenth, with a width of 32 and a larger learning rate. Weights are float32.
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
from innerloop.papers.yang2024.half_loss import ExactHalfLoss, SampledHalfLoss
from innerloop.papers.yang2024.settings import Sizes
from innerloop.prompt import Prompt
from innerloop.tasks import (
    Coefficients,
    DictionaryRegression,
    GaussianCoefficients,
    TabulatedCoefficients,
)
from innerloop.training import History, train

IN_DOMAIN, OUT_OF_DOMAIN = GaussianCoefficients(), GaussianCoefficients(1.0, 2.0)
TRAINING_SET = 10_000
TEST_PROMPTS = 200


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
    reduction: str

    @property
    def description(self) -> dict[str, str | int | float]:
        return {
            "sizes": f"{replace(self.sizes, heads=0)}".replace(", H = 0", "")
            + f": {self.reduction}",
            "encoder": f"4 layers, d_model = {self.width}, d_ff = {self.hidden}, float32",
            "optimizer": f"Adam, learning rate {self.rate}, batches of {self.batch}",
            "training set": f"{TRAINING_SET} functions, fresh noise",
        }


def plan(scale: Scale) -> Plan:
    return scale.pick(
        smoke=Plan(
            *(Sizes(10, 2, 3, 20, 0.01, 8), 32, 64, 32, 3e-3, 150, 150, (1, 8)),
            reduction="a tenth of the paper's",
        ),
        quick=Plan(
            *(Sizes(20, 4, 6, 40, 0.01, 8), 32, 64, 32, 3e-3, 400, 400, (1, 4, 8, 16)),
            reduction="a fifth of the paper's",
        ),
        paper=Plan(
            *(Sizes(100, 20, 30, 200, 0.01, 8), 256, 512, 256, 1e-4, 200 * 39, 35 * 39),
            heads=(1, 2, 4, 8, 16, 32, 64),
            reduction="the paper's",
        ),
    )


@dataclass(frozen=True)
class Dictionary:
    """The task of a plan with its exact risk."""

    task: DictionaryRegression
    seed: int

    @cached_property
    def risk(self) -> theory.softmax.DictionaryRisk:
        return ExactHalfLoss(self.task).risk

    @cached_property
    def one_head_floor(self) -> float:
        """Below which the gap of a one-layer transformer with one head cannot come."""
        return theory.softmax.one_head_floor(self.risk)

    @property
    def start(self) -> float:
        """The gap at w = 0."""
        return self.risk.gap(torch.zeros_like(self.risk.optimum)).item()

    def with_coefficients(self, coefficients: Coefficients) -> DictionaryRegression:
        """The same tokens in single precision, with other functions."""
        task = self.task
        return replace(
            task,
            tokens=task.tokens.float(),
            features=task.features.float(),
            coefficients=coefficients,
        )

    def squared_errors(self, model: nn.Module, prompt: Prompt) -> Tensor:
        """(1/K) |prediction - y*|^2 of every prompt: the paper's inference loss."""
        best = prompt.y.double() @ self.risk.optimum
        with torch.no_grad():
            return (model(prompt).double() - best).square().mean(1)

    def inference(self, model: nn.Module, coefficients: Coefficients, prompts: int) -> Estimate:
        """The inference loss over fresh prompts, in parts that fit into memory."""
        task, source = self.with_coefficients(coefficients), generator(8)
        parts = [
            self.squared_errors(model, task.sample(TEST_PROMPTS, generator=source))
            for _ in range(prompts // TEST_PROMPTS)
        ]
        return Estimate.of(torch.cat(parts))

    def one_layer(self, heads: int, steps: int) -> DictionaryAttention:
        """The one-layer transformer, trained on the exact loss of the same dictionary."""
        tokens, d = self.task.tokens.shape
        model = DictionaryAttention.gaussian(heads, d, tokens, generator=generator(self.seed))
        optimizer = torch.optim.Adam(model.parameters(), 2e-2)
        objective = ExactHalfLoss(self.task)
        train(model, objective, optimizer, steps=steps, generator=generator(0), every=steps)
        return model


@cache
def dictionary(chosen: Plan) -> Dictionary:
    """The first whose floor for one head of one layer is at least a tenth of the gap at w = 0.

    The floor differs much between small dictionaries; this one has about what the printed sizes
    give, and depends on no training.
    """
    s = chosen.sizes

    def made(seed: int) -> Dictionary:
        task = DictionaryRegression.gaussian(
            s.d, s.features, s.tokens, s.shown, s.tau, generator=generator(seed)
        )
        return Dictionary(task, seed)

    return next(d for d in map(made, count()) if d.one_head_floor >= d.start / 10)


def encoder(chosen: Plan, heads: int) -> DictionaryEncoder:
    return DictionaryEncoder(
        chosen.sizes.d, heads, width=chosen.width, hidden=chosen.hidden, generator=generator(1)
    )


def objective(chosen: Plan) -> SampledHalfLoss:
    features = chosen.sizes.features
    drawn = IN_DOMAIN.draw(TRAINING_SET, features, generator=generator(2))
    task = dictionary(chosen).with_coefficients(TabulatedCoefficients(drawn))
    return SampledHalfLoss(task, chosen.batch)


@cache
def trained(chosen: Plan, heads: int, steps: int) -> tuple[DictionaryEncoder, History]:
    """An encoder with its history: the loss on training functions and both inference losses."""
    made, goal, model = dictionary(chosen), objective(chosen), encoder(chosen, heads)
    seen = goal.task.sample(TEST_PROMPTS, generator=generator(3))
    tests = {
        "in domain": made.with_coefficients(IN_DOMAIN).sample(TEST_PROMPTS, generator=generator(4)),
        "out of domain": made.with_coefficients(OUT_OF_DOMAIN).sample(
            TEST_PROMPTS, generator=generator(5)
        ),
    }

    def training_loss(current: nn.Module) -> float:
        with torch.no_grad():
            return goal.loss(current, seen).item()

    def inference_loss(prompt: Prompt, current: nn.Module) -> float:
        return made.squared_errors(current, prompt).mean().item()

    history = train(
        model,
        goal,
        torch.optim.Adam(model.parameters(), chosen.rate, fused=True),
        steps=steps,
        generator=generator(6),
        every=max(steps // 20, 1),
        metrics={"training": training_loss}
        | {name: partial(inference_loss, prompt) for name, prompt in tests.items()},
    )
    return model, history


def step_seconds(chosen: Plan, heads: Sequence[int], rounds: int) -> list[float]:
    """Process time of a training step with each number of heads: the shortest of several.

    One step of each in turn, round after round, so that a busy moment of the machine is shared.
    """
    goal = objective(chosen)
    models = [encoder(chosen, h) for h in heads]
    optimizers = [torch.optim.Adam(m.parameters(), chosen.rate, fused=True) for m in models]
    times: list[list[float]] = [[] for _ in heads]
    for _ in range(rounds):
        for model, optimizer, measured in zip(models, optimizers, times, strict=True):
            start = time.process_time()
            optimizer.zero_grad()
            goal.loss(model, goal.sample(generator(7))).backward()
            optimizer.step()
            measured.append(time.process_time() - start)
    return [min(measured) for measured in times]
