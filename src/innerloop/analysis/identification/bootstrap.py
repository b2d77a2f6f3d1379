"""Intervals for functions of means, by resampling prompts.

Prompts are independent, and everything that is compared was asked the same prompts: a resample
weighs all of a prompt's numbers alike, so that differences are paired.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

LEVEL = 0.95
"""The probability with which an interval is to cover."""
RESAMPLES = 1000
"""The ends of an interval are then known to about a tenth of its half-width."""
AT_ONCE = 2**22
"""Weights in memory at one time."""


@dataclass(frozen=True)
class Interval:
    """A value, and where it lies with probability `LEVEL` over the choice of prompts."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: Tensor, resampled: Float[Tensor, " resamples"]) -> Interval:
        """Between the quantiles of the resampled values (Efron's percentile interval)."""
        outside = torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2], dtype=resampled.dtype)
        low, high = torch.quantile(resampled, outside).tolist()
        return cls(value.item(), low, high)

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def percent(self) -> str:
        """Such as 98.1% [97.9, 98.3]."""
        if self.value != self.value:  # NaN: there was nothing to take a share of
            return "undefined"
        # As many digits as the interval has; more, where a value short of 100% would read 100.
        sizes = [v for v in (self.high - self.low, abs(1 - self.value)) if v > 1e-8]
        digits = next((k for k in range(1, 7) if min([*sizes, 1.0]) >= 0.02 * 10**-k), 6)
        digits = digits if sizes else 1
        numbers = [
            f"{round(100 * v, digits) + 0.0:.{digits}f}" for v in (self.value, self.low, self.high)
        ]
        return f"{numbers[0]}% [{numbers[1]}, {numbers[2]}]"

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True)
class Bootstrap:
    """Means over prompts, of the sample and of its resamples."""

    mean: Float[Tensor, "*columns"]
    resampled: Float[Tensor, "resamples *columns"]

    @classmethod
    def of(
        cls,
        values: Float[Tensor, "prompts *columns"],
        *,
        generator: torch.Generator,
        resamples: int = RESAMPLES,
    ) -> Bootstrap:
        """Every prompt is drawn a Poisson(1) number of times, independently.

        For as many prompts as here it is the multinomial bootstrap, and it needs no sorting
        (Chamandy et al. 2012). It rests on finite variances: where a few prompts carry a mean, as
        of least squares with n = d, intervals are too short.
        """
        prompts = len(values)
        flat = values.reshape(prompts, -1)
        rows = max(1, AT_ONCE // prompts)
        parts = []
        for first in range(0, resamples, rows):
            ones = torch.ones(min(rows, resamples - first), prompts, dtype=flat.dtype)
            weights = torch.poisson(ones, generator=generator)
            parts.append(weights @ flat / weights.sum(1, keepdim=True).clamp_min(1))
        resampled = torch.cat(parts).reshape(resamples, *values.shape[1:])
        return cls(values.mean(0), resampled)

    def interval(self, function: Callable[[Tensor], Tensor]) -> Interval:
        """Of a function of the means, given them along the last axes [..., *columns]."""
        return Interval.of(function(self.mean), function(self.resampled))
