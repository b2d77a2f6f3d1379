"""Regression: covariates x functions x queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from innerloop.prompt import Prompt
from innerloop.tasks.checks import require_at_least, require_not_negative
from innerloop.tasks.covariates import Covariates, normal
from innerloop.tasks.functions import Functions
from innerloop.tasks.queries import FreshQueries, Queries
from innerloop.tasks.task import NoClosedForm


@dataclass(frozen=True)
class Regression:
    """A fresh function for every prompt, its values at n examples, and queries.

        f ~ functions,   x_i ~ covariates,   x_q ~ queries,   y_i = f(x_i) + noise_std N(0, 1)

    The queries' labels carry no noise. A shift replaces one part: `dataclasses.replace(task, ...)`.

    Attributes:
        covariates: where x comes from.
        functions: where f comes from.
        n: examples in a prompt, not counting the queries.
        queries: which covariates are asked about; a fresh one unless told otherwise.
        noise_std: standard deviation of the label noise, not its variance.
    """

    covariates: Covariates
    functions: Functions
    n: int
    queries: Queries = field(default_factory=FreshQueries)
    noise_std: float = 0.0

    def __post_init__(self) -> None:
        for name, kind in (
            ("covariates", Covariates),
            ("functions", Functions),
            ("queries", Queries),
        ):
            part = getattr(self, name)
            if not isinstance(part, kind):
                raise ValueError(
                    f"{name} must have the methods of {kind.__name__}, got {type(part).__name__}"
                )
        if self.functions.d != self.covariates.d:
            raise ValueError(
                f"functions must be of covariates of dimension {self.covariates.d}, got "
                f"{self.functions.d}"
            )
        require_at_least("n", self.n, 1)
        require_not_negative("noise_std", self.noise_std)

    @property
    def d(self) -> int:
        return self.covariates.d

    def sample(self, batch: int, *, generator: torch.Generator) -> Prompt:
        require_at_least("batch", batch, 1)
        function = self.functions.draw(batch, generator=generator)
        x, x_query = self.queries.draw(batch, self.n, self.covariates, generator=generator)
        clean, y_query = function(x), function(x_query)
        if self.noise_std == 0:
            return Prompt(x, clean, x_query, y_query)
        noise = normal(generator, *clean.shape, dtype=clean.dtype)
        return Prompt(x, clean + self.noise_std * noise, x_query, y_query, y_clean=clean)

    @property
    def law(self) -> Regression:
        """What closed forms may rely on: the parts themselves.

        A subclass samples what it likes, so it states no law unless it says so itself.
        """
        if type(self) is not Regression:
            raise NoClosedForm(_unstated(self))
        return self


def law_of(task: Any) -> Regression:
    """The composition that a task states as its law; NoClosedForm where it states none."""
    law = getattr(task, "law", None)
    if type(law) is not Regression:  # a subclass may sample something else
        raise NoClosedForm(_unstated(task))
    return law


def _unstated(task: object) -> str:
    return (
        f"{type(task).__name__} states no law, so nothing exact is known of it; estimate by "
        "sampling, or give it a property `law` that returns a Regression"
    )
