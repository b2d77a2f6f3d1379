"""How the one-layer transformers of Figures 2a and 4 are trained.

The paper has no public code, and leaves tau and the meaning of an iteration open. Here tau = 0.01,
as in its Figure 3: a guess against the printed axes (`Recipe.about_tau`).

At the paper's scale an iteration is an epoch of 10,000 functions, 39 batches of 256, and Adam has
the printed learning rate 0.0001. The smaller scales have a hundredth of these steps or so, on the
exact loss, at a hundred times that rate: with the printed one they would hardly begin to train.
"""

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
REDUCED = Sizes(20, 8, 10, 40, 0.01)
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
            return f"An iteration, which the paper leaves open, is an epoch of {EPOCH} steps here."
        return (
            f"Adam has the learning rate {self.rate:g} here, a hundred times the printed one, for "
            f"{self.steps} steps, which hardly begin to train with that. The scale `paper` has it."
        )

    def made(self, heads: int, tokens: str, seed: int) -> Instance:
        return instance(self.sizes.with_heads(heads), seed, unit=tokens == UNIT)

    def sampled(self, made: Instance) -> SampledHalfLoss | None:
        """At the printed rate, batches of the training set that section 4 describes."""
        if self.rate != PRINTED_RATE:
            return None
        drawn = GaussianCoefficients().draw(FUNCTIONS, self.sizes.features, generator=generator(2))
        return SampledHalfLoss(replace(made.task, coefficients=TabulatedCoefficients(drawn)), BATCH)

    def train(
        self, made: Instance, every: int, objective: Objective | None = None, **metrics: Metric
    ) -> History:
        """Trains the instance on its exact loss, or on another one."""
        return train(
            made.model,
            objective or made.objective,
            torch.optim.Adam(made.model.parameters(), self.rate, fused=True),
            steps=self.steps,
            generator=generator(1),
            every=every,
            metrics=metrics,
        )

    @property
    def about_tau(self) -> str:
        """What the axis of Figure 4 says about it."""
        here, there = (
            instance(replace(self.sizes, tau=tau, heads=1), 0).risk.infimum
            for tau in (self.sizes.tau, AXIS_TAU)
        )
        return (
            f"L* = {here:.4f} with this tau; the axis of Figure 4 goes down to 0.001, where no "
            f"loss can be: either tau is about {AXIS_TAU:g} there (L* = {there:.4f}) or what is "
            "drawn is L - L*."
        )


def recipe_2a(scale: Scale) -> Recipe:
    return scale.pick(
        smoke=Recipe(THIRD, 400, QUICK_RATE, 2),
        quick=Recipe(FULL, 600, QUICK_RATE, 3),
        paper=Recipe(FULL, 200 * EPOCH, PRINTED_RATE, 3),
    )


def recipe_4(scale: Scale) -> Recipe:
    """Six starts at smoke: their log shares scatter by 1, which leaves 0.4 as the error of a mean.

    The mean is 1.9 away from its tolerance, and must be four of these errors away to decide.
    """
    return scale.pick(
        smoke=Recipe(REDUCED, 600, QUICK_RATE, 6),
        quick=Recipe(REDUCED, 1500, QUICK_RATE, 4),
        paper=Recipe(FULL.with_heads(0), 600 * EPOCH, PRINTED_RATE, 3),
    )
