"""Gradient descent on softmax heads over a dictionary: the constants of a linear rate.

The loss is (1/2K) sum_k |Zbar (C_k w_k - a*_k)|^2 + L*, where column h of C_k is the softmax of
head h for token k. In the coordinates (Q, alpha = w / gamma), gamma^2 = eta_w / eta_Q, the two
learning rates are one, eta_Q (Yang 2024, Lemma 6), and a Polyak-Lojasiewicz inequality together
with the smoothness of the loss gives the rate of Theorem 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.theory.checks import (
    TooLargeError,
    require_count,
    require_finite,
    require_not_negative,
    require_positive,
    require_tensor,
)
from innerloop.theory.softmax.ridge import DictionaryRisk


def smallest_eigenvalue(
    risk: DictionaryRisk, softmaxes: Float[Tensor, "heads shown tokens"]
) -> Float[Tensor, ""]:
    """zeta = min_k lambda_min(B_k B_k^T), B_k = Zbar C_k: positive iff all B_k have full row rank.

    Yang 2024, Eq. 14; the square of a singular value, so that 1e-16 and 0 are told apart.
    """
    _require_softmaxes(risk, softmaxes)
    heads, shown, _ = softmaxes.shape
    if heads < shown:
        return softmaxes.new_zeros(())
    b = risk.root @ softmaxes.permute(2, 1, 0)  # [tokens, shown, heads]
    return torch.linalg.svdvals(b)[:, -1].min().square()


@dataclass(frozen=True)
class DescentConstants:
    """What the rate of gradient descent from w = 0 depends on (Yang 2024, section 3.1)."""

    heads: int
    shown: int
    tokens: int
    root_norm: float
    """|Zbar|, the spectral norm."""
    column_norm: float
    """f_max, the largest norm of a column of Zbar."""
    target_norm: float
    """|A*|, the spectral norm."""
    target_bound: float
    """1 + |Z^T Zhat| / (m tau), by which the paper's main text bounds |A*|."""
    zeta: float
    """`smallest_eigenvalue` at the start."""
    gap: float
    """L - L* at the start."""

    def __post_init__(self) -> None:
        for name in ("heads", "shown", "tokens"):
            require_count(name, getattr(self, name))
        for name in ("root_norm", "column_norm", "target_norm", "target_bound", "zeta", "gap"):
            require_not_negative(name, getattr(self, name))

    @classmethod
    def of(
        cls, risk: DictionaryRisk, softmaxes: Float[Tensor, "heads shown tokens"]
    ) -> DescentConstants:
        _require_softmaxes(risk, softmaxes)
        heads, shown, tokens = softmaxes.shape
        if not risk.noise > 0:
            raise ValueError(
                f"risk must have tau > 0, by which the bound on |A*| divides, got "
                f"the noise {risk.noise}"
            )
        features = risk.cross.clone()
        features[:, :shown].diagonal().sub_(risk.noise)  # Z^T Zhat
        return cls(
            heads=heads,
            shown=shown,
            tokens=tokens,
            root_norm=_norm(risk.root),
            column_norm=risk.root.norm(dim=0).max().item(),
            target_norm=_norm(risk.optimum),
            target_bound=1 + _norm(features) / risk.noise,
            zeta=smallest_eigenvalue(risk, softmaxes).item(),
            gap=risk.gap(torch.zeros_like(risk.optimum)).item(),
        )

    @property
    def least_gamma(self) -> float:
        """The smallest gamma that Theorem 1 allows (Eq. 15)."""
        self._require_full_rank()
        factor = 128 * math.sqrt(2) / (math.sqrt(2) - 1) * self.root_norm**2 * self.column_norm
        return self.zeta**-1.25 * math.sqrt(
            factor * math.sqrt(self.heads) * self.tokens**1.5 * self.gap
        )

    def alpha_bound(self, gamma: float) -> float:
        """What |alpha_h| never exceeds while training (Eq. 44)."""
        self._require_full_rank()
        require_positive("gamma", gamma)
        scale = 4 * math.sqrt(2 * self.tokens) * self.root_norm
        return scale * math.sqrt(self.gap) / (gamma * self.zeta)

    def smoothness(self, gamma: float, alpha: float) -> float:
        """A Lipschitz constant of the gradient in (Q, alpha) where |alpha_{h,k}| <= alpha.

            L^2 = (2/K) (2 gamma |Zbar|^2 (2 a + |A|))^2 + 2 (gamma^2 H |Zbar|^2 / K)^2
                + (16/K) (gamma f_max |Zbar|)^2 max(1, 4 K alpha^2) (a^2 + 4 N (a + |A|)^2),

        a = gamma H alpha. Yang 2024, Lemma 10, except for the factor of the last line: squaring
        Eq. 58 squares 2 gamma f_max |Zbar| / K too, where Eq. 61 has 8 gamma f_max |Zbar|.
        """
        _require_rates(gamma, alpha)
        k, n, a = self.tokens, self.shown, gamma * self.heads * alpha
        factor = 16 / k * (gamma * self.column_norm * self.root_norm) ** 2
        mixed = 2 * gamma * self.root_norm**2 * (2 * a + self.target_norm)
        weights = gamma**2 * self.heads * self.root_norm**2 / k
        queries = max(1, 4 * k * alpha**2) * (a**2 + 4 * n * (a + self.target_norm) ** 2)
        return math.sqrt(2 * mixed**2 / k + 2 * weights**2 + factor * queries)

    def main_text_smoothness(self, gamma: float) -> float:
        """`smoothness` at the `alpha_bound`, with f_max and |A| replaced by their bounds.

            L^2 = (8/K) (gamma |Zbar|^2 r)^2 + 2 (gamma^2 H |Zbar|^2 / K)^2
                + (16/K) (gamma |Zbar|^2)^2 max(1, 4 K alpha^2) (a^2 + 4 N r^2),

        r = 2 a + 1 + |Z^T Zhat| / (m tau) and a = gamma H alpha = 4 sqrt(2 K gap) H |Zbar| / zeta.
        What Eq. 17 of Yang 2024 should be, which next to what it inherits from Eq. 61 has |Zbar|^2
        for |Zbar| in a, so that it does not scale as a curvature does, and no maximum with 1.
        """
        k, n, alpha = self.tokens, self.shown, self.alpha_bound(gamma)
        a = gamma * self.heads * alpha
        reach = 2 * a + self.target_bound
        queries = max(1, 4 * k * alpha**2) * (a**2 + 4 * n * reach**2)
        square = 8 / k * (gamma * reach) ** 2 + 2 * (gamma**2 * self.heads / k) ** 2
        return self.root_norm**2 * math.sqrt(square + 16 / k * gamma**2 * queries)

    def rates(self, gamma: float) -> tuple[float, float]:
        """The largest certified learning rates (eta_Q, eta_w): 1/L and gamma^2/L (Eq. 16)."""
        query_rate = 1 / self.smoothness(gamma, self.alpha_bound(gamma))
        return query_rate, gamma**2 * query_rate

    def decrease(self, weight_rate: float) -> float:
        """eta_w zeta / 2K: the share of the gap that every step removes (Theorem 1, Eq. 18)."""
        require_positive("weight_rate", weight_rate)
        return weight_rate * self.zeta / (2 * self.tokens)

    def _require_full_rank(self) -> None:
        if not self.zeta > 0:
            raise ValueError(
                f"zeta must be positive, got {self.zeta}: the theorem needs H >= N heads, here "
                f"H = {self.heads} and N = {self.shown}, and distinct tokens in the prompt"
            )


