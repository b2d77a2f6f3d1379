"""How the four-layer encoders of Figures 2b and 5 are trained and timed.

The paper has no public code, and leaves open how labels enter, how tokens are scaled, tau and the
meaning of an iteration. Here the encoder is `DictionaryEncoder`, tokens have norm 1, tau = 0.01 as
in Figure 3, and an iteration is one pass over the 10,000 fixed functions of the training set, 39
batches of 256 with fresh noise; Figure 5 then has the 35 iterations of its printed curves.

At the printed sizes a step takes 14 seconds on one CPU core. `quick` and `smoke` have a tenth of
the paper's d, m, N and K, a width of 32 and a larger learning rate. Weights are float32.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import count, pairwise

import torch
from torch import Tensor, nn

from innerloop import theory
from innerloop.analysis import Estimate
from innerloop.models import DictionaryEncoder
from innerloop.papers.common import generator
from innerloop.papers.verdict import Scale
from innerloop.papers.yang2024.half_loss import SampledHalfLoss
from innerloop.papers.yang2024.notation import Notation
from innerloop.papers.yang2024.settings import OUT_OF_DOMAIN, Instance, Sizes, instance
from innerloop.prompt import Prompt
from innerloop.tasks import Coefficients, DictionaryRegression, GaussianCoefficients
from innerloop.tasks import TabulatedCoefficients as Tabulated
from innerloop.training import History, train

DOMAINS = {"in domain": GaussianCoefficients(), "out of domain": OUT_OF_DOMAIN}
TRAINING_SET, TEST_PROMPTS, PRINTED_RATE = 10_000, 200, 1e-4


@dataclass(frozen=True)
class Plan:
    """Sizes and training of one scale."""

    sizes: Sizes
    """Of the dictionary; its number of heads is that of Figure 2b."""
    reduction: str
    width: int
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

    @property
    def description(self) -> dict[str, str | int]:
        return {
            "sizes": f"{self.sizes.with_heads(0)}: {self.reduction}",
            "encoder": f"4 layers, d_model = {self.width}, d_ff = {2 * self.width}, float32",
            "optimizer": f"Adam, learning rate {self.rate}, batches of {self.batch}",
            "starts": self.seeds,
        }

    @property
    def in_words(self) -> str:
        """For a caption: what differs from the paper."""
        rate = "" if self.rate == PRINTED_RATE else f", where {PRINTED_RATE:g} is printed"
        return (
            f"Sizes are {self.reduction}, d_model = {self.width}, and Adam has the learning rate "
            f"{self.rate:g}{rate}. The paper leaves open tau (0.01 here), how labels enter the "
            "encoder and what an iteration is."
        )


def plan(scale: Scale) -> Plan:
    """At `smoke` and `quick` training goes on until the loss of every start has stopped falling."""
    tenth, printed = Sizes(10, 2, 3, 20, 0.01, 8), Sizes(100, 20, 30, 200, 0.01, 8)
    small = partial(Plan, tenth, "a tenth of the paper's", 32, 32, 3e-3)
    full = partial(Plan, printed, "the paper's", 256, 256, PRINTED_RATE)
    return scale.pick(
        smoke=small(300, 300, (1, 8), seeds=2, prompts=2000),
        quick=small(400, 400, (1, 4, 8, 32), seeds=3, prompts=4000),
        paper=full(200 * 39, 35 * 39, (1, 2, 4, 8, 16, 32, 64), seeds=1, prompts=2000),
    )


@dataclass(frozen=True)
class Dictionary:
    """The task of a plan: the one-layer transformer with one head on it, at its start."""

    made: Instance
    seed: int

    @property
    def task(self) -> DictionaryRegression:
        return self.made.task

    @cached_property
    def one_head_floor(self) -> float:
        """Below which the gap of a one-layer transformer with one head cannot come."""
        return theory.softmax.one_head_floor(self.made.risk)

    @cached_property
    def ridge(self) -> Tensor:
        """y* of (22), by ridge regression on the features."""
        noise = Notation(self.made).noise
        return theory.softmax.ridge_matrix(self.task.features, self.task.shown, noise)

    def with_coefficients(self, coefficients: Coefficients) -> DictionaryRegression:
        """The same tokens in single precision, with other functions."""
        tokens, features = self.task.tokens.float(), self.task.features.float()
        return replace(self.task, tokens=tokens, features=features, coefficients=coefficients)

    def squared_errors(self, model: nn.Module, prompt: Prompt) -> Tensor:
        """(1/K) |prediction - y*|^2 of every prompt: the paper's inference loss."""
        with torch.no_grad():
            return (model(prompt).double() - prompt.y.double() @ self.ridge).square().mean(1)

    def inference(self, model: nn.Module, coefficients: Coefficients, prompts: int) -> Estimate:
        """The inference loss over fresh prompts, in parts that fit into memory."""
        task, source = self.with_coefficients(coefficients), generator(8)
        parts = [
            self.squared_errors(model, task.sample(TEST_PROMPTS, generator=source))
            for _ in range(prompts // TEST_PROMPTS)
        ]
        return Estimate.of(torch.cat(parts))

    def copying(self, coefficients: Coefficients) -> float:
        """Inference loss of a learner that repeats the shown labels and answers 0 otherwise."""
        task, moment = self.task, coefficients.second_moment(self.task.features.shape[1])
        copied = self.ridge.clone()
        copied[:, task.shown :] = 0
        risk = theory.softmax.DictionaryRisk.of(task.features, task.shown, task.tau, moment)
        return risk.distance(copied, self.ridge).item()


@cache
def dictionary(chosen: Plan) -> Dictionary:
    """The first whose floor for one head of one layer is at least a tenth of the gap at w = 0.

    The floor differs much between small dictionaries; this one has about what the printed sizes
    give, and depends on no training.
    """
    made = (Dictionary(instance(chosen.sizes.with_heads(1), seed), seed) for seed in count())
    return next(d for d in made if d.one_head_floor >= Notation(d.made).gap / 10)


def encoder(chosen: Plan, heads: int, seed: int) -> DictionaryEncoder:
    d, width, source = chosen.sizes.d, chosen.width, generator(1 + 100 * seed)
    return DictionaryEncoder(d, heads, width=width, hidden=2 * width, generator=source)


def objective(chosen: Plan) -> SampledHalfLoss:
    features = chosen.sizes.features
    drawn = DOMAINS["in domain"].draw(TRAINING_SET, features, generator=generator(2))
    return SampledHalfLoss(dictionary(chosen).with_coefficients(Tabulated(drawn)), chosen.batch)


def adam(chosen: Plan, model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), chosen.rate, fused=True)


