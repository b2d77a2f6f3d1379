"""The paper's symbols as it defines them, from a dictionary and its heads; `theory` is not asked.

Claims state the printed formulas in these symbols, and compare them with gradients, gradient
descent, sampled prompts or the library's own closed forms.
"""

import math
from functools import cached_property

import torch
from torch import Tensor

from innerloop.papers.common import identity, square_root
from innerloop.papers.yang2024.settings import Instance


class Notation:
    """Section 3.1 and appendix A, of an instance as it is now; columns are tokens, as there."""

    def __init__(self, made: Instance) -> None:
        self.made = made
        self.h, self.n = made.model.heads, made.task.shown
        self.k, self.m = made.task.features.shape
        self.noise = self.m * made.task.tau
        self.all_z = made.task.features.mT  # Z-hat: [features, tokens]
        self.z = self.all_z[:, : self.n]

    @cached_property
    def gram(self) -> Tensor:
        """Z^T Z + m tau I."""
        return self.z.mT @ self.z + self.noise * identity(self.n)

    @cached_property
    def zbar(self) -> Tensor:
        """Eq. 12."""
        return square_root(self.gram)

    @cached_property
    def zbar_norm(self) -> float:
        return norm(self.zbar)

    @cached_property
    def f_max(self) -> float:
        """Eq. 12: the largest norm of a column of Z-bar."""
        return self.zbar.norm(dim=0).max().item()

    @cached_property
    def a(self) -> Tensor:
        """Eq. 34."""
        shown = self.noise * torch.eye(self.n, self.k).to(self.z)
        return torch.linalg.solve(self.gram, self.z.mT @ self.all_z + shown)

    @cached_property
    def s(self) -> Tensor:
        """Eq. 28, softmax(V^T Q_h v_k): [heads, shown, tokens]."""
        v = self.made.task.tokens.mT
        return (v[:, : self.n].mT @ self.made.model.q.detach() @ v).softmax(dim=1)

    @cached_property
    def b(self) -> Tensor:
        """Eq. 13: [tokens, shown, heads]."""
        return self.zbar @ self.s.permute(2, 1, 0)

    @cached_property
    def zeta(self) -> float:
        """Eq. 14."""
        return torch.linalg.eigvalsh(self.b @ self.b.mT).min().item()

    @cached_property
    def delta(self) -> Tensor:
        """Eq. 33 and 35, with the Z^T that (33) lacks: [shown, tokens]."""
        return (self.made.model.w.detach()[:, None] * self.s).sum(0) - self.a

    @cached_property
    def gap(self) -> float:
        """L - L* by Eq. 36."""
        return (self.zbar @ self.delta).square().sum().item() / (2 * self.k)

    @cached_property
    def least_gamma(self) -> float:
        """Eq. 15."""
        factor = 128 * math.sqrt(2) / (math.sqrt(2) - 1) * self.zbar_norm**2
        factor *= math.sqrt(self.h) * self.f_max * self.k**1.5 * self.gap
        return self.zeta ** (-5 / 4) * factor**0.5

    def alpha_bar(self, gamma: float) -> float:
        """Eq. 44."""
        scale = 4 * self.zbar_norm / (gamma * self.zeta)
        return math.sqrt(2 * self.k) * scale * math.sqrt(self.gap)


def norm(matrix: Tensor) -> float:
    """The spectral norm."""
    return torch.linalg.matrix_norm(matrix, 2).item()


def ratio_error(pair: tuple[float, float]) -> float:
    """How far the ratio of two numbers is from 1."""
    return abs(pair[0] / pair[1] - 1)


def relative_distance(exact: Tensor, value: Tensor) -> float:
    """In the Euclidean norm."""
    return ((value - exact).norm() / exact.norm()).item()
