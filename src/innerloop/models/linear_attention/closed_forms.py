"""What the exact losses of the forms of weights share."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from innerloop.tasks import LinearRegression, NoClosedForm
from innerloop.tasks.covariates import square_root

Setting = tuple[Float[Tensor, "d d"], int, Float[Tensor, "d d"], float]


def setting(task: LinearRegression) -> Setting:
    """Covariance, n, prior and noise_std, as the functions of `theory.linear` take them."""
    return task.covariance, task.n, task.prior, task.noise_std


def require_masked(masked: bool) -> None:
    if not masked:
        raise NoClosedForm(
            "this loss integrates the query out, which needs a model with masked=True; use the "
            "prompts objective, or estimate it by sampling"
        )


def white_error(
    j: Float[Tensor, "samples d d"], task: LinearRegression
) -> Float[Tensor, "samples d d"]:
    """Sigma^T/2 J Omega^1/2, whose squared Frobenius norm is tr(J Omega J^T Sigma)."""
    root, prior_root = torch.linalg.cholesky(task.covariance), square_root(task.prior)
    return torch.einsum("ji,bjk,kl->bil", root, j, prior_root)


def label_averaged_risk(
    j: Float[Tensor, "batch d d"],
    k: Float[Tensor, "#batch d d"],
    s: Float[Tensor, "batch d d"],
    task: LinearRegression,
) -> Float[Tensor, " batch"]:
    """Of a prediction x_q^T K m, averaged over w and the noise as well as the query:

    tr(J Omega J^T Sigma) + (noise_std^2 / n) tr(K S K^T Sigma),    J = I - K S.
    """
    risk = white_error(j, task).square().sum((-2, -1))
    if task.noise_std > 0:
        noise = (torch.einsum("ij,bjk->bik", task.covariance, k) * (k @ s)).sum((-2, -1))
        risk = risk + task.noise_std**2 / task.n * noise
    return risk
