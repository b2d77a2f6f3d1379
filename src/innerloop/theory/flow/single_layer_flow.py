"""Gradient flow of one layer of linear attention on linear regression (Zhang 2023).

The layer predicts v m^T U x_q, with m = (1/n) sum_i y_i x_i. Prompts have n examples, w ~ N(0, I)
and x ~ N(0, Lambda), where Lambda is fixed or has a law of its own. Half the expected squared error
is, up to a constant, a function of U and v (Zhang 2023, Eq. 5.5 and C.5),

    l(U, v) = v^2/2 <U, K U> - v <E Lambda^2, U>,     K U = E Gamma Lambda U Lambda,
    Gamma = (1 + 1/n) Lambda + tr(Lambda)/n I,

with K symmetric and positive definite on matrices. Its minima are all (U, v) with v U = D, where
K D = E Lambda^2, and what it exceeds its minimum by is <v U - D, K (v U - D)> / 2.
The other weights p and r of the layer are zero along the flow if they start there (Lemma 5.2);
`whole_layer_loss` has all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import jacrev, vmap

from innerloop.theory.checks import (
    require_count,
    require_covariance,
    require_length,
    require_number,
    require_positive,
    require_room,
    require_tensor,
)
from innerloop.theory.flow.gradient_flow import Flow, gradient_flow
from innerloop.theory.linear.covariance_law import CovarianceLaw, require_probabilities
from innerloop.theory.linear.layers import single_layer_risk

Weights = tuple[Float[Tensor, "d d"], Float[Tensor, ""]]
"""(U, v)."""


def balanced_direction(d: int, generator: torch.Generator) -> Float[Tensor, "d d"]:
    """A random Theta Theta^T of Frobenius norm 1, as Zhang 2023 suggests after Assumption 3.3."""
    d = require_count("d", d)
    require_room(f"a direction of d = {d}", d * d)
    root = torch.randn(d, d, generator=generator, dtype=torch.float64)
    direction = root @ root.mT
    return direction / direction.norm()


@dataclass(frozen=True)
class SingleLayerFlow:
    """The loss, its minima and its gradient flow, for prompts of n examples.

    A `direction` is Theta Theta^T of Assumption 3.3: positive semi-definite, of Frobenius norm 1.
    The start of the flow is then U = scale * direction, v = scale.
    """

    law: CovarianceLaw
    n: int | float
    """Examples in a training prompt; math.inf is allowed."""

    def __post_init__(self) -> None:
        require_length(self.n, "n")

    @cached_property
    def curvature(self) -> Float[Tensor, "entries entries"]:
        """K, as a matrix on the entries of U read row by row (d^2 of them)."""
        cubic = (1 + 1 / self.n) * self.law.square_and_self + self.law.pair_and_trace / self.n
        # (Gamma Lambda U Lambda)_ik = sum_jl (Gamma Lambda)_ij U_jl Lambda_lk
        return torch.einsum("ijlk->ikjl", cubic).reshape(self.law.d**2, self.law.d**2)

    @cached_property
    def product(self) -> Float[Tensor, "d d"]:
        """D, the value of v U at every minimum: K D = E Lambda^2.

        Gamma^-1 for a fixed covariance (Lemma 5.3), (E Gamma Lambda^2)^-1 E Lambda^2 for a diagonal
        one (Lemma C.4). In general, with columns stacked as in the paper,
        vec D = (E Lambda (x) Gamma Lambda)^-1 vec E Lambda^2, which is ours.
        """
        return torch.linalg.solve(self.curvature, self.law.square.flatten()).view(self._shape)

    @property
    def minimum(self) -> float:
        """min l = -<E Lambda^2, D> / 2 (Corollary A.2, Eq. C.6)."""
        return -float((self.law.square * self.product).sum()) / 2

    def loss(self, u: Float[Tensor, "d d"], v: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """l(U, v); half the expected squared error is this plus tr(E Lambda) / 2."""
        self._require_weights(u, v)
        curved = (self.curvature @ u.flatten()) @ u.flatten()
        return v**2 / 2 * curved - v * (self.law.square * u).sum()

    def excess(self, u: Float[Tensor, "d d"], v: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """l(U, v) - min l, without the cancellation of that difference."""
        self._require_weights(u, v)
        off = (v * u - self.product).flatten()
        return (off @ (self.curvature @ off)) / 2

    def gradient(self, u: Float[Tensor, "d d"], v: Float[Tensor, ""]) -> Weights:
        """(dl/dU, dl/dv): minus the velocity of Zhang 2023, Eq. 5.4 and C.1."""
        curved = (self.curvature @ u.flatten()).view(self._shape)
        return (
            v**2 * curved - v * self.law.square,
            v * (curved * u).sum() - (self.law.square * u).sum(),
        )

    def limit(self, imbalance: float = 0.0) -> Weights:
        """Where a flow to a minimum with v > 0 ends: v U = D, with v^2 - |U|_F^2 as at its start.

        Balanced, as in the paper: v = |D|_F^1/2, U = D / v (Eq. 4.1, 4.12). That the difference is
        conserved is Lemma A.3; an imbalance other than zero is ours.
        """
        require_number("imbalance", imbalance)
        size = float(self.product.norm())
        v = math.sqrt((imbalance + math.hypot(imbalance, 2 * size)) / 2)
        return self.product / v, torch.tensor(v, dtype=torch.float64)

    def start(self, direction: Float[Tensor, "d d"], scale: float) -> Weights:
        """Assumption 3.3; the scale is positive."""
        require_positive("scale", scale)
        require_tensor("direction", direction, self._shape, like=self.law.mean)
        require_covariance("direction", direction, definite=False)
        if abs(float(direction.norm()) - 1) > 1e-9:
            raise ValueError(
                f"direction must have Frobenius norm 1, got {float(direction.norm()):g}. It is "
                "Theta Theta^T that is normalised, not Theta."
            )
        return scale * direction, torch.tensor(scale, dtype=torch.float64)

    def flow(self, u: Float[Tensor, "d d"], v: Float[Tensor, ""], *, until: float = 1e6) -> Flow:
        """Gradient flow from these weights; theta is (v, entries of U), its loss is `excess`.

        It is followed until it comes to rest, or to the time `until`.
        """
        self._require_weights(u, v)

        def gradient(theta: Tensor) -> Tensor:
            # As `gradient`, but without its cancellation near the minimum, and quicker.
            v, u = theta[0], theta[1:]
            pull = self.curvature @ (v * u - flat_product)
            return torch.cat([(pull @ u).view(1), v * pull])

        flat_product = self.product.flatten()
        return gradient_flow(
            lambda theta: self.excess(*self.unpacked(theta)),
            torch.cat([v.view(1), u.flatten()]),
            gradient=gradient,
            until=until,
        )

    def unpacked(self, theta: Float[Tensor, " p"]) -> Weights:
        """(U, v) of theta = (v, entries of U)."""
        require_tensor("theta", theta, (self.law.d**2 + 1,))
        return theta[1:].view(self._shape), theta[0]

    def largest_scale(self, direction: Float[Tensor, "d d"]) -> float:
        """The initial scale below which the paper proves convergence.

        scale^2 < 2 / (sqrt(d) |Gamma|_op) for a fixed covariance (Theorem 4.1), and
        scale^2 < 2 |E Lambda Theta|_F^2 / (sqrt(d) E |Gamma|_op |Lambda|_F^2) otherwise (Eq. 4.11).
        """
        require_tensor("direction", direction, self._shape, like=self.law.mean)
        if self.law.is_fixed:
            return math.sqrt(2 / (math.sqrt(self.law.d) * self._gamma_norm))
        return math.sqrt(2 * self._seen(direction) / (math.sqrt(self.law.d) * self._heavy))

    def smallest_v(self, direction: Float[Tensor, "d d"], scale: float) -> float:
        """The paper's lower bound of v along the flow (Eq. A.14 and C.12)."""
        self._check_scale(direction, scale)
        root, seen = math.sqrt(self.law.d), self._seen(direction)
        heavy = seen * self._gamma_norm if self.law.is_fixed else self._heavy
        size = float(torch.linalg.matrix_norm(self.law.square, 2))
        return scale * math.sqrt((2 * seen - root * scale**2 * heavy) / (2 * root * size))

    def pl_constant(self, direction: Float[Tensor, "d d"], scale: float) -> float:
        """The paper's bound of |grad l|^2 / (l - min l) along the flow from below.

        mu of Eq. 5.7 for a fixed covariance, nu of Eq. C.13 otherwise. For a diagonal covariance
        the smallest of all gamma_i and zeta_ij is the smallest eigenvalue of K: written so, nu
        holds for any law.
        """
        lower = self.smallest_v(direction, scale) ** 2
        if not self.law.is_fixed:
            return lower * float(torch.linalg.eigvalsh(self.curvature)[0])
        inverse = torch.linalg.inv(self.law.mean)
        traces = float((torch.linalg.inv(self._gamma) @ inverse).trace() * inverse.trace())
        return 2 * lower / traces

    def _require_weights(self, u: Tensor, v: Tensor) -> None:
        require_tensor("u", u, self._shape, like=self.law.mean)
        require_tensor("v", v, (), like=self.law.mean)

    @property
    def _shape(self) -> tuple[int, int]:
        return self.law.d, self.law.d

    @property
    def _gamma(self) -> Tensor:
        """E Gamma."""
        identity = torch.eye(self.law.d).to(self.law.mean)
        return (1 + 1 / self.n) * self.law.mean + self.law.mean.trace() / self.n * identity

    @property
    def _gamma_norm(self) -> float:
        return float(torch.linalg.matrix_norm(self._gamma, 2))

    @property
    def _heavy(self) -> float:
        """E |Gamma|_op |Lambda|_F^2."""
        if self.law.peak is None:
            raise ValueError(
                "the bounds for a random covariance need E |Lambda|_op |Lambda|_F^2: give the law "
                "its `peak`"
            )
        return (1 + 1 / self.n) * self.law.peak + self.law.trace_and_square / self.n

    def _seen(self, direction: Tensor) -> float:
        """|E Lambda Theta|_F^2 = tr(E Lambda  Theta Theta^T  E Lambda)."""
        return float((self.law.mean @ direction @ self.law.mean).trace())

    def _check_scale(self, direction: Tensor, scale: float) -> None:
        require_positive("scale", scale)
        largest = self.largest_scale(direction)
        if not 0 < scale < largest:
            raise ValueError(
                f"scale must lie between 0 and {largest:g} for this bound, got {scale:g}"
            )


