"""Muon for matrices and Adam for everything else, as one optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

# A quintic whose iteration brings singular values from (0, 1] to about 1 (Jordan et al. 2024).
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


class MuonAdam(torch.optim.Optimizer):
    """Matrices move by their momentum with all singular values set to about 1; the rest by Adam.

        M <- momentum M + G,    W <- W - lr sqrt(max(1, rows / columns)) orthogonal(G + momentum M)

    `torch.optim.Muon` takes matrices alone; vectors, norms and whatever `matrix` says no to are
    Adam's here, in the same optimizer, so that one schedule and one checkpoint serve both.

    Args:
        parameters: of the model.
        lr: of matrices; about 0.02 whatever their size.
        adam_lr: of everything else.
        matrix: which parameters are Muon's; by default all with two axes.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float = 0.02,
        *,
        adam_lr: float = 2e-3,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        matrix: Callable[[nn.Parameter], bool] = lambda parameter: parameter.ndim == 2,
    ) -> None:
        every = list(parameters)
        groups: list[dict[str, Any]] = [
            {"params": [p for p in every if matrix(p)], "lr": lr, "muon": True},
            {"params": [p for p in every if not matrix(p)], "lr": adam_lr, "muon": False},
        ]
        defaults = {"momentum": momentum, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__([group for group in groups if group["params"]], defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            move = self._muon if group["muon"] else self._adam
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.sub_(group["lr"] * move(parameter, parameter.grad, group))

    def _muon(self, parameter: nn.Parameter, gradient: Tensor, group: dict[str, Any]) -> Tensor:
        state, momentum = self.state[parameter], group["momentum"]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].mul_(momentum).add_(gradient)
        ahead = gradient + momentum * state["momentum"]
        rows, columns = parameter.shape
        return max(1.0, rows / columns) ** 0.5 * orthogonal(ahead)

    def _adam(self, parameter: nn.Parameter, gradient: Tensor, group: dict[str, Any]) -> Tensor:
        state, (first, second) = self.state[parameter], group["betas"]
        if not state:
            state |= {
                "step": torch.zeros((), dtype=torch.float64),
                "mean": torch.zeros_like(parameter),
                "square": torch.zeros_like(parameter),
            }
        state["step"] += 1
        step = state["step"].item()
        state["mean"].lerp_(gradient, 1 - first)
        state["square"].lerp_(gradient.square(), 1 - second)
        size = (state["square"] / (1 - second**step)).sqrt_().add_(group["eps"])
        return state["mean"] / (1 - first**step) / size


def orthogonal(matrix: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    """About U V^T of the singular value decomposition: singular values between 0.7 and 1.2."""
    wide = matrix if len(matrix) <= matrix.shape[1] else matrix.mT
    x = wide / wide.norm().clamp_min(1e-30)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide is matrix else x.mT
