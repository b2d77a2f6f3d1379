"""Lemmas 6 and 7: the best X of every component f_j of the loss of one layer."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.functional import hessian

from innerloop.papers.ahn2023.settings import ExactLoss
from innerloop.papers.common import DTYPE
from innerloop.papers.quantity import ROUNDING, Quantity, at_least
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.tasks import LinearRegression

ISOTROPIC = LinearRegression.isotropic(3, 7)
DIAGONAL = LinearRegression(torch.diag(torch.tensor([1.2, 0.5, 0.3], dtype=DTYPE)), 7)


def component(task: LinearRegression, j: int, x: Tensor) -> Tensor:
    """f_j(X) = E (<C, X> + w_j)^2, C = (1/n) sum_i z_i z_i^T, exactly."""
    exact = ExactLoss.of(task, 2, linear_in_w=False)
    tokens = torch.cat([exact.prompt.x, exact.prompt.y.unsqueeze(-1)], dim=-1)
    c = tokens.mT @ tokens / task.n
    # The queries are the columns of Sigma^1/2, here diagonal: y_q of the j-th is Sigma_jj^1/2 w_j.
    w = exact.prompt.y_query / task.covariance.diagonal().sqrt()
    return (exact.weights * ((c * x).sum((-2, -1)) + w[:, j]).square()).sum()


def at_entry(task: LinearRegression, j: int, coefficient: float) -> Tensor:
    """-coefficient E_{d+1,j}."""
    x = torch.zeros(task.d + 1, task.d + 1, dtype=DTYPE)
    x[-1, j] = -coefficient
    return x


def minimises(task: LinearRegression, coefficients: dict[str, list[float]], unlike: str) -> Verdict:
    """f_j is convex in X: a gradient of 0 at the first case is what makes it a minimum."""

    def largest_gradient(values: list[float]) -> float:
        largest = 0.0
        for j, value in enumerate(values):
            x = at_entry(task, j, value).requires_grad_()
            (gradient,) = torch.autograd.grad(component(task, j, x), x)
            largest = max(largest, gradient.abs().max().item())
        return largest

    quantity = "largest entry of the gradient of the convex f_j at X_j, over all j"
    cases = Quantity(quantity, largest_gradient, ROUNDING).of(coefficients)
    return Verdict(
        [cases.check("as printed", unlike=unlike)],
        settings={"task": task},
        remarks=["The lower right entry of C is printed y^T; it is y^2."],
    )


@claim(
    "ahn2023/lemma6",
    "With isotropic covariates each component f_j of the loss is minimised by a multiple of "
    "E_{d+1,j}",
    source="Lemma 6",
    formula=r"X_j = -\frac{1}{\frac{n-1}{n} + (d+2)\frac{1}{n}} E_{d+1,j}",
)
def isotropic_component(scale: Scale) -> Verdict:
    n, d = ISOTROPIC.n, ISOTROPIC.d
    coefficients = {
        "as printed": [1 / ((n - 1) / n + (d + 2) / n)] * d,
        "d + 1 for d + 2": [1 / ((n - 1) / n + (d + 1) / n)] * d,
    }
    return minimises(ISOTROPIC, coefficients, unlike="d + 1 for d + 2")


def lemma7(task: LinearRegression, examples: int = 1) -> list[float]:
    """The coefficients as printed; with another number for the 1 in n + 1, a near miss."""
    eigenvalues, n = task.covariance.diagonal().tolist(), task.n
    return [1 / ((n + examples) / n * v + sum(eigenvalues) / n) for v in eigenvalues]


@claim(
    "ahn2023/lemma7",
    "With covariates of diagonal covariance each component f_j of the loss is minimised by a "
    "multiple of E_{d+1,j}",
    source="Lemma 7",
    formula=r"X_j = -\frac{1}{\frac{n+1}{n}\lambda_j + \frac{1}{n}\sum_k \lambda_k} E_{d+1,j}",
)
def diagonal_component(scale: Scale) -> Verdict:
    coefficients = {
        "as printed": lemma7(DIAGONAL),
        "n for n + 1": lemma7(DIAGONAL, examples=0),
    }
    return minimises(DIAGONAL, coefficients, unlike="n for n + 1")


@claim(
    "ahn2023/lemma7-unique",
    "X_j is the unique global minimum of f_j",
    source="Proof of Theorem 1: step 3 of A.2, step 1 of A.3",
    formula=r"f_j(X) = \min f_j \;\Rightarrow\; X = X_j",
)
def unique_component(scale: Scale) -> Verdict:
    task, size = DIAGONAL, DIAGONAL.d + 1
    stated = at_entry(task, 0, lemma7(task)[0])
    curvature = hessian(lambda x: component(task, 0, x), stated).view(size**2, size**2)
    units = torch.eye(size**2, dtype=DTYPE).view(-1, size, size)

    def least_curvature(directions: Tensor) -> Tensor:
        """On the span of these matrices, relative to the largest curvature of all."""
        basis = torch.linalg.svd(directions.flatten(1), full_matrices=False)
        kept = basis.Vh[basis.S > 1e-8]
        values = torch.linalg.eigvalsh(kept @ curvature @ kept.mT)
        return values[0] / torch.linalg.eigvalsh(curvature)[-1]

    curvatures = Quantity(
        "least curvature of f_0, relative to the largest",
        least_curvature,
        at_least(1e-6, "a minimum is unique where the curvature is positive; rounding is 1e-16"),
    ).of(
        {
            "all matrices": units,
            "symmetric matrices": units + units.mT,
            "skew-symmetric matrices": units - units.mT,
        }
    )
    gaps = Quantity[Tensor](
        "relative gap of f_0 from its value at X_0",
        lambda x: abs((component(task, 0, x) / component(task, 0, stated) - 1).item()),
        ROUNDING,
    ).of({"the transpose of X_0": stated.mT, "1.01 X_0": 1.01 * stated})
    return Verdict(
        printed=[curvatures.check("all matrices", unlike="skew-symmetric matrices")],
        corrected=[
            curvatures.check("symmetric matrices", unlike="skew-symmetric matrices"),
            gaps.check("the transpose of X_0", unlike="1.01 X_0"),
        ],
        correction=Correction(
            r"X_j \text{ is the unique minimum}",
            r"X \text{ is a minimum} \iff X + X^\top = X_j + X_j^\top",
            "C is symmetric, so f_j depends on X only through X + X^T. Theorem 1 does not need "
            "uniqueness.",
            Kind.PROOF,
            f"d = 3: X_0 and its transpose have the same value, to "
            f"{gaps['the transpose of X_0']:.0e} of it.",
        ),
        settings={"task": task, "j": 0},
    )
