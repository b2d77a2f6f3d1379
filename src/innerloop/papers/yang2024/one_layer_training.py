"""How the one-layer transformers of Figures 2a and 4 are trained.

Departures from the paper, whose text leaves tau and the meaning of an iteration open and has no
public code: tau = 0.01, as in its Figure 3. That is a guess against the printed axes: with it the
loss cannot fall below L* = 0.244, but the axis of Figure 2 has its last tick at 0.1 and that of
Figure 4 at 0.001. Either tau was about 0.00004, with L* = 0.0010, or L - L* is drawn.

At the paper's scale an iteration is an epoch of 10,000 functions, 39 batches of 256, and Adam has
the printed learning rate 0.0001. The smaller scales have a hundredth of these steps or so, on the
exact loss, at a hundred times that rate: with the printed one they would hardly begin to train.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from innerloop.papers.common import generator
from innerloop.papers.verdict import Scale
from innerloop.papers.yang2024.half_loss import SampledHalfLoss
from innerloop.papers.yang2024.settings import FULL, Instance, Sizes, instance
from innerloop.tasks import GaussianCoefficients, TabulatedCoefficients
from innerloop.training import History, Metric, Objective, train

UNIT, GAUSSIAN = "tokens of norm 1", "Gaussian tokens"
THIRD = Sizes(100, 7, 10, 60, 0.01, 21)
"""A third of everything but d, on which it depends what Gaussian tokens do."""
PRINTED_RATE, QUICK_RATE = 1e-4, 1e-2
EPOCH, FUNCTIONS, BATCH = 39, 10_000, 256
AXIS_TAU = 4e-5
"""The tau for which the infimum is where the axis of Figure 4 ends, at 0.001."""


@dataclass(frozen=True)
class Recipe:
    """Sizes, steps of Adam and their rate."""

    sizes: Sizes
    steps: int
    rate: float
    seeds: int
    """Each with a dictionary and a start of its own."""

    def __str__(self) -> str:
        return f"{self.sizes}; Adam, learning rate {self.rate:g}, {self.steps} steps"

    @property
    def in_words(self) -> str:
        """For a caption: the learning rate against the printed one."""
        if self.rate == PRINTED_RATE:
            return (
                f"Adam has the printed learning rate {PRINTED_RATE:g}; what an iteration is the "
                f"paper leaves open, and here it is an epoch of {EPOCH} steps."
            )
        return (
            f"Adam has the learning rate {self.rate:g} here, a hundred times the printed "
            f"{PRINTED_RATE:g}, for {self.steps} steps: with the printed one as many steps hardly "
            "begin to train. The scale `paper` uses the printed one."
        )

    def made(self, heads: int, tokens: str, seed: int) -> Instance:
        return instance(self.sizes.with_heads(heads), seed, unit=tokens == UNIT)

    def sampled(self, made: Instance) -> SampledHalfLoss:
        """Batches of the training set that section 4 describes."""
        drawn = GaussianCoefficients().draw(FUNCTIONS, self.sizes.features, generator=generator(2))
        return SampledHalfLoss(replace(made.task, coefficients=TabulatedCoefficients(drawn)), BATCH)


def adam(
    made: Instance,
    recipe: Recipe,
    *,
    every: int,
    metrics: Mapping[str, Metric] | None = None,
    objective: Objective | None = None,
    rate: float | None = None,
    steps: int | None = None,
) -> History:
    """Trains the instance on its exact loss, or on another one."""
    return train(
        made.model,
        objective or made.objective,
        torch.optim.Adam(made.model.parameters(), rate or recipe.rate, fused=True),
        steps=steps or recipe.steps,
        generator=generator(1),
        every=every,
        metrics=metrics,
    )


def infimum_and_axis(sizes: Sizes) -> str:
    """What the axis of Figure 4 says about tau."""
    here, there = (
        instance(replace(sizes, tau=tau, heads=1), 0).risk.infimum for tau in (sizes.tau, AXIS_TAU)
    )
    return (
        f"L* = {here:.4f} with this tau; the axis of Figure 4 goes down to 0.001, where no loss "
        f"can be: either tau is about {AXIS_TAU:g} there (L* = {there:.4f}) or what is drawn is "
        "L - L*."
    )


def recipe_2a(scale: Scale) -> Recipe:
    return scale.pick(
        smoke=Recipe(THIRD, 400, QUICK_RATE, 2),
        quick=Recipe(FULL, 600, QUICK_RATE, 3),
        paper=Recipe(FULL, 200 * EPOCH, PRINTED_RATE, 3),
    )


def recipe_4(scale: Scale) -> Recipe:
    return scale.pick(
        smoke=Recipe(Sizes(20, 8, 10, 40, 0.01), 600, QUICK_RATE, 3),
        quick=Recipe(Sizes(20, 8, 10, 40, 0.01), 1500, QUICK_RATE, 4),
        paper=Recipe(FULL.with_heads(0), 600 * EPOCH, PRINTED_RATE, 3),
    )
