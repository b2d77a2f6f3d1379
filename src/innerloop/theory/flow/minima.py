"""Local minima of exact functions of a few dozen numbers."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor
from torch.func import jacrev, vmap

from innerloop.theory.flow.gradient_flow import require_start


def descend(
    function: Callable[[Tensor], Tensor], start: Float[Tensor, " p"]
) -> tuple[float, Float[Tensor, " p"]]:
    """The value and the place where BFGS ends; the gradient comes from autograd, in float64.

    The function takes one vector to a scalar, which must be finite at the start.
    """
    require_start(start)
    first = function(start.detach())
    if first.ndim or not bool(first.isfinite()):
        raise ValueError(
            "function must be a finite scalar at the start, got "
            f"{first.tolist()} of shape {list(first.shape)}"
        )

    def value_and_gradient(vector: object) -> tuple[float, object]:
        parameters = torch.as_tensor(vector, dtype=torch.float64).requires_grad_()
        value = function(parameters)
        (gradient,) = torch.autograd.grad(value, parameters)
        return value.item(), gradient.numpy()

    found = minimize(
        value_and_gradient,
        start.detach().numpy(),
        jac=True,
        method="BFGS",
        options={"gtol": 1e-11, "maxiter": 3000},
    )
    return float(found.fun), torch.as_tensor(found.x, dtype=torch.float64)


def least_squares(
    residuals: Callable[[Tensor], Tensor], starts: Float[Tensor, "starts p"], rounds: int = 25
) -> tuple[Float[Tensor, " starts"], Float[Tensor, "starts p"]]:
    """Levenberg-Marquardt from many starts at once: the sums of squares and places where they end.

    Args:
        residuals: from one vector [p] to its residuals.
        rounds: of 20 steps; after each, only those that still improve go on.
    """
    points, damping = starts.clone(), torch.full((len(starts), 1), 1e-2).to(starts)
    values = vmap(residuals)(points).square().sum(-1)
    active = torch.arange(len(starts))
    for _ in range(rounds):
        before = values[active]
        points[active], values[active], damping[active] = _damped_steps(
            residuals, points[active], before, damping[active], steps=20
        )
        active = active[values[active] < (1 - 1e-9) * before]
        if len(active) == 0:
            break
    return values, points


def _damped_steps(
    residuals: Callable[[Tensor], Tensor],
    points: Tensor,
    values: Tensor,
    damping: Tensor,
    steps: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """A step that raises the sum of squares is taken back, and the next one damped more."""
    for _ in range(steps):
        r, jacobian = vmap(residuals)(points), vmap(jacrev(residuals))(points)
        normal = jacobian.mT @ jacobian
        scale = normal.diagonal(dim1=-2, dim2=-1).clamp_min(1e-30)
        damped = normal + torch.diag_embed(damping * scale)
        step = torch.linalg.solve(damped, jacobian.mT @ r.unsqueeze(-1)).squeeze(-1)
        tried = points - step
        tried_values = vmap(residuals)(tried).square().sum(-1)
        better = (tried_values < values).unsqueeze(-1)
        points = torch.where(better, tried, points)
        values = torch.minimum(tried_values, values)
        damping = torch.where(better, damping / 3, damping * 4).clamp(1e-15, 1e15)
    return points, values, damping
