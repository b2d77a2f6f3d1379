"""What the training of a single layer needs to know of a random covariance: a few of its moments.

Prompts may all have one covariance Lambda of the covariates, or each its own, drawn from a law
(Zhang 2023, Definition 4.4). The expected loss of a single layer is cubic in Lambda, so moments up
to the third decide it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy.integrate import quad
from torch import Tensor

from innerloop.theory.checks import (
    require_covariance,
    require_finite,
    require_not_negative,
    require_room,
    require_square,
    require_tensor,
)


@dataclass(frozen=True)
class CovarianceLaw:
    """Moments of a random covariance Lambda, symmetric and positive definite."""

    mean: Float[Tensor, "d d"]
    """E Lambda."""
    square: Float[Tensor, "d d"]
    """E Lambda^2."""
    square_and_self: Float[Tensor, "d d d d"]
    """E (Lambda^2)_ij Lambda_kl."""
    pair_and_trace: Float[Tensor, "d d d d"]
    """E Lambda_ij Lambda_kl tr(Lambda)."""
    peak: float | None = None
    """E |Lambda|_op |Lambda|_F^2, if it is known. Only bounds use it, never the flow."""

    def __post_init__(self) -> None:
        d = require_covariance("mean", self.mean)
        require_tensor("square", self.square, (d, d), like=self.mean)
        for name in ("square_and_self", "pair_and_trace"):
            require_tensor(name, getattr(self, name), (d, d, d, d), like=self.mean)
            require_finite(name, getattr(self, name))
        if self.peak is not None:
            require_not_negative("peak", self.peak)

    @property
    def d(self) -> int:
        return len(self.mean)

    @property
    def is_fixed(self) -> bool:
        """Whether Lambda does not vary: its variance E Lambda^2 - (E Lambda)^2 is zero."""
        excess = (self.square - self.mean @ self.mean).norm()
        return bool(excess <= 1e-12 * self.square.norm())

    @property
    def trace_and_square(self) -> float:
        """E tr(Lambda) |Lambda|_F^2."""
        return float(torch.einsum("iijj->", self.square_and_self))

    @classmethod
    def fixed(cls, covariance: Float[Tensor, "d d"]) -> CovarianceLaw:
        """Every prompt has this covariance."""
        require_square("covariance", covariance)
        return cls.mixture(covariance.unsqueeze(0), torch.ones(1, dtype=covariance.dtype))

    @classmethod
    def mixture(
        cls, covariances: Float[Tensor, "k d d"], probabilities: Float[Tensor, " k"]
    ) -> CovarianceLaw:
        """One of k covariances, which need not commute."""
        d = require_covariance("covariances", covariances, stacked=True)
        require_probabilities(probabilities, covariances)
        require_room(f"the moments of a covariance of d = {d}", d**4)
        spectra = torch.linalg.eigvalsh(covariances)
        weights, squares = probabilities, covariances @ covariances
        traces = spectra.sum(-1)
        return cls(
            torch.einsum("k,kij->ij", weights, covariances),
            torch.einsum("k,kij->ij", weights, squares),
            torch.einsum("k,kij,klm->ijlm", weights, squares, covariances),
            torch.einsum("k,kij,klm->ijlm", weights * traces, covariances, covariances),
            float(weights @ (spectra[:, -1] * spectra.square().sum(-1))),
        )

    @classmethod
    def independent_diagonal(
        cls,
        first: Float[Tensor, " d"],
        second: Float[Tensor, " d"],
        third: Float[Tensor, " d"],
        peak: float | None = None,
    ) -> CovarianceLaw:
        """Diagonal, with independent entries l_i of these moments E l_i, E l_i^2, E l_i^3."""
        require_tensor("first", first, (None,))
        for name, moment in (("second", second), ("third", third)):
            require_tensor(name, moment, tuple(first.shape), like=first)
            require_finite(name, moment)
        require_room(f"the moments of a covariance of d = {len(first)}", len(first) ** 4)
        if not (first.min() > 0 and bool((second >= first**2).all())):
            raise ValueError(
                "first must be positive and second at least its square, got "
                f"{first.tolist()} and {second.tolist()}"
            )
        if not bool((third * first >= second**2 * (1 - 1e-12)).all()):  # Cauchy-Schwarz
            raise ValueError(
                "third must be at least second^2 / first, or no positive number has these "
                f"moments; got {third.tolist()} for {second.tolist()} and {first.tolist()}"
            )
        ones = torch.ones_like(first)
        distinct = torch.outer(ones, ones) - torch.diag(ones)
        # [i, k]: E l_i^2 l_k, and E l_i l_k.
        mixed = torch.outer(second, first) * distinct + torch.diag(third)
        products = torch.outer(first, first) * distinct + torch.diag(second)
        # E l_i l_k sum_m l_m; the terms m = i and m = k have their own moments.
        others = first.sum() - first[:, None] - first[None, :]
        triples = (products * others + mixed + mixed.mT) * distinct
        triples = triples + torch.diag(third + second * (first.sum() - first))
        return cls(
            torch.diag(first), torch.diag(second), _diagonal(mixed), _diagonal(triples), peak
        )

    @classmethod
    def exponential(cls, means: Float[Tensor, " d"]) -> CovarianceLaw:
        """Diagonal, with independent exponential entries of these means (Zhang 2023, section 4.3).

        The peak is one integral, E max_i l_i sum_j l_j^2 = int_0^inf E[sum_j l_j^2; max > m] dm.
        """
        require_tensor("means", means, (None,))
        if not bool(((means > 0) & means.isfinite()).all()):
            raise ValueError(f"means must be positive and finite, got {means.tolist()}")
        scale = means.double().cpu().numpy()  # quadrature needs the digits

        def above(m: float) -> float:
            u = m / scale
            below = -np.expm1(-u)  # P(l_j <= m)
            truncated = scale**2 * (2 - np.exp(-u) * (u**2 + 2 * u + 2))  # E[l_j^2; l_j <= m]
            rest = np.array([np.prod(np.delete(below, j)) for j in range(len(scale))])
            return float(2 * (scale**2).sum() - truncated @ rest)

        peak, _ = quad(above, 0, math.inf, epsabs=0, epsrel=1e-11)
        return cls.independent_diagonal(means, 2 * means**2, 6 * means**3, peak)


def require_probabilities(probabilities: Tensor, covariances: Tensor) -> None:
    """One for each of the covariances [k, d, d]."""
    require_tensor("probabilities", probabilities, (len(covariances),), like=covariances)
    rounding = 1e4 * torch.finfo(probabilities.dtype).eps
    if not (probabilities.min() >= 0 and abs(probabilities.sum().item() - 1) < rounding):
        raise ValueError(
            "probabilities must not be negative and sum to 1, got "
            f"{probabilities.tolist()} with sum {probabilities.sum().item():g}"
        )


def _diagonal(entries: Float[Tensor, "d d"]) -> Float[Tensor, "d d d d"]:
    """The tensor t_ijkl that is entries_ik where i = j and k = l, and zero elsewhere."""
    identity = torch.eye(len(entries)).to(entries)
    return torch.einsum("ik,ij,kl->ijkl", entries, identity, identity)
