"""The weights of linear attention: what all forms share, and full matrices.

Each form knows its matrices (P_l, Q_l) and the quickest way to answer from a Gram matrix. A layer
maps every token z to z - P_l G_l Q_l z, where G_l is the Gram matrix of the context tokens as they
now are; since context and query tokens are multiplied by the same T_l = I - P_l G_l Q_l,

    G_{l+1} = T_l G_l T_l^T,

and after G_0 no cost depends on n. The prediction is minus the label slot of the query token.

Inside, the batch is the last axis; see `small_matrices`. In shapes, `token` is d + 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop import theory
from innerloop.models.linear_attention.closed_forms import setting
from innerloop.models.linear_attention.small_matrices import (
    batch_last,
    from_left,
    from_right,
    product,
)
from innerloop.prompt import Prompt
from innerloop.tasks import LinearRegression, NoClosedForm
from innerloop.tasks.checks import require_not_negative


@dataclass(frozen=True)
class Ray:
    """A model on the ray: A_l = a_l Sigma^-1, B_l = b_l I, and perhaps a shift u."""

    steps: Float[Tensor, " layers"]
    transforms: Float[Tensor, " layers"] | None = None
    shift: Float[Tensor, " d"] | None = None


class LinearAttentionWeights(nn.Module, ABC):
    """One of the forms below."""

    @property
    @abstractmethod
    def layers(self) -> int: ...

    @property
    @abstractmethod
    def d(self) -> int: ...

    @abstractmethod
    def matrices(
        self,
    ) -> tuple[Float[Tensor, "layers token token"], Float[Tensor, "layers token token"]]:
        """P and Q of every layer."""

    @abstractmethod
    def answer(
        self,
        gram: Float[Tensor, "batch token token"],
        queries: Float[Tensor, "batch queries d"],
        loops: int,
    ) -> Float[Tensor, "batch queries"]:
        """Predictions for several queries of one context."""

    def predictions(self, prompt: Prompt, loops: int) -> Float[Tensor, "batch queries"]:
        """For the queries of a prompt that do not attend to themselves."""
        queries = prompt.x_query.expand(len(prompt), -1, -1)
        return self.answer(prompt.gram(), queries, loops)

    def risk(self, task: LinearRegression, loops: int, *, masked: bool) -> Float[Tensor, ""]:
        """The exact expected loss as a function of the weights; NoClosedForm if none is known."""
        raise NoClosedForm(
            f"no closed form is known for the loss of {type(self).__name__}; use the wishart or "
            "the prompts objective, or estimate it by sampling"
        )

    def context_risk(
        self,
        task: LinearRegression,
        gram: Float[Tensor, "batch token token"],
        w: Float[Tensor, "batch d"],
        loops: int,
    ) -> Float[Tensor, " batch"]:
        """The loss given the context's Gram matrix and the task's w, averaged over the query.

        Where the prediction is linear in the labels, averaged over them as well. For models whose
        query does not attend to itself.
        """
        identity = torch.eye(self.d).to(gram).expand(len(gram), self.d, self.d)
        error = self.answer(gram, identity, loops) - w  # the prediction is <., x_q>
        return ((error @ task.covariance) * error).sum(-1)

    def operators(
        self, s: Float[Tensor, "batch d d"], loops: int
    ) -> tuple[Float[Tensor, "batch d d"], Float[Tensor, "#batch d d"]]:
        """(J, K): what is learned is w = K m, and the error w* - w is J w* without noise.

        K of a single step does not depend on S, and then has a batch of 1.
        """
        raise NoClosedForm(
            "what is learned is linear in the labels for GradientDescentWeights and "
            f"GDPlusPlusWeights, got {type(self).__name__}"
        )

    def offset(self, s: Float[Tensor, "batch d d"], loops: int) -> Float[Tensor, "batch d"]:
        """What is added to the learned w, whatever the labels."""
        return s.new_zeros(s.shape[:2])

    def ray(self, covariance: Float[Tensor, "d d"]) -> Ray:
        """The nearest multiples of Sigma^-1 and of the identity (Ahn 2023, Theorems 4 and 5)."""
        raise NoClosedForm(
            "the ray is defined for GradientDescentWeights and GDPlusPlusWeights, "
            f"got {type(self).__name__}"
        )


class DenseWeights(LinearAttentionWeights):
    """Arbitrary P_l and Q_l (Ahn 2023, Eq. 4)."""

    def __init__(
        self, p: Float[Tensor, "layers token token"], q: Float[Tensor, "layers token token"]
    ) -> None:
        super().__init__()
        require_layers("p", p)
        require_same_shape("q", q, "p", p)
        self.p = nn.Parameter(p)
        self.q = nn.Parameter(q)

    @classmethod
    def gaussian(
        cls,
        d: int,
        layers: int,
        std: float,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float64,
    ) -> DenseWeights:
        """Independent N(0, std^2) entries."""
        shape = (layers, d + 1, d + 1)
        return cls(gaussian(shape, std, generator, dtype), gaussian(shape, std, generator, dtype))

    @property
    def layers(self) -> int:
        return self.p.shape[0]

    @property
    def d(self) -> int:
        return self.p.shape[-1] - 1

    def matrices(self) -> tuple[Tensor, Tensor]:
        return self.p, self.q

    def answer(self, gram: Tensor, queries: Tensor, loops: int) -> Tensor:
        return _answer_dense(self.p, self.q, gram, queries, loops)


class SingleLayerWeights(LinearAttentionWeights):
    """One layer: P has only its last row b^T, Q only its first d columns A (Ahn 2023, Eq. 7).

    Nothing else of a single layer's P and Q reaches the prediction b^T G A x_q.
    """

    def __init__(self, b: Float[Tensor, " token"], a: Float[Tensor, "token d"]) -> None:
        super().__init__()
        if b.ndim != 1 or list(a.shape) != [len(b), len(b) - 1]:
            raise ValueError(
                f"b must have shape [d + 1] and a [d + 1, d], got {list(b.shape)} and "
                f"{list(a.shape)}"
            )
        self.b = nn.Parameter(b)
        self.a = nn.Parameter(a)

    @classmethod
    def gaussian(
        cls,
        d: int,
        std: float,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float64,
    ) -> SingleLayerWeights:
        """Independent N(0, std^2) entries."""
        return cls(
            gaussian((d + 1,), std, generator, dtype), gaussian((d + 1, d), std, generator, dtype)
        )

    @property
    def layers(self) -> int:
        return 1

    @property
    def d(self) -> int:
        return self.a.shape[-1]

    def matrices(self) -> tuple[Tensor, Tensor]:
        p = nn.functional.pad(self.b.unsqueeze(0), (0, 0, self.d, 0))
        return p.unsqueeze(0), nn.functional.pad(self.a, (0, 1)).unsqueeze(0)

    def answer(self, gram: Tensor, queries: Tensor, loops: int) -> Tensor:
        return _answer_dense(*self.matrices(), gram, queries, loops)

    def risk(self, task: LinearRegression, loops: int, *, masked: bool) -> Float[Tensor, ""]:
        if loops > 1:
            raise NoClosedForm(
                f"a closed form is known for one layer applied once, got loops = {loops}; use the "
                "wishart or the prompts objective"
            )
        return theory.linear.single_layer_risk(self.b, self.a, *setting(task), masked=masked)


def _answer_dense(
    p: Float[Tensor, "layers token token"],
    q: Float[Tensor, "layers token token"],
    gram: Float[Tensor, "batch token token"],
    queries: Float[Tensor, "batch queries d"],
    loops: int,
) -> Float[Tensor, "batch queries"]:
    gram = batch_last(gram)
    tokens = batch_last(nn.functional.pad(queries, (0, 1)).mT)  # columns; the label slot is 0
    steps = len(p) * loops
    for step in range(steps - 1):
        update = from_right(from_left(p[step % len(p)], gram), q[step % len(p)])
        tokens = tokens - product(update, tokens)
        half = gram - product(update, gram)  # T G
        gram = half - product(half, update.transpose(0, 1))
    # Of the last layer only the label slot is read.
    update = from_right(from_left(p[-1, -1:], gram), q[-1])
    return (product(update, tokens) - tokens[-1:])[0].mT


def gaussian(
    shape: tuple[int, ...], std: float, generator: torch.Generator, dtype: torch.dtype
) -> Tensor:
    """Independent N(0, std^2) entries where the generator is: the same draws in every dtype."""
    require_not_negative("std", std)
    draws = torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device)
    return (std * draws).to(dtype)


def require_layers(name: str, matrices: Tensor) -> None:
    if matrices.ndim != 3 or matrices.shape[-1] != matrices.shape[-2] or len(matrices) == 0:
        raise ValueError(
            f"{name} must be square matrices, one per layer, [layers, d, d], "
            f"got shape {list(matrices.shape)}"
        )


def require_same_shape(name: str, given: Tensor, other_name: str, other: Tensor) -> None:
    if given.shape != other.shape:
        raise ValueError(
            f"{name} must have the shape {list(other.shape)} of {other_name}, "
            f"got {list(given.shape)}"
        )