@cache
def trained(
    chosen: Plan, heads: int, steps: int, seed: int = 0
) -> tuple[DictionaryEncoder, History]:
    """An encoder with its history: the loss on training functions and both inference losses."""
    made, goal, model = dictionary(chosen), objective(chosen), encoder(chosen, heads, seed)
    seen = goal.task.sample(TEST_PROMPTS, generator=generator(3))

    def training_loss(current: nn.Module) -> float:
        with torch.no_grad():
            return goal.loss(current, seen).item()

    def inference_loss(prompt: Prompt, current: nn.Module) -> float:
        return made.squared_errors(current, prompt).mean().item()

    inference = {}
    for index, (name, domain) in enumerate(DOMAINS.items()):
        task, source = made.with_coefficients(domain), generator(4 + index)
        inference[name] = partial(inference_loss, task.sample(TEST_PROMPTS, generator=source))
    history = train(
        model,
        goal,
        adam(chosen, model),
        steps=steps,
        generator=generator(6 + 100 * seed),
        every=max(steps // 20, 1),
        metrics={"training": training_loss, **inference},
    )
    return model, history


def step_seconds(chosen: Plan, heads: Sequence[int], rounds: int) -> list[float]:
    """Process time of a training step with each number of heads: the shortest of several.

    A few steps of each in turn, round after round, so that a busy moment of the machine is shared.
    """
    goal, shortest = objective(chosen), [float("inf")] * len(heads)
    models = [encoder(chosen, h, 0) for h in heads]
    for _ in range(rounds):
        for index, model in enumerate(models):
            ends: list[float] = []

            def watch(step: int, loss: float, ends: list[float] = ends) -> None:
                ends.append(time.process_time())

            optimizer, source = adam(chosen, model), generator(7)
            train(model, goal, optimizer, steps=3, generator=source, every=3, watch=watch)
            times = [after - before for before, after in pairwise(ends)]
            shortest[index] = min(shortest[index], *times)
    return shortest
