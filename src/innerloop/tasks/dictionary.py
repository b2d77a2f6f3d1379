"""Regression on a dictionary: tokens that all prompts share, with features nobody is shown."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from math import isfinite
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.prompt import Prompt
from innerloop.tasks.checks import require_at_least, require_not_negative, require_positive
from innerloop.tasks.covariates import normal

Representation = Callable[[Float[Tensor, "tokens d"]], Float[Tensor, "tokens features"]]
"""From tokens to their features, such as an MLP or a polynomial basis."""


@runtime_checkable
class Coefficients(Protocol):
    """A distribution of the coefficients lambda [features] of a prompt."""

    def draw(
        self, batch: int, features: int, *, generator: torch.Generator
    ) -> Float[Tensor, "batch features"]: ...

    def second_moment(self, features: int) -> Float[Tensor, "features features"]:
        """E[lambda lambda^T], all that an expected squared error depends on."""
        ...


@dataclass(frozen=True)
class GaussianCoefficients:
    """lambda ~ N(mean 1, std^2 I): mean 0 and std 1 in training, N(1, 4 I) out of domain."""

    mean: float = 0.0
    std: float = 1.0

    def __post_init__(self) -> None:
        if not isfinite(self.mean):
            raise ValueError(f"mean must be finite, got {self.mean}")
        require_not_negative("std", self.std)

    def draw(self, batch: int, features: int, *, generator: torch.Generator) -> Tensor:
        return self.mean + self.std * normal(generator, batch, features)

    def second_moment(self, features: int) -> Tensor:
        identity = torch.eye(features, dtype=torch.float64)
        return self.mean**2 * torch.ones_like(identity) + self.std**2 * identity


@dataclass(frozen=True)
class SphericalCoefficients:
    """lambda uniform on the sphere of this radius: the worst case of a bound |lambda| <= B."""

    radius: float

    def __post_init__(self) -> None:
        require_positive("radius", self.radius)

    def draw(self, batch: int, features: int, *, generator: torch.Generator) -> Tensor:
        direction = normal(generator, batch, features)
        return self.radius * direction / direction.norm(dim=1, keepdim=True)

    def second_moment(self, features: int) -> Tensor:
        return self.radius**2 / features * torch.eye(features, dtype=torch.float64)


@dataclass(frozen=True)
class TabulatedCoefficients:
    """lambda is one of these rows, each equally likely: a training set, or a single function."""

    values: Float[Tensor, "rows features"]

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.numel() == 0:
            raise ValueError(
                f"values must have shape [rows, features], got {list(self.values.shape)}"
            )
        if not self.values.isfinite().all():
            raise ValueError("values must be finite, got an entry that is NaN or infinite")

    def draw(self, batch: int, features: int, *, generator: torch.Generator) -> Tensor:
        self._require(features)
        return self.values[torch.randint(len(self.values), (batch,), generator=generator)]

    def second_moment(self, features: int) -> Tensor:
        self._require(features)
        return self.values.mT @ self.values / len(self.values)

    def _require(self, features: int) -> None:
        if self.values.shape[1] != features:
            raise ValueError(
                f"values must have one column for each of the {features} features, got "
                f"{self.values.shape[1]}"
            )


@dataclass(frozen=True)
class DictionaryRegression:
    """Linear functions of the features of a dictionary's tokens, a fresh one for every prompt.

        y_k = <lambda, f(v_k) + eps_k>,   lambda ~ coefficients,   eps_k ~ N(0, tau I)

    for k = 1..K (Yang 2024, Eq. 1). The first N tokens are a prompt's examples and all K its
    queries, whose labels carry noise: that of a shown label is the same in example and query.

    Attributes:
        tokens: v_k, as rows; none of them zero. The theorems take them to have norm 1.
        features: f(v_k), as rows.
        shown: N, how many labels a prompt shows.
        tau: variance of the noise on every feature.
        coefficients: the distribution of lambda; standard normal unless told otherwise.
    """

    tokens: Float[Tensor, "tokens d"]
    features: Float[Tensor, "tokens features"]
    shown: int
    tau: float
    coefficients: Coefficients = field(default_factory=GaussianCoefficients)

    def __post_init__(self) -> None:
        for name in ("tokens", "features"):
            matrix = getattr(self, name)
            if matrix.ndim != 2 or matrix.numel() == 0:
                raise ValueError(
                    f"{name} must be a matrix with one row per token, got shape "
                    f"{list(matrix.shape)}"
                )
            if not matrix.isfinite().all():
                raise ValueError(f"{name} must be finite, got an entry that is NaN or infinite")
        if len(self.features) != len(self.tokens):
            raise ValueError(
                f"features must have one row for each of the {len(self.tokens)} tokens, got "
                f"{len(self.features)}"
            )
        if self.features.dtype != self.tokens.dtype:
            raise ValueError(
                f"features must have the dtype {self.tokens.dtype} of tokens, got "
                f"{self.features.dtype}"
            )
        if not 1 <= self.shown <= len(self.tokens):
            raise ValueError(
                f"shown must be between 1 and the {len(self.tokens)} tokens of the dictionary, got "
                f"{self.shown}"
            )
        if not 0 <= self.tau < float("inf"):
            raise ValueError(f"tau is a variance: it must be finite and >= 0, got {self.tau}")
        zero = (self.tokens.norm(dim=1) == 0).nonzero().flatten().tolist()
        if zero:
            raise ValueError(
                f"tokens must not be zero, got zero at {zero}: attention cannot tell what it asks"
            )
        if not isinstance(self.coefficients, Coefficients):
            raise ValueError(
                "coefficients must be a distribution with the methods draw and second_moment, such "
                f"as GaussianCoefficients(), got {self.coefficients!r}"
            )
        m, moment = self.features.shape[1], self.coefficients.second_moment(self.features.shape[1])
        if moment.shape != (m, m):
            raise ValueError(
                f"coefficients must have a second moment of shape {[m, m]}, for {m} features, got "
                f"{list(moment.shape)}"
            )
        self._warn_of_duplicates()

    def _warn_of_duplicates(self) -> None:
        prompt = self.tokens[: self.shown]
        if len(prompt.unique(dim=0)) < self.shown:
            equal = (prompt[:, None] == prompt).all(-1)
            i, j = next(pair for pair in combinations(range(self.shown), 2) if equal[pair])
            warnings.warn(
                f"tokens {i} and {j} of the prompt are equal, against Assumption 3 of Yang 2024: "
                "attention weighs their labels alike, and training need not reach the infimum",
                stacklevel=_frames_to_the_user(),
            )

    @classmethod
    def gaussian(
        cls,
        d: int,
        features: int,
        tokens: int,
        shown: int,
        tau: float,
        *,
        generator: torch.Generator,
        unit: bool = True,
        coefficients: Coefficients | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> DictionaryRegression:
        """Standard normal features; tokens in random directions, of norm 1 or standard normal.

        The draws are the same in any dtype.
        """
        for name, value in (("d", d), ("features", features), ("tokens", tokens)):
            require_at_least(name, value, 1)
        v = normal(generator, tokens, d)
        z = normal(generator, tokens, features)
        v = v / v.norm(dim=1, keepdim=True) if unit else v
        return cls(v.to(dtype), z.to(dtype), shown, tau, coefficients or GaussianCoefficients())

    @classmethod
    def of(
        cls,
        representation: Representation,
        tokens: Float[Tensor, "tokens d"],
        shown: int,
        tau: float,
        coefficients: Coefficients | None = None,
    ) -> DictionaryRegression:
        """Features computed from the tokens by a function, such as a network or a basis.

        The dtype of the tokens is that of everything; a network must have it too.
        """
        if isinstance(representation, nn.Module):
            for name, parameter in representation.named_parameters():
                if parameter.dtype != tokens.dtype:
                    raise ValueError(
                        f"representation must have the dtype {tokens.dtype} of tokens, got "
                        f"{parameter.dtype} in {name}: convert it with .to(tokens.dtype)"
                    )
        with torch.no_grad():
            features = representation(tokens)
        return cls(tokens, features, shown, tau, coefficients or GaussianCoefficients())

    def __str__(self) -> str:
        """Its sizes, in the letters of Yang 2024."""
        return (
            f"K = {len(self.tokens)} tokens of dimension d = {self.d}, N = {self.shown} shown, "
            f"m = {self.features.shape[1]} features, tau = {self.tau:g}"
        )

    @property
    def d(self) -> int:
        return self.tokens.shape[1]

    @property
    def n(self) -> int:
        return self.shown

    @property
    def second_moment(self) -> Float[Tensor, "features features"]:
        """E[lambda lambda^T], in the dtype of the features."""
        return self.coefficients.second_moment(self.features.shape[1]).to(self.features)

    def sample(self, batch: int, *, generator: torch.Generator) -> Prompt:
        require_at_least("batch", batch, 1)
        count, m = self.features.shape
        coefficients = self.coefficients.draw(batch, m, generator=generator).to(self.features)
        # The label only sees <lambda, eps_k>, which is N(0, tau |lambda|^2) and independent over k.
        noise = normal(generator, batch, count).to(self.features)
        noise = self.tau**0.5 * coefficients.norm(dim=1, keepdim=True) * noise
        labels = coefficients @ self.features.mT + noise
        tokens = self.tokens.unsqueeze(0)  # [1, K, d]: one dictionary for all prompts
        return Prompt(tokens[:, : self.shown], labels[:, : self.shown], tokens, labels)


def _frames_to_the_user() -> int:
    """The stacklevel of the code that asked for a dictionary, by whichever of its constructors."""
    level, frame = 0, inspect.currentframe()
    while frame and frame.f_globals["__name__"].split(".")[0] in ("innerloop", "dataclasses"):
        level, frame = level + 1, frame.f_back
    return level
