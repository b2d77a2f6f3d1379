"""The weights of linear attention: full matrices, and the sparse forms the theorems are about.

Each form knows its matrices (P_l, Q_l) and the quickest way to answer from a Gram matrix. A layer
maps every token z to z - P_l G_l Q_l z, where G_l is the Gram matrix of the context tokens as they
now are; since context and query tokens are multiplied by the same T_l = I - P_l G_l Q_l,

    G_{l+1} = T_l G_l T_l^T,

and after G_0 no cost depends on n. The prediction is minus the label slot of the query token.

Inside, the batch is the last axis; see `small_matrices`. In shapes, `token` is d + 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.models.small_matrices import batch_last, product


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


class DenseWeights(LinearAttentionWeights):
    """Arbitrary P_l and Q_l (Ahn 2023, Eq. 4)."""

    def __init__(
        self, p: Float[Tensor, "layers token token"], q: Float[Tensor, "layers token token"]
    ) -> None:
        super().__init__()
        _require_layers("p", p)
        _require_same_shape("q", q, "p", p)
        self.p = nn.Parameter(p)
        self.q = nn.Parameter(q)

    @classmethod
    def gaussian(
        cls, d: int, layers: int, std: float, *, generator: torch.Generator
    ) -> DenseWeights:
        """Independent N(0, std^2) entries."""
        shape = (layers, d + 1, d + 1)
        return cls(_gaussian(shape, std, generator), _gaussian(shape, std, generator))

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


class GDPlusPlusWeights(LinearAttentionWeights):
    """P_l = [[B_l, 0], [0, 1]],  Q_l = [[A_l^T, 0], [0, 0]]   (Ahn 2023, Eq. 13).

    A layer is a gradient step preconditioned by A_l, after which the covariates are multiplied by
    I - B_l S_l A_l^T. Eq. 13 asks for symmetric A_l; nothing here needs it, and the transpose makes
    A_l the preconditioner in w <- w - A_l grad R(w) for any A_l. The last B changes no prediction.
    """

    def __init__(
        self,
        preconditioners: Float[Tensor, "layers d d"],
        transforms: Float[Tensor, "layers d d"],
    ) -> None:
        super().__init__()
        _require_layers("preconditioners", preconditioners)
        _require_same_shape("transforms", transforms, "preconditioners", preconditioners)
        self.preconditioners = nn.Parameter(preconditioners)
        self.transforms = nn.Parameter(transforms)

    @classmethod
    def gaussian(
        cls, d: int, layers: int, std: float, *, generator: torch.Generator
    ) -> GDPlusPlusWeights:
        """Independent N(0, std^2) entries."""
        return cls(
            _gaussian((layers, d, d), std, generator), _gaussian((layers, d, d), std, generator)
        )

    @property
    def layers(self) -> int:
        return self.preconditioners.shape[0]

    @property
    def d(self) -> int:
        return self.preconditioners.shape[-1]

    def matrices(self) -> tuple[Tensor, Tensor]:
        p = nn.functional.pad(self.transforms, (0, 1, 0, 1))
        p[:, -1, -1] = 1
        return p, nn.functional.pad(self.preconditioners.mT, (0, 1, 0, 1))

    def answer(self, gram: Tensor, queries: Tensor, loops: int) -> Tensor:
        s, m = batch_last(gram[:, :-1, :-1]), gram[:, -1, :-1].mT[None]  # m is a row [1, d, batch]
        queries = batch_last(queries)
        predictions = s.new_zeros(())
        steps = self.layers * loops
        for step in range(steps):
            a, b = self.preconditioners[step % self.layers], self.transforms[step % self.layers]
            step_taken = torch.einsum("ij,ljb->lib", a, m)  # A m
            predictions = predictions + product(step_taken, queries.transpose(0, 1))
            if step == steps - 1:
                break
            # As rows, covariates move by -x^T C with C = A S B^T.
            change = torch.einsum("ij,jkb,lk->ilb", a, s, b)
            m = m - product(step_taken, s)  # the labels moved ...
            m = m - product(m, change)  # ... and so do the covariates
            queries = queries - product(queries, change)
            half = s - product(s, change)
            s = half - product(change.transpose(0, 1), half)
        return predictions[0].mT

    def operators(
        self, s: Float[Tensor, "batch d d"], loops: int
    ) -> tuple[Float[Tensor, "batch d d"], Float[Tensor, "batch d d"]]:
        """(J, K): what is learned is w = K m, and the error w* - w is J w* without noise.

        With D = F^T A F the preconditioner seen from the original covariates, a layer makes
        K <- K + D - D S K and F <- F - B F S D^T; J = I - K S.
        """
        s = batch_last(s)
        identity = torch.eye(self.d).to(s).unsqueeze(-1)
        moved, k = identity, torch.zeros_like(identity)
        for step in range(self.layers * loops):
            a, b = self.preconditioners[step % self.layers], self.transforms[step % self.layers]
            d = product(moved.transpose(0, 1), torch.einsum("ij,jkb->ikb", a, moved))
            ds = product(d, s)
            k = k + d - product(ds, k)
            if step < self.layers * loops - 1:
                moved = moved - torch.einsum("ij,jkb->ikb", b, product(moved, ds.transpose(0, 1)))
        return (identity - product(k, s)).permute(2, 0, 1), k.permute(2, 0, 1)


class GradientDescentWeights(LinearAttentionWeights):
    """P_l = [[0, 0], [0, 1]],  Q_l = [[A_l^T, 0], [0, 0]]   (Ahn 2023, Eq. 9).

    Layer l is the step w <- w - A_l grad R(w) on the prompt (Ahn 2023, Lemma 2).
    """

    def __init__(self, preconditioners: Float[Tensor, "layers d d"]) -> None:
        super().__init__()
        _require_layers("preconditioners", preconditioners)
        self.preconditioners = nn.Parameter(preconditioners)

    @classmethod
    def gaussian(
        cls, d: int, layers: int, std: float, *, generator: torch.Generator
    ) -> GradientDescentWeights:
        """Independent N(0, std^2) entries."""
        return cls(_gaussian((layers, d, d), std, generator))

    @property
    def layers(self) -> int:
        return self.preconditioners.shape[0]

    @property
    def d(self) -> int:
        return self.preconditioners.shape[-1]

    def matrices(self) -> tuple[Tensor, Tensor]:
        q = nn.functional.pad(self.preconditioners.mT, (0, 1, 0, 1))
        p = torch.zeros_like(q)
        p[:, -1, -1] = 1
        return p, q

    def answer(self, gram: Tensor, queries: Tensor, loops: int) -> Tensor:
        s, m = batch_last(gram[:, :-1, :-1]), gram[:, -1, :-1].mT[None]  # m is a row [1, d, batch]
        residual, w = m, torch.zeros_like(m)  # m - S w and w
        for step in range(self.layers * loops):
            if step:
                residual = m - product(w, s)
            w = w + torch.einsum("ij,ljb->lib", self.preconditioners[step % self.layers], residual)
        return product(w, batch_last(queries).transpose(0, 1))[0].mT

    def operators(self, s: Tensor, loops: int) -> tuple[Tensor, Tensor]:
        """As `GDPlusPlusWeights.operators`: K <- K + A - A S K and J = I - K S."""
        s = batch_last(s)
        identity = torch.eye(self.d).to(s).unsqueeze(-1)
        k = torch.zeros_like(identity)
        for step in range(self.layers * loops):
            left = identity - product(s, k) if step else identity
            k = k + torch.einsum("ij,jkb->ikb", self.preconditioners[step % self.layers], left)
        return (identity - product(k, s)).permute(2, 0, 1), k.permute(2, 0, 1)


class ShiftedGradientDescentWeights(GradientDescentWeights):
    """P_l = [[0, 0], [u_l^T, 1]],  Q_l = [[A_l^T, 0], [0, 0]]   (Gatmiry 2024, section 3.5).

    Layer l is a step on labels that are shifted by a linear function: on y_i + <u_l, x_i>, so
    w <- w + A_l (m + S u_l - S w).
    """

    def __init__(
        self, preconditioners: Float[Tensor, "layers d d"], shifts: Float[Tensor, "layers d"]
    ) -> None:
        super().__init__(preconditioners)
        if shifts.shape != preconditioners.shape[:-1]:
            raise ValueError(
                f"shifts must have shape {list(preconditioners.shape[:-1])}, one vector for each "
                f"layer, got {list(shifts.shape)}"
            )
        self.shifts = nn.Parameter(shifts)

    @classmethod
    def gaussian(
        cls, d: int, layers: int, std: float, *, generator: torch.Generator
    ) -> ShiftedGradientDescentWeights:
        """Independent N(0, std^2) entries."""
        return cls(
            _gaussian((layers, d, d), std, generator), _gaussian((layers, d), std, generator)
        )

    def matrices(self) -> tuple[Tensor, Tensor]:
        p, q = super().matrices()
        return p + nn.functional.pad(self.shifts.unsqueeze(1), (0, 1, self.d, 0)), q

    def answer(self, gram: Tensor, queries: Tensor, loops: int) -> Tensor:
        learned = super().answer(gram, queries, loops)
        return learned + (queries * self.offset(gram[:, :-1, :-1], loops).unsqueeze(1)).sum(-1)

    def offset(self, s: Float[Tensor, "batch d d"], loops: int) -> Float[Tensor, "batch d"]:
        """What the shifts add to the learned w, whatever the labels: k <- k + A_l S (u_l - k)."""
        s = batch_last(s)
        offset = torch.zeros_like(s[:1])  # a row, [1, d, batch]
        for step in range(self.layers * loops):
            a, u = (t[step % self.layers] for t in (self.preconditioners, self.shifts))
            gradient = product(u[None, :, None] - offset, s)
            offset = offset + torch.einsum("ij,ljb->lib", a, gradient)
        return offset[0].mT


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
    def gaussian(cls, d: int, std: float, *, generator: torch.Generator) -> SingleLayerWeights:
        """Independent N(0, std^2) entries."""
        return cls(_gaussian((d + 1,), std, generator), _gaussian((d + 1, d), std, generator))

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
    for step in range(steps):
        update = torch.einsum("ij,jkb,kl->ilb", p[step % len(p)], gram, q[step % len(p)])
        tokens = tokens - product(update, tokens)
        if step < steps - 1:
            half = gram - product(update, gram)  # T G
            gram = half - product(half, update.transpose(0, 1))
    return -tokens[-1].mT


def _gaussian(shape: tuple[int, ...], std: float, generator: torch.Generator) -> Tensor:
    return std * torch.randn(
        shape, generator=generator, dtype=torch.float64, device=generator.device
    )


def _require_layers(name: str, matrices: Tensor) -> None:
    if matrices.ndim != 3 or matrices.shape[-1] != matrices.shape[-2] or len(matrices) == 0:
        raise ValueError(
            f"{name} must be square matrices, one per layer, [layers, d, d], "
            f"got shape {list(matrices.shape)}"
        )


def _require_same_shape(name: str, given: Tensor, other_name: str, other: Tensor) -> None:
    if given.shape != other.shape:
        raise ValueError(
            f"{name} must have the shape {list(other.shape)} of {other_name}, "
            f"got {list(given.shape)}"
        )
