"""The single layer where every prompt has its own random diagonal covariance.

Zhang 2023, section 4.3: Lambda = diag(l_1, ..., l_d) with independent positive l_i, fresh for every
prompt, w ~ N(0, I), labels <w, x>. A layer with the diagonal preconditioner diag(a) predicts
x_q^T diag(a) S w. The risk is of degree 3 in Lambda, so that three moments of every l_i give it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class VarianceMoments:
    """E l, E l^2 and E l^3 of the independent variances of the coordinates."""

    first: Float[Tensor, " d"]
    second: Float[Tensor, " d"]
    third: Float[Tensor, " d"]

    @classmethod
    def fixed(cls, spectrum: Float[Tensor, " d"]) -> VarianceMoments:
        """Variances that are the same in every prompt."""
        return cls(spectrum, spectrum**2, spectrum**3)

    @classmethod
    def exponential(cls, d: int) -> VarianceMoments:
        """Exponential(1) for every coordinate, as in the paper's example: 1, 2 and 6."""
        ones = torch.ones(d, dtype=torch.float64)
        return cls(ones, 2 * ones, 6 * ones)

    def scaled(self, scale: float) -> VarianceMoments:
        """The moments of scale * l."""
        return VarianceMoments(scale * self.first, scale**2 * self.second, scale**3 * self.third)

    def square_of_sample_covariance(self, n: int | float) -> Float[Tensor, " d"]:
        """E [l_i (S^2)_ii] over Lambda and n examples, of which n may be math.inf.

        Given Lambda, E S^2 = (1 + 1/n) Lambda^2 + (tr Lambda / n) Lambda (Zhang 2023, Lemma D.2),
        and E[l_i^2 tr Lambda] = E l_i^3 + E l_i^2 sum_{j != i} E l_j.
        """
        if not n >= 1:
            raise ValueError(f"n must be at least 1 example, or math.inf, got {n}")
        with_trace = self.third + self.second * (self.first.sum() - self.first)
        return (1 + 1 / n) * self.third + with_trace / n


def random_covariance_steps(moments: VarianceMoments, n: int | float) -> Float[Tensor, " d"]:
    """The diagonal of E[Lambda^2] (E[Gamma Lambda^2])^-1, where training on n examples ends.

    Zhang 2023, Theorem 4.5, Eq. 4.12. It is the minimiser of `random_covariance_risk`.
    """
    return moments.second / moments.square_of_sample_covariance(n)


def random_covariance_risk(
    steps: Float[Tensor, " d"], moments: VarianceMoments, length: int | float
) -> Float[Tensor, ""]:
    """E (prediction - y_q)^2 on prompts of `length` examples with covariances of these moments.

    sum_i E l_i - 2 a_i E l_i^2 + a_i^2 E[l_i (S^2)_ii]
    """
    square = moments.square_of_sample_covariance(length)
    return (moments.first - 2 * steps * moments.second + steps**2 * square).sum()
