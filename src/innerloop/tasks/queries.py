"""Which covariates are asked about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.tasks.checks import require_at_least
from innerloop.tasks.covariates import Covariates


@runtime_checkable
class Queries(Protocol):
    """How examples and queries are drawn together."""

    def draw(
        self, batch: int, n: int, covariates: Covariates, *, generator: torch.Generator
    ) -> tuple[Float[Tensor, "#batch n d"], Float[Tensor, "#batch queries d"]]:
        """The examples' covariates and the queries."""
        ...


@dataclass(frozen=True)
class FreshQueries:
    """Queries drawn as the examples are, independently of them."""

    count: int = 1

    def __post_init__(self) -> None:
        require_at_least("count", self.count, 1)

    def draw(
        self, batch: int, n: int, covariates: Covariates, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        x = covariates.draw(batch, n + self.count, generator=generator)
        return x[:, :n], x[:, n:]


@dataclass(frozen=True)
class OtherQueries:
    """Query shift: one query from another distribution than the examples."""

    covariates: Covariates

    def draw(
        self, batch: int, n: int, covariates: Covariates, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        x = covariates.draw(batch, n, generator=generator)
        return x, self.covariates.draw(batch, 1, generator=generator)


@dataclass(frozen=True)
class OrthogonalQueries:
    """Query shift: what the examples do not span of a fresh covariate. Needs n < d."""

    def draw(
        self, batch: int, n: int, covariates: Covariates, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        if n >= covariates.d:
            raise ValueError(
                f"n must be below d = {covariates.d} to leave a direction that no example spans, "
                f"got {n}"
            )
        x, query = FreshQueries().draw(batch, n, covariates, generator=generator)
        basis = torch.linalg.qr(x.mT).Q  # [batch, d, n]
        return x, query - query @ basis @ basis.mT


@dataclass(frozen=True)
class ContextQueries:
    """Query shift: the query is one of the examples, and its clean label is asked for."""

    def draw(
        self, batch: int, n: int, covariates: Covariates, *, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        x = covariates.draw(batch, n, generator=generator)
        # Examples are exchangeable: the first one is as good as any.
        return x, x[:, :1]
