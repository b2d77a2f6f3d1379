"""Theorem 4: critical points on the ray A_i = a_i Sigma^-1, two steps of its proof, Lemma 8."""

from collections.abc import Callable
from functools import partial
from itertools import permutations

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.ahn2023 import settings
from innerloop.papers.ahn2023.settings import ExactLoss, matrices, on_the_ray, vector
from innerloop.papers.common import identity, normal, relative, square_root
from innerloop.papers.quantity import FROM_BELOW, ROUNDING, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.tasks import LinearRegression


@claim(
    "ahn2023/theorem4",
    "The whole loss has critical points with A_i = a_i Sigma^-1, for any number of layers",
    source="Theorem 4",
    formula=r"\inf_{A \in \mathcal{S}} \sum_{i=0}^{k} \|\nabla_{A_i} f(A)\|_F^2 = 0,\qquad"
    r" \mathcal{S} = \{A : A_i = a_i \Sigma^{-1}\}",
)
def ray_holds_critical_points(scale: Scale) -> Verdict:
    sizes = [(2, 5, 1), (2, 5, 2), (2, 5, 3), (3, 7, 2)]
    sizes += scale.pick(smoke=[], quick=[(2, 5, 4)], paper=[(2, 5, 4), (3, 7, 3)])

    def norm(case: tuple[LinearRegression, int, int]) -> Tensor:
        """Of the gradient in all entries of all A_i, at the best steps of this n."""
        task, layers, n = case
        steps = theory.linear.untied_optimum(layers, n, task.d).steps
        a = matrices(-steps, task.covariance.inverse())
        return ExactLoss.of(task, 2 * layers).gradients(a)[0].norm()

    task = on_the_ray(2, 5)
    cases = {f"d = {d}, n = {n}, L = {k}": (on_the_ray(d, n), k, n) for d, n, k in sizes}
    near = {
        "d = 2, n = 5, L = 2, but w ~ N(0, I)": (LinearRegression(task.covariance, 5), 2, 5),
        "d = 2, n = 5, L = 2, the best steps of n = 6": (task, 2, 6),
    }
    name = "norm of the gradient at the best point of the ray"
    return Verdict(
        checks(name, ROUNDING, cases, unlike=near, measure=norm),
        settings={"d = 2": task, "d = 3": on_the_ray(3, 7)},
        remarks=[
            "The infimum is attained, which the paper's footnote leaves open.",
            "G is printed once with I - MX^T A X, and with a plus where it is used.",
        ],
    )


def rates(task: LinearRegression, a: Tensor) -> Tensor:
    """r_i = Tr(Sigma^1/2 R_i Sigma^1/2) of matrices R_i, without the 1/d of Eq. 25."""
    root = square_root(task.covariance)
    return settings.traces(root @ a @ root)


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
    inverse = task.covariance.inverse()
    gradient, _ = ExactLoss.of(task, 4).gradients(matrices(vector(-0.4, -0.9), inverse))

    def slower(direction: Tensor) -> float:
        return excess(gradient, lambda r: matrices(rates(task, r) / 2, direction))

    name = "how much slower the loss falls along R~ than along R"
    near = {"r_i Sigma^-1 without the 1/d in r_i": 2 * inverse}
    moved = partial(checks, name, ROUNDING, unlike=near, measure=slower)
    failing = moved({"r_i I": identity(2)})
    return Verdict(
        failing,
        moved({"r_i Sigma^-1": inverse}),
        Correction(
            r"\tilde R_i = r_i I",
            r"\tilde R_i = r_i \Sigma^{-1}",
            "The gradient on the ray is proportional to Sigma: r Sigma^-1 has the derivative of R. "
            "r I is in S only if Sigma is a multiple of I; later steps use the right direction.",
            Kind.MISPRINT,
            f"d = 2, two layers: r I is slower by {failing[0].measured:.2f} |grad f| |R| than R.",
        ),
        settings={"task": task, "a": "-0.4, -0.9", "directions R": 20},
    )


@claim(
    "ahn2023/eq26",
    "In the proof: along the flow in S the loss falls at least as fast as along gradient flow",
    source="Proof of Theorem 4, Eq. 26",
    formula=r"\frac{d}{dt} A_i = -r_i \Sigma^{-1},\; r_i = \mathrm{Tr}(\Sigma^{1/2} \nabla_{A_i} f"
    r"\, \Sigma^{1/2}) \;\Rightarrow\; \frac{d}{dt} f \le -\sum_i \|\nabla_{A_i} f\|_F^2",
)
def constrained_flow(scale: Scale) -> Verdict:
    def speed(case: tuple[float, bool]) -> float:
        """For a multiple of Sigma, along Sigma^-1 or else I: the least of three points."""
        multiple, along_ray = case
        task = on_the_ray(2, 5, multiple)
        inverse, loss = task.covariance.inverse(), ExactLoss.of(task, 4)
        falls = []
        for seed in range(3):
            gradient, _ = loss.gradients(matrices(-0.5 + 0.3 * normal(seed, 2), inverse))
            flow = matrices(rates(task, gradient), inverse if along_ray else identity(2))
            falls.append(((gradient * flow).sum() / gradient.square().sum()).item())
        return min(falls)

    name = "speed of descent over |grad f|^2"
    cases = {"Sigma": (1.0, True), "10 Sigma": (10.0, True), "Sigma / 2": (0.5, True)}
    near = {"Sigma / 2, along -r_i I": (0.5, False)}
    speeds = checks(name, FROM_BELOW, cases, unlike=near, measure=speed)
    return Verdict(
        speeds,
        settings={"Sigma": on_the_ray(2, 5), "points of the ray": 3},
        remarks=[
            "It holds with a factor d to spare: with the 1/d of Eq. 25 in r_i it is an equality "
            f"(measured {speeds[0].measured:.6f}, d = 2).",
        ],
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
        p, q = settings.weights13(*case)
        values = torch.stack([loss(p[list(o)], q[list(o)]) for o in permutations(range(3))])
        return (values.max() - values.min()) / values.min()

    near = {
        "one entry of one A_i off the ray by 0.01": (off, still),
        "on the ray, with transforms 0.01 I": (a, still + 0.01 * identity(2)),
    }
    on_ray = loss(*settings.weights9(a))
    gap, other_n = (relative(theory.linear.ray_risk(steps, n, 2), on_ray) for n in (5, 6))
    orders = "relative spread of the loss over the six orders"
    value = "relative difference of the loss from E tr prod_i (I - a_i W/n)^2"
    return Verdict(
        checks(orders, ROUNDING, {"on the ray": (a, still)}, unlike=near, measure=spread)
        + checks(value, ROUNDING, {"n = 5": gap}, unlike={"n = 6 for 5": other_n}),
        settings={"task": task, "layers": 3, "a": (-steps).tolist()},
    )