def whole_layer_loss(
    covariances: Float[Tensor, "k d d"], probabilities: Float[Tensor, " k"], n: int
) -> Callable[[Float[Tensor, " p"]], Float[Tensor, ""]]:
    """Half the expected squared error of a layer with all weights, theta = (p, v, U, r).

    The query attends to itself, as in Zhang 2023. theta has d, 1, d^2 and d entries, matrices row
    by row. The error is a quadratic polynomial in the products of a weight of (p, v) and one of
    (U, r): it is expanded here once, by derivatives at zero, and is quick to evaluate from then on.
    """
    n = require_count("n", n)
    d = require_covariance("covariances", covariances, stacked=True)
    require_probabilities(probabilities, covariances)
    require_room(f"the loss of a layer of d = {d}", ((d + 1) ** 2 * d) ** 2)

    def risk(b: Tensor, a: Tensor) -> Tensor:
        def given(covariance: Tensor) -> Tensor:
            return single_layer_risk(b, a, covariance, n, masked=False)

        return probabilities @ vmap(given)(covariances) / 2

    b, a = torch.zeros(d + 1).to(covariances), torch.zeros(d + 1, d).to(covariances)
    width = a.numel()
    # Reverse mode throughout: on first use forward mode compiles for seconds, with a warning.
    quartic = jacrev(jacrev(jacrev(jacrev(risk, 0), 0), 1), 1)(b, a)
    quartic = quartic.view(d + 1, d + 1, width, width) / 4
    quadratic = torch.einsum("ijkl->ikjl", quartic).reshape((d + 1) * width, -1)
    linear, constant = jacrev(jacrev(risk, 0), 1)(b, a).flatten(), risk(b, a)

    def loss(theta: Tensor) -> Tensor:
        products = torch.outer(theta[: d + 1], theta[d + 1 :]).flatten()
        return products @ (quadratic @ products) + linear @ products + constant

    return loss
