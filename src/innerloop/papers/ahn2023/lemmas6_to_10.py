"""Lemmas 6 and 7: the best X of every component f_j of the loss of one layer. Lemmas 8 to 10: the
order of layers, and what the query's label slot does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import permutations

import torch
from torch import Tensor
from torch.autograd.functional import hessian

from innerloop import theory
from innerloop.models import AHN
from innerloop.papers.ahn2023.settings import (
    ExactLoss,
    matrices,
    on_the_ray,
    vector,
    weights9,
    weights13,
)
from innerloop.papers.common import generator, identity, normal, relative, rotated, symmetric
from innerloop.papers.quantity import ROUNDING, at_least, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.tasks import LinearRegression

ISOTROPIC = LinearRegression.isotropic(3, 7)
DIAGONAL = LinearRegression(torch.diag(vector(1.2, 0.5, 0.3)), 7)


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
    x = torch.zeros_like(identity(task.d + 1))
    x[-1, j] = -coefficient
    return x


def minimises(task: LinearRegression, stated: list[float], near: dict[str, list[float]]) -> Verdict:
    """f_j is convex in X: it is a gradient of 0 that makes a minimum."""

    def largest_gradient(coefficients: list[float]) -> float:
        xs = [at_entry(task, j, value).requires_grad_() for j, value in enumerate(coefficients)]
        losses = [component(task, j, x) for j, x in enumerate(xs)]
        return max(g.abs().max().item() for g in torch.autograd.grad(losses, xs))

    name = "largest entry of the gradient of the convex f_j at X_j, over all j"
    return Verdict(
        checks(name, ROUNDING, {"as printed": stated}, unlike=near, measure=largest_gradient),
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
    stated, near = ([1 / ((n - 1) / n + number / n)] * d for number in (d + 2, d + 1))
    return minimises(ISOTROPIC, stated, {"d + 1 for d + 2": near})


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
    return minimises(DIAGONAL, lemma7(DIAGONAL), {"n for n + 1": lemma7(DIAGONAL, examples=0)})


@claim(
    "ahn2023/lemma7-unique",
    "X_j is the unique global minimum of f_j",
    source="Proof of Theorem 1: step 3 of A.2, step 1 of A.3",
    formula=r"f_j(X) = \min f_j \;\Rightarrow\; X = X_j",
)
def unique_component(scale: Scale) -> Verdict:
    f, size = partial(component, DIAGONAL, 0), DIAGONAL.d + 1
    stated = at_entry(DIAGONAL, 0, lemma7(DIAGONAL)[0])
    curvature = hessian(f, stated).view(size**2, size**2)
    units = identity(size**2).view(-1, size, size)

    def least_curvature(directions: Tensor) -> Tensor:
        """On the span of these matrices, relative to the largest curvature of all."""
        basis = torch.linalg.svd(directions.flatten(1), full_matrices=False)
        kept = basis.Vh[basis.S > 1e-8]
        values = torch.linalg.eigvalsh(kept @ curvature @ kept.mT)
        return values[0] / torch.linalg.eigvalsh(curvature)[-1]

    curvatures = partial(
        checks,
        "least curvature of f_0, relative to the largest",
        at_least(1e-6, "a minimum is unique where the curvature is positive; rounding is 1e-16"),
        unlike={"skew-symmetric matrices": units - units.mT},
        measure=least_curvature,
    )
    values = checks(
        "relative gap of f_0 from its value at X_0",
        ROUNDING,
        {"the transpose of X_0": stated.mT},
        unlike={"1.01 X_0": 1.01 * stated},
        measure=lambda x: relative(f(x), f(stated)),
    )
    return Verdict(
        curvatures({"all matrices": units}),
        curvatures({"symmetric matrices": units + units.mT}) + values,
        Correction(
            r"X_j \text{ is the unique minimum}",
            r"X \text{ is a minimum} \iff X + X^\top = X_j + X_j^\top",
            "C is symmetric: f_j sees only X + X^T. Theorem 1 does not need uniqueness.",
            Kind.PROOF,
            f"d = 3: f_0 is {f(stated):.4f} at X_0 and {f(stated.mT):.4f} at its transpose.",
        ),
        settings={"task": DIAGONAL, "j": 0},
    )


@claim(
    "ahn2023/lemma8",
    "On the ray the order of the layers does not matter",
    source="Lemma 8",
    formula=r"f(\ldots, A_i, \ldots, A_j, \ldots) = f(\ldots, A_j, \ldots, A_i, \ldots)"
    r"\quad\text{if } A_\ell = a_\ell \Sigma^{-1}",
)
def order_does_not_matter(scale: Scale) -> Verdict:
    task, steps = on_the_ray(2, 5), vector(0.2, 0.5, 0.9)
    a = matrices(-steps, task.covariance.inverse())
    off, still, loss = a.clone(), torch.zeros_like(a), ExactLoss.of(task, 26)
    off[0] += 0.01 * identity(2).flip(0)

    def spread(case: tuple[Tensor, Tensor]) -> Tensor:
        """Of the loss over all orders of the three layers, relative."""
        p, q = weights13(*case)
        values = torch.stack([loss(p[list(o)], q[list(o)]) for o in permutations(range(3))])
        return (values.max() - values.min()) / values.min()

    near = {
        "one entry of one A_i off the ray by 0.01": (off, still),
        "on the ray, with transforms 0.01 I": (a, still + 0.01 * identity(2)),
    }
    name = "relative spread of the loss over the six orders"
    return Verdict(
        checks(name, ROUNDING, {"on the ray": (a, still)}, unlike=near, measure=spread)
        + checks(
            "relative difference of the loss from E tr prod_i (I - a_i W/n)^2",
            ROUNDING,
            {"n = 5": 5},
            unlike={"n = 6 for 5": 6},
            measure=lambda n: relative(theory.linear.ray_risk(steps, n, 2), loss(*weights9(a))),
        ),
        settings={"task": task, "layers": 3, "a": (-steps).tolist()},
    )


def identity_of_weights13(name: str, gap: Callable[[Tensor, Tensor, Tensor], float]) -> Verdict:
    """Of all tokens from label slot 0 and from label slot y_q, and of y_q."""
    task = LinearRegression(rotated([1.2, 0.8, 0.5, 0.3], seed=0), 9)
    prompt = task.sample(32, generator=generator(0))
    y, z = prompt.y_query[:, 0], prompt.token_matrix()
    with_label = z.clone()
    with_label[:, -1, -1] = y

    def measure(case: tuple[int, float]) -> float:
        """Of so many layers; so much noise in the last column of the Q_i, which (13) has at 0."""
        layers, column = case
        p, q = weights13(-0.2 * symmetric(normal(1, layers, 4, 4)), 0.2 * normal(2, layers, 4, 4))
        q[:, :-1, -1] += column * normal(3, layers, 4)
        return gap(AHN.layers(p, q, z), AHN.layers(p, q, with_label), y)

    cases = {"1 layer": (1, 0.0), "3 layers": (3, 0.0)}
    near = {"3 layers, last column of Q not 0 but 0.01 N(0, 1)": (3, 0.01)}
    return Verdict(
        checks(name, ROUNDING, cases, unlike=near, measure=measure),
        settings={"d": 4, "n": 9, "prompts": 32, "Sigma": "rotated"},
        remarks=["In Lemma 10, C has n + 1 columns and one row; it is printed as (d + 1) x 1."],
    )


@claim(
    "ahn2023/lemma9",
    "With weights (13) the loss is the mean square of the query's last entry when its label is "
    "written into the prompt",
    source="Lemma 9",
    formula=r"f = \mathbf{E}\left[\mathrm{Tr}\left((I-M) \bar Y_k^\top \bar Y_k "
    r"(I-M)\right)\right]",
)
def reformulated_loss(scale: Scale) -> Verdict:
    def gap(z: Tensor, with_label: Tensor, y: Tensor) -> float:
        stated = with_label[:, -1, -1].square()  # I - M leaves the query's entry of Y
        return relative(stated, (AHN.readout_sign * z[:, -1, -1] - y).square())  # Eq. 5

    return identity_of_weights13("largest difference of the two losses of a prompt, relative", gap)


@claim(
    "ahn2023/lemma10",
    "With weights (13), a number added to the query's label slot is added to its output, and "
    "nothing else changes",
    source="Lemma 10",
    formula=r"F_X(X_0, Y_0 + C) = F_X(X_0, Y_0),\qquad F_Y(X_0, Y_0 + C) = F_Y(X_0, Y_0) + C",
)
def label_slot_is_additive(scale: Scale) -> Verdict:
    def gap(z: Tensor, with_label: Tensor, y: Tensor) -> float:
        z[:, -1, -1] += y
        return relative(with_label, z)

    return identity_of_weights13("largest relative change of any entry beyond the stated one", gap)
