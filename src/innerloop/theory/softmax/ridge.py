"""Predicting a dictionary's labels from a few of them: exact risks, and ridge regression.

Labels are y_k = <lambda, z_k + eps_k>, eps_k ~ N(0, tau I_m), for K tokens with features z_k. A
predictor that is linear in the N shown labels is a matrix A = [a_1 .. a_K] with the predictions
<y, a_k>. Of lambda only M = E[lambda lambda^T] matters; M = I is Assumption 1 of Yang 2024.

In shapes, `shown` is N, `tokens` is K, `features` is m. Features are rows, so that the paper's Z is
the transpose of `features[:shown]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from scipy.optimize import nnls
from torch import Tensor

from innerloop.theory.checks import (
    require_count,
    require_covariance,
    require_finite,
    require_not_negative,
    require_room,
    require_tensor,
)


@dataclass(frozen=True)
class DictionaryRisk:
    """The expected loss of a linear predictor, as a quadratic form in its matrix A.

        L(A) = E (1/2K) |prediction - targets|^2
             = (1/2K) sum_k (a_k^T G a_k - 2 a_k^T r_k + c_k)
             = (1/2K) |G^1/2 (A - A*)|_F^2 + L*,     A* = G^-1 R

    Yang 2024, Lemma 5, Eq. 34 and 36; L* there lacks the noise of the tokens that are not shown.
    For tau = 0 and more shown tokens than features G is singular, and A* is one of many: the one
    with columns e_1 .. e_N for the shown tokens, which is the limit tau -> 0.
    """

    gram: Float[Tensor, "shown shown"]
    """G = E[y y^T] = Z^T M Z + tau tr(M) I of the shown labels."""
    cross: Float[Tensor, "shown tokens"]
    """R: column k is E[y y_k]; a shown label shares its noise with its target."""
    power: Float[Tensor, " tokens"]
    """c_k = E y_k^2."""
    noise: float
    """tau tr(M), the part of E y_k^2 that is noise; m tau if M = I."""

    def __post_init__(self) -> None:
        require_tensor("cross", self.cross, (None, None))
        shown, tokens = self.cross.shape
        require_tensor("gram", self.gram, (shown, shown), like=self.cross)
        require_tensor("power", self.power, (tokens,), like=self.cross)
        if shown > tokens:
            raise ValueError(f"cross must have a column for each shown token, got {shown, tokens}")
        require_not_negative("noise", self.noise)

    @classmethod
    def of(
        cls,
        features: Float[Tensor, "tokens features"],
        shown: int,
        tau: float,
        second_moment: Float[Tensor, "features features"] | None = None,
    ) -> DictionaryRisk:
        """For tokens with these features, the first `shown` of them in the prompt; tau >= 0."""
        shown = _require_shown(features, shown)
        require_not_negative("tau", tau)
        require_finite("features", features)
        count, m = features.shape
        require_room(f"the labels of {count} tokens", count**2)
        moment = torch.eye(m).to(features) if second_moment is None else second_moment
        if moment.shape != (m, m):
            raise ValueError(
                f"second_moment must have shape {[m, m]}, for {m} features, got "
                f"{list(moment.shape)}"
            )
        require_tensor("second_moment", moment, (m, m), like=features)
        require_covariance("second_moment", moment, definite=False)
        noise = tau * moment.trace().item()
        labels = features @ moment @ features.mT + noise * torch.eye(len(features)).to(features)
        return cls(labels[:shown, :shown], labels[:shown], labels.diagonal(), noise)

    @property
    def shown(self) -> int:
        return len(self.gram)

    @property
    def tokens(self) -> int:
        return len(self.power)

    def __call__(self, matrix: Float[Tensor, "shown tokens"]) -> Float[Tensor, ""]:
        """L(A); differentiable."""
        return self.gap(matrix) + self.infimum

    def gap(self, matrix: Float[Tensor, "shown tokens"]) -> Float[Tensor, ""]:
        """L(A) - L*, without the cancellation of a difference."""
        return self.distance(matrix, self.optimum) / 2

    def distance(
        self, one: Float[Tensor, "shown tokens"], other: Float[Tensor, "shown tokens"]
    ) -> Float[Tensor, ""]:
        """E (1/K) |prediction of one - prediction of the other|^2 under these labels."""
        for matrix in (one, other):
            require_tensor("matrix", matrix, (self.shown, self.tokens), like=self.cross)
        return (self.root @ (one - other)).square().sum() / self.tokens

    @cached_property
    def root(self) -> Float[Tensor, "shown shown"]:
        """The symmetric square root of G, which the paper writes Z with a bar (Eq. 12)."""
        values, vectors = torch.linalg.eigh(self.gram)
        return vectors * values.clamp_min(0).sqrt() @ vectors.mT

    @cached_property
    def optimum(self) -> Float[Tensor, "shown tokens"]:
        """A*. The columns of shown tokens are e_k: their labels are known, noise and all."""
        queries = self.cross[:, self.shown :]
        if self.noise > 0:
            solution = torch.linalg.solve(self.gram, queries)
        else:
            solution = torch.linalg.pinv(self.gram, hermitian=True) @ queries
        return torch.cat([torch.eye(self.shown).to(self.gram), solution], dim=1)

    @cached_property
    def infimum(self) -> float:
        """L* = (1/2K) sum_k (c_k - r_k^T a*_k), with the noise of every target, shown or not."""
        explained = (self.cross * self.optimum).sum(0)
        return ((self.power - explained)[self.shown :].sum() / (2 * self.tokens)).item()


def ridge_coefficients(
    features: Float[Tensor, "shown features"], labels: Float[Tensor, "*batch shown"], penalty: float
) -> Float[Tensor, "*batch features"]:
    """argmin over lambda of sum_i (y_i - <lambda, z_i>)^2 + penalty |lambda|^2.

    (Z Z^T + penalty I)^-1 Z y. Yang 2024, Eq. 20, is the penalty m tau, Eq. 25 is N tau.
    It is positive, or zero where the shown tokens are at least as many as the features.
    """
    require_tensor("features", features, (None, None))
    shown, m = features.shape
    require_tensor("labels", labels, (shown,), like=features, batched=True)
    _require_penalty(penalty, shown, m)
    moment = features.mT @ features + penalty * torch.eye(features.shape[1]).to(features)
    return torch.linalg.solve(moment, features.mT @ labels.unsqueeze(-1)).squeeze(-1)


def ridge_matrix(
    features: Float[Tensor, "tokens features"], shown: int, penalty: float
) -> Float[Tensor, "shown tokens"]:
    """The predictor that repeats the shown labels and answers the others by ridge regression.

        [I_N, Z^T (Z Z^T + penalty I)^-1 Z^Q]

    With penalty m tau it is the optimum A* of `DictionaryRisk` (Yang 2024, Theorem 2); with N tau
    it is what the paper calls the best prediction (Eq. 23). They are equal where N = m.
    """
    shown = _require_shown(features, shown)
    _require_penalty(penalty, shown, features.shape[1])
    identity = torch.eye(shown).to(features)
    coefficients = ridge_coefficients(features[:shown], identity, penalty)  # one row per label
    return torch.cat([identity, coefficients @ features[shown:].mT], dim=1)


def _require_shown(features: Tensor, shown: int) -> int:
    require_tensor("features", features, (None, None))
    shown = require_count("shown", shown)
    if shown > len(features):
        raise ValueError(f"shown must be between 1 and the {len(features)} tokens, got {shown}")
    return shown


def _require_penalty(penalty: float, shown: int, features: int) -> None:
    require_not_negative("penalty", penalty)
    if penalty == 0 and shown < features:
        raise ValueError(
            f"penalty must be positive where {shown} shown tokens are fewer than the {features} "
            f"features, or no minimum is the only one, got {penalty}"
        )


def one_head_floor(risk: DictionaryRisk) -> float:
    """A lower bound of L - L* for one softmax head, whose weights for a token have one sign.

        (1/2K) sum_k min { |G^1/2 (a - a*_k)|^2 : a >= 0 or a <= 0 }

    by non-negative least squares for either sign (Yang 2024, section 3.3). The softmaxes of
    all tokens come from one Q, so that a trained head may stay above it.
    """
    root, targets = risk.root.numpy(), (risk.root @ risk.optimum).mT.numpy()
    distances = [min(nnls(root, target)[1], nnls(root, -target)[1]) for target in targets]
    return sum(distance**2 for distance in distances) / (2 * risk.tokens)
