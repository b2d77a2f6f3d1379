"""The sparse weights the theorems are about: layers that are steps of gradient descent."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop import theory
from innerloop.models.linear_attention.closed_forms import (
    label_averaged_risk,
    require_masked,
    setting,
)
from innerloop.models.linear_attention.recursion import descend
from innerloop.models.linear_attention.small_matrices import batch_last, from_left, product
from innerloop.models.linear_attention.weights import (
    LinearAttentionWeights,
    Ray,
    gaussian,
    require_layers,
    require_same_shape,
)
from innerloop.prompt import Prompt
from innerloop.tasks import LinearRegression, NoClosedForm


class DescentWeights(LinearAttentionWeights):
    """Weights with a preconditioner for every layer; what is learned is linear in the labels."""

    preconditioners: nn.Parameter

    @property
    def layers(self) -> int:
        return self.preconditioners.shape[0]

    @property
    def d(self) -> int:
        return self.preconditioners.shape[-1]

    @abstractmethod
    def answer_from_moments(
        self,
        s: Float[Tensor, "batch d d"],
        m: Float[Tensor, "batch d"],
        queries: Float[Tensor, "batch queries d"],
        loops: int,
    ) -> Float[Tensor, "batch queries"]:
        """Predictions from S and m, which are all that these weights see of a Gram matrix."""

    def answer(self, gram: Tensor, queries: Tensor, loops: int) -> Tensor:
        return self.answer_from_moments(gram[:, :-1, :-1], gram[:, :-1, -1], queries, loops)

    def predictions(self, prompt: Prompt, loops: int) -> Tensor:
        s, m = prompt.moments()
        batch = len(m)
        queries = prompt.x_query.expand(batch, -1, -1)
        return self.answer_from_moments(s.expand(batch, -1, -1), m, queries, loops)

    def context_risk(
        self, task: LinearRegression, gram: Tensor, w: Tensor, loops: int
    ) -> Float[Tensor, " batch"]:
        s = gram[:, : self.d, : self.d]
        return label_averaged_risk(*self.operators(s, loops), s, task)

    def ray(self, covariance: Float[Tensor, "d d"]) -> Ray:
        return Ray(torch.einsum("lij,ji->l", self.preconditioners, covariance) / self.d)


class GradientDescentWeights(DescentWeights):
    """P_l = [[0, 0], [0, 1]],  Q_l = [[A_l^T, 0], [0, 0]]   (Ahn 2023, Eq. 9).

    Layer l is the step w <- w - A_l grad R(w) on the prompt (Ahn 2023, Lemma 2).
    """

    def __init__(self, preconditioners: Float[Tensor, "layers d d"]) -> None:
        super().__init__()
        require_layers("preconditioners", preconditioners)
        self.preconditioners = nn.Parameter(preconditioners)

    @classmethod
    def gaussian(
        cls,
        d: int,
        layers: int,
        std: float,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float64,
    ) -> GradientDescentWeights:
        """Independent N(0, std^2) entries."""
        return cls(gaussian((layers, d, d), std, generator, dtype))

    def matrices(self) -> tuple[Tensor, Tensor]:
        q = nn.functional.pad(self.preconditioners.mT, (0, 1, 0, 1))
        p = torch.zeros_like(q)
        p[:, -1, -1] = 1
        return p, q

    def answer_from_moments(self, s: Tensor, m: Tensor, queries: Tensor, loops: int) -> Tensor:
        s, m = batch_last(s), batch_last(m.unsqueeze(2))
        w = from_left(self.preconditioners[0], m)
        for step in range(1, self.layers * loops):
            w = w + from_left(self.preconditioners[step % self.layers], m - product(s, w))
        return product(batch_last(queries), w)[:, 0].mT

    def operators(self, s: Tensor, loops: int) -> tuple[Tensor, Tensor]:
        """As `GDPlusPlusWeights.operators`: K <- K + A - A S K and J = I - K S."""
        s = batch_last(s)
        identity = torch.eye(self.d).to(s).unsqueeze(-1)
        k = torch.zeros_like(identity)
        for step in range(self.layers * loops):
            left = identity - product(s, k) if step else identity
            k = k + from_left(self.preconditioners[step % self.layers], left)
        return (identity - product(k, s)).permute(2, 0, 1), k.permute(2, 0, 1)

    def risk(self, task: LinearRegression, loops: int, *, masked: bool) -> Float[Tensor, ""]:
        require_masked(masked)
        return theory.linear.layered_risk(self.preconditioners, *setting(task), loops=loops)


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
        cls,
        d: int,
        layers: int,
        std: float,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float64,
    ) -> ShiftedGradientDescentWeights:
        """Independent N(0, std^2) entries."""
        return cls(
            gaussian((layers, d, d), std, generator, dtype),
            gaussian((layers, d), std, generator, dtype),
        )

    def matrices(self) -> tuple[Tensor, Tensor]:
        p, q = super().matrices()
        return p + nn.functional.pad(self.shifts.unsqueeze(1), (0, 1, self.d, 0)), q

    def answer_from_moments(self, s: Tensor, m: Tensor, queries: Tensor, loops: int) -> Tensor:
        learned = super().answer_from_moments(s, m, queries, loops)
        return learned + (queries * self.offset(s, loops).unsqueeze(1)).sum(-1)

    def offset(self, s: Float[Tensor, "batch d d"], loops: int) -> Float[Tensor, "batch d"]:
        """What the shifts add to the learned w, whatever the labels: k <- k + A_l S (u_l - k)."""
        s = batch_last(s)
        offset = torch.zeros_like(s[:, :1])  # a column, [d, 1, batch]
        for step in range(self.layers * loops):
            a, u = (t[step % self.layers] for t in (self.preconditioners, self.shifts))
            gradient = product(s, u[:, None, None] - offset)
            offset = offset + from_left(a, gradient)
        return offset[:, 0].mT

    def risk(self, task: LinearRegression, loops: int, *, masked: bool) -> Float[Tensor, ""]:
        require_masked(masked)
        if self.layers > 1 or task.noise_std > 0:
            raise NoClosedForm(
                "a closed form is known for shifted weights of one layer without label noise, got "
                f"layers = {self.layers}, noise_std = {task.noise_std}; use the wishart objective"
            )
        return theory.linear.tied_risk(
            self.preconditioners[0],
            task.covariance,
            task.n,
            task.prior,
            loops=loops,
            shift=self.shifts[0],
        )

    def context_risk(
        self, task: LinearRegression, gram: Tensor, w: Tensor, loops: int
    ) -> Float[Tensor, " batch"]:
        offset = self.offset(gram[:, : self.d, : self.d], loops)  # uncorrelated with a symmetric w
        risk = super().context_risk(task, gram, w, loops)
        return risk + ((offset @ task.covariance) * offset).sum(-1)

    def ray(self, covariance: Float[Tensor, "d d"]) -> Ray:
        if self.layers > 1:
            raise NoClosedForm(f"shifts are known for one layer, looped; got {self.layers} layers")
        return replace(super().ray(covariance), shift=self.shifts[0])


class GDPlusPlusWeights(DescentWeights):
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
        require_layers("preconditioners", preconditioners)
        require_same_shape("transforms", transforms, "preconditioners", preconditioners)
        self.preconditioners = nn.Parameter(preconditioners)
        self.transforms = nn.Parameter(transforms)

    @classmethod
    def gaussian(
        cls,
        d: int,
        layers: int,
        std: float,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float64,
    ) -> GDPlusPlusWeights:
        """Independent N(0, std^2) entries."""
        return cls(
            gaussian((layers, d, d), std, generator, dtype),
            gaussian((layers, d, d), std, generator, dtype),
        )

    def matrices(self) -> tuple[Tensor, Tensor]:
        p = nn.functional.pad(self.transforms, (0, 1, 0, 1))
        p[:, -1, -1] = 1
        return p, nn.functional.pad(self.preconditioners.mT, (0, 1, 0, 1))

    def answer_from_moments(self, s: Tensor, m: Tensor, queries: Tensor, loops: int) -> Tensor:
        columns = batch_last(s), batch_last(m.unsqueeze(2)), batch_last(queries.mT)
        return descend(self.preconditioners, self.transforms, *columns, loops).mT

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
            d = product(moved.transpose(0, 1), from_left(a, moved))
            ds = product(d, s)
            k = k + d - product(ds, k)
            if step < self.layers * loops - 1:
                moved = moved - from_left(b, product(moved, ds.transpose(0, 1)))
        return (identity - product(k, s)).permute(2, 0, 1), k.permute(2, 0, 1)

    def risk(self, task: LinearRegression, loops: int, *, masked: bool) -> Float[Tensor, ""]:
        require_masked(masked)
        return theory.linear.layered_risk(
            self.preconditioners, *setting(task), transforms=self.transforms, loops=loops
        )

    def ray(self, covariance: Float[Tensor, "d d"]) -> Ray:
        transforms = self.transforms.diagonal(dim1=-2, dim2=-1).mean(-1)
        return replace(super().ray(covariance), transforms=transforms)
