"""Theorem 4: critical points on the ray A_i = a_i Sigma^-1, and two steps of its proof."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.ahn2023.settings import ExactLoss, matrices, on_the_ray
from innerloop.papers.common import DTYPE, normal, square_root
from innerloop.papers.quantity import INEQUALITY, ROUNDING, Quantity, at_least
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.tasks import LinearRegression


@claim(
    "ahn2023/theorem4",
    "Among preconditioners proportional to the inverse covariance there are critical points of the "
    "whole loss, for any number of layers",
    source="Theorem 4",
    formula=r"\inf_{A \in \mathcal{S}} \sum_{i=0}^{k} \|\nabla_{A_i} f(A)\|_F^2 = 0,\qquad"
    r" \mathcal{S} = \{A : A_i = a_i \Sigma^{-1}\}",
)
def ray_holds_critical_points(scale: Scale) -> Verdict:
    """The infimum is attained: at the best steps the gradient in every matrix is zero."""
    sizes = [(2, 5, 1), (2, 5, 2), (2, 5, 3), (3, 7, 2)]
    sizes += scale.pick(smoke=[], quick=[(2, 5, 4)], paper=[(2, 5, 4), (3, 7, 3)])

    def norm(case: tuple[LinearRegression, Tensor]) -> float:
        """Of the gradient in all entries of all A_i, symmetric or not."""
        task, steps = case
        a = matrices(-steps, task.covariance.inverse())
        return ExactLoss.of(task, 2 * len(steps)).gradients(a)[0].norm().item()

    def best(d: int, n: int, layers: int) -> Tensor:
        return theory.linear.untied_optimum(layers, n, d).steps

    isotropic_w = "d = 2, n = 5, L = 2, but w ~ N(0, I)"
    other = "d = 2, n = 5, L = 2, the best steps of n = 6"
    task = on_the_ray(2, 5)
    cases = Quantity("norm of the gradient at the best point of the ray", norm, ROUNDING).of(
        {f"d = {d}, n = {n}, L = {k}": (on_the_ray(d, n), best(d, n, k)) for d, n, k in sizes}
        | {
            isotropic_w: (LinearRegression(task.covariance, 5), best(2, 5, 2)),
            other: (task, best(2, 6, 2)),
        }
    )
    names = list(cases)[: len(sizes)]
    return Verdict(
        [
            cases.check(names[0], unlike=isotropic_w),
            *(cases.check(name, unlike=other) for name in names[1:]),
        ],
        settings={"d = 2": task, "d = 3": on_the_ray(3, 7)},
        remarks=[
            "The infimum is attained, which the paper's footnote leaves open.",
            "G is printed once with I - MX^T A X, and with a plus where it is used.",
        ],
    )


def rates(task: LinearRegression, a: Tensor) -> Tensor:
    """r_i = Tr(Sigma^1/2 R_i Sigma^1/2) of matrices R_i, without the 1/d of Eq. 25."""
    root = square_root(task.covariance)
    return (root @ a @ root).diagonal(dim1=-2, dim2=-1).sum(-1)


def excess(gradient: Tensor, tilde: Callable[[Tensor], Tensor]) -> float:
    """d/dt f along R~ minus along R, over |grad f| |R|: the largest of 20 R, any matrices."""
    rs = normal(0, 20, *gradient.shape)
    slower = max((((tilde(r) - r) * gradient).sum() / r.norm()).item() for r in rs)
    return slower / gradient.norm().item()


@claim(
    "ahn2023/theorem4-direction",
    "In the proof: moving along R~_i = r_i I lowers the loss at least as fast as along any R",
    source="Proof of Theorem 4, Eq. 25 and the line after it",
    formula=r"\frac{d}{dt} f(A + t\tilde R) \le \frac{d}{dt} f(A + tR),\quad "
    r"\tilde R_i = r_i I,\quad r_i = \tfrac{1}{d}\mathrm{Tr}(\Sigma^{1/2} R_i \Sigma^{1/2})",
)
def descent_direction(scale: Scale) -> Verdict:
    task = on_the_ray(2, 5)
    point = matrices(torch.tensor([-0.4, -0.9], dtype=DTYPE), task.covariance.inverse())
    gradient, _ = ExactLoss.of(task, 4).gradients(point)

    def slower(case: tuple[Tensor, float]) -> float:
        direction, factor = case
        return excess(gradient, lambda r: matrices(factor * rates(task, r) / task.d, direction))

    inverse, identity = task.covariance.inverse(), torch.eye(task.d, dtype=DTYPE)
    cases = Quantity("how much slower the loss falls along R~ than along R", slower, ROUNDING).of(
        {
            "r_i I": (identity, 1.0),
            "r_i Sigma^-1": (inverse, 1.0),
            "r_i Sigma^-1 without the 1/d in r_i": (inverse, float(task.d)),
        }
    )
    control = "r_i Sigma^-1 without the 1/d in r_i"
    return Verdict(
        printed=[cases.check("r_i I", unlike=control)],
        corrected=[cases.check("r_i Sigma^-1", unlike=control)],
        correction=Correction(
            r"\tilde R_i = r_i I",
            r"\tilde R_i = r_i \Sigma^{-1}",
            "The gradient on the ray is proportional to Sigma, so the direction in the ray with "
            "the same derivative as R is r Sigma^-1; r I does not even lie in S unless Sigma is a "
            "multiple of I. The later steps of the proof use the right one.",
            Kind.MISPRINT,
            "d = 2, two layers: along r I the loss falls more slowly than along R by "
            f"{cases['r_i I']:.2f} |grad f| |R|.",
        ),
        settings={"task": task, "a": "-0.4, -0.9", "directions R": 20},
    )


@claim(
    "ahn2023/eq26",
    "In the proof: along the flow in S the loss falls at least as fast as along gradient flow",
    source="Proof of Theorem 4, Eq. 26",
    formula=r"\frac{d}{dt} A_i = -r_i \Sigma^{-1},\; r_i = \mathrm{Tr}(\Sigma^{1/2} "
    r"\nabla_{A_i} f\, \Sigma^{1/2}) \;\Rightarrow\; "
    r"\frac{d}{dt} f \le -\sum_i \|\nabla_{A_i} f\|_F^2",
)
def constrained_flow(scale: Scale) -> Verdict:
    def speed(case: tuple[LinearRegression, str]) -> float:
        """-df/dt over the squared norm of the gradient: the smallest of three points of the ray."""
        task, along = case
        direction = torch.eye(2, dtype=DTYPE) if along == "I" else task.covariance.inverse()
        loss, slowest = ExactLoss.of(task, 4), float("inf")
        for seed in range(3):
            steps = -0.5 + 0.3 * normal(seed, 2)
            gradient, _ = loss.gradients(matrices(steps, task.covariance.inverse()))
            flow = -matrices(rates(task, gradient), direction)
            fall = -(gradient * flow).sum() / gradient.square().sum()
            slowest = min(slowest, fall.item())
        return slowest

    small = on_the_ray(2, 5, scale=0.5)
    task = on_the_ray(2, 5)
    tasks = {"Sigma": task, "10 Sigma": on_the_ray(2, 5, scale=10.0), "Sigma / 2": small}
    tolerance = at_least(2 - INEQUALITY.bound, INEQUALITY.why)
    cases = Quantity("speed of descent over |grad f|^2", speed, tolerance).of(
        {name: (task, "Sigma^-1") for name, task in tasks.items()}
        | {"Sigma / 2, along -r_i I": (small, "I")}
    )
    return Verdict(
        [cases.check(name, unlike="Sigma / 2, along -r_i I") for name in tasks],
        settings={"Sigma": task, "points of the ray": 3},
        remarks=[
            "It holds with a factor d to spare: r_i lacks the 1/d of Eq. 25, with which it is an "
            f"equality (measured {cases['Sigma']:.6f}, d = 2).",
        ],
    )