def iterations(
    constants: DescentConstants,
    decrease: float,
    *,
    precision: float,
    failure: float,
    radius: float,
    tau: float,
    features: Float[Tensor, "shown features"],
) -> int:
    """Steps after which (1/2K) |prediction - ridge|^2 <= precision (Yang 2024, Theorem 2, Eq. 21).

    For every |lambda| <= radius, with probability 1 - failure over the noise of the prompt, if each
    step removes this share of the gap. Shares lie strictly between 0 and 1, the rest is positive.
    """
    for name, share in (("decrease", decrease), ("failure", failure)):
        if not 0 < share < 1:
            raise ValueError(f"{name} must lie strictly between 0 and 1, got {share}")
    for name, value in (("precision", precision), ("radius", radius), ("tau", tau)):
        require_positive(name, value)
    require_tensor("features", features, (None, None))
    require_finite("features", features)
    n, m = features.shape
    log = math.log(1 / failure)
    noise = math.sqrt(tau * (2 * math.sqrt(n * log) + 2 * log + n))
    labels = radius * (_norm(features) + noise)  # bounds |y| with that probability
    scale = m * tau * precision
    ratio = labels * labels * constants.gap / scale if scale > 0 else math.inf
    steps = math.log(ratio) / -math.log1p(-decrease) if ratio > 0 else 0.0
    if not steps < math.inf:
        raise TooLargeError(
            f"the steps to precision = {precision} at radius = {radius}, tau = {tau} and decrease "
            f"= {decrease} are more than float64 holds"
        )
    return max(0, math.ceil(steps))


def _require_softmaxes(risk: DictionaryRisk, softmaxes: Tensor) -> None:
    require_tensor("softmaxes", softmaxes, (None, risk.shown, risk.tokens), like=risk.root)


def _require_rates(gamma: float, alpha: float) -> None:
    require_positive("gamma", gamma)
    require_not_negative("alpha", alpha)


def _norm(matrix: Tensor) -> float:
    return torch.linalg.matrix_norm(matrix, 2).item()
