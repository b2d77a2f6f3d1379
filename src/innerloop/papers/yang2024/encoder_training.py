"""How the encoders of Figures 2 (b) and 5 are trained and timed.

The paper has no public code. Where it leaves things open, tokens have norm 1, tau = 0.01 as in
Figure 3, and an iteration is a pass over the 10,000 fixed functions of the training set, 39 batches
of 256 with fresh noise; Figure 5 then has the 35 iterations of its printed curves. Weights are
float32. At the printed sizes a step takes 14 seconds on one CPU core: hence a tenth elsewhere.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import count, pairwise

import torch
from torch import Tensor, nn

from innerloop import tasks, theory
from innerloop.analysis import Estimate
from innerloop.models import DictionaryEncoder
from innerloop.papers.common import generator
from innerloop.papers.verdict import Scale
from innerloop.papers.yang2024 import settings
from innerloop.papers.yang2024.sections3_2_3 import ridge
from innerloop.papers.yang2024.settings import Sizes
from innerloop.prompt import Prompt
from innerloop.tasks import Coefficients
from innerloop.training import History, train

DOMAINS = {"in domain": tasks.GaussianCoefficients(), "out of domain": settings.OUT_OF_DOMAIN}
TEST_PROMPTS, PRINTED_RATE = 200, 1e-4


@dataclass(frozen=True)
class Plan:
    """Sizes and training of one scale; `heads` and `compared_steps` are those of Figure 5."""

    sizes: Sizes
    reduction: str
    width: int
    batch: int
    rate: float
    steps: int
    compared_steps: int
    heads: tuple[int, ...]
    seeds: int
    prompts: int

    @property
    def in_words(self) -> str:
        """For a caption: the training, and what differs from the paper."""
        return (
            f"Sizes are {self.reduction} ({self.sizes.with_heads(0)}), d_model = {self.width}, and "
            f"Adam has the learning rate {self.rate:g} (printed: {PRINTED_RATE:g}) and batches of "
            f"{self.batch}. The paper leaves open tau, how labels enter the encoder and what an "
            "iteration is."
        )


def plan(scale: Scale) -> Plan:
    """At `smoke` training is that of `quick`, with fewer numbers of heads and starts."""
    tenth, printed = Sizes(10, 2, 3, 20, 0.01, 8), Sizes(100, 20, 30, 200, 0.01, 8)
    small = partial(Plan, tenth, "a tenth of the paper's", 32, 32, 3e-3)
    full = partial(Plan, printed, "the paper's", 256, 256, PRINTED_RATE)
    return scale.pick(
        smoke=small(400, 400, (1, 8), seeds=2, prompts=2000),
        quick=small(400, 400, (1, 4, 8, 32), seeds=3, prompts=4000),
        paper=full(200 * 39, 35 * 39, (1, 2, 4, 8, 16, 32, 64), seeds=1, prompts=2000),
    )


class Dictionary(settings.Instance):
    """The task of a plan, and the one-layer transformer with one head on it, at its start."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        made = settings.instance(sizes.with_heads(1), seed)
        super().__init__(made.task, made.model)
        self.seed, self.ridge = seed, ridge(made, made.noise)

    @cached_property
    def one_head_floor(self) -> float:
        """Below which the gap of a one-layer transformer with one head cannot come."""
        return theory.softmax.one_head_floor(self.risk)

    def with_coefficients(self, coefficients: Coefficients) -> tasks.DictionaryRegression:
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
        copied = self.ridge.clone()
        copied[:, self.n :] = 0
        risk = settings.risk(self.task, coefficients.second_moment(self.m))
        return risk.distance(copied, self.ridge).item()


@cache
def dictionary(chosen: Plan) -> Dictionary:
    """The first whose floor for one head is a tenth of the gap at w = 0, as with printed sizes."""
    made = (Dictionary(chosen.sizes, seed) for seed in count())
    return next(d for d in made if d.one_head_floor >= d.gap / 10)


def encoder(chosen: Plan, heads: int, seed: int) -> DictionaryEncoder:
    d, width, source = chosen.sizes.d, chosen.width, generator(1 + 100 * seed)
    return DictionaryEncoder(d, heads, width=width, hidden=2 * width, generator=source)


def objective(chosen: Plan) -> settings.SampledHalfLoss:
    made = dictionary(chosen)
    drawn = DOMAINS["in domain"].draw(10_000, made.m, generator=generator(2))
    task = made.with_coefficients(tasks.TabulatedCoefficients(drawn))
    return settings.SampledHalfLoss(task, chosen.batch)


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

    inside, outside = (
        made.with_coefficients(domain).sample(TEST_PROMPTS, generator=generator(seed))
        for seed, domain in enumerate(DOMAINS.values(), start=4)
    )
    history = train(
        model,
        goal,
        torch.optim.Adam(model.parameters(), chosen.rate, fused=True),
        steps=steps,
        generator=generator(6 + 100 * seed),
        every=max(steps // 20, 1),
        metrics={
            "training": training_loss,
            "in domain": partial(inference_loss, inside),
            "out of domain": partial(inference_loss, outside),
        },
    )
    return model, history


def step_seconds(chosen: Plan, heads: Sequence[int], rounds: int) -> list[float]:
    """Process time of a training step with each number of heads: the shortest of several rounds."""
    goal, models = objective(chosen), [encoder(chosen, h, 0) for h in heads]

    def shortest(model: nn.Module) -> float:
        ends: list[float] = []

        def watch(step: int, loss: float) -> None:
            ends.append(time.process_time())

        adam = torch.optim.Adam(model.parameters(), chosen.rate, fused=True)
        train(model, goal, adam, steps=3, generator=generator(7), every=3, watch=watch)
        return min(after - before for before, after in pairwise(ends))

    every_round = [[shortest(model) for model in models] for _ in range(rounds)]
    return [min(times) for times in zip(*every_round, strict=True)]
