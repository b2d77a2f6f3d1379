"""Theorem 5: critical points with transforms of the covariates, its proof, and GD++."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from innerloop import theory
from innerloop.algorithms import GDPlusPlus
from innerloop.models import AHN
from innerloop.papers.ahn2023.settings import (
    SQUARE_ROOT,
    ExactLoss,
    matrices,
    on_the_ray,
    weights13,
)
from innerloop.papers.ahn2023.theorem4 import excess, rates
from innerloop.papers.common import DTYPE, generator, normal
from innerloop.papers.quantity import INEQUALITY, ROUNDING, Cases, Quantity, at_least, measured
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.prompt import Prompt
from innerloop.tasks import LinearRegression

IDENTITY = torch.eye(2, dtype=DTYPE)
STARTS = {
    1: [0.7],
    2: [0.5, 2.0, 0.5],
    3: [0.5, 1.5, 5.0, 0.3, 0.7],
}
"""Steps a_i, then transforms b_i, from where descent on the ray begins."""


def point(task: LinearRegression, vector: Tensor, layers: int) -> tuple[Tensor, Tensor]:
    """(A, B) of S, in the paper's sign, of steps and all transforms but the last."""
    a = matrices(-vector[:layers], task.covariance.inverse())
    return a, matrices(pad(vector[layers:], (0, 1)), IDENTITY)


def best_on_ray(n: int, layers: int) -> tuple[float, Tensor]:
    """Where descent on the exact loss of the ray ends, d = 2."""

    def risk(vector: Tensor) -> Tensor:
        return theory.linear.ray_risk(vector[:layers], n, 2, pad(vector[layers:], (0, 1)))

    return theory.flow.descend(risk, torch.tensor(STARTS[layers], dtype=DTYPE))


@claim(
    "ahn2023/theorem5",
    "With covariate transforms B_i there are critical points with A_i proportional to the inverse "
    "covariance and B_i to the identity, for any number of layers",
    source="Theorem 5, Eq. 14",
    formula=r"\inf_{(A,B) \in \mathcal{S}} \sum_{i=0}^{k} \|\nabla_{A_i} f\|_F^2 + "
    r"\|\nabla_{B_i} f\|_F^2 = 0,\qquad \mathcal{S} = \{A_i = a_i \Sigma^{-1},\; B_i = b_i I\}",
)
def ray_holds_critical_points_with_transforms(scale: Scale) -> Verdict:
    task = on_the_ray(2, 6)
    isotropic_w = LinearRegression(task.covariance, 6)
    ends = {layers: best_on_ray(6, layers) for layers in (1, 2, 3)}
    losses = {layers: ExactLoss.of(task, 3**layers - 1) for layers in ends}

    def norm(case: tuple[ExactLoss, int, Tensor]) -> float:
        """Of the gradient in all entries of all A_i and B_i, symmetric or not."""
        loss, layers, vector = case
        return torch.cat(loss.gradients(*point(task, vector, layers))).norm().item()

    other_w = "L = 2, but w ~ N(0, I)"
    near = "L = 3, the last step 1% longer"
    longer = ends[3][1] * torch.tensor([1.0, 1.0, 1.01, 1.0, 1.0], dtype=DTYPE)
    quantity = "norm of the gradient at the best point of the ray"
    cases = Quantity(quantity, norm, SQUARE_ROOT).of(
        {f"L = {layers}": (losses[layers], layers, ends[layers][1]) for layers in ends}
        | {other_w: (ExactLoss.of(isotropic_w, 8), 2, ends[2][1]), near: (losses[3], 3, longer)}
    )
    risks = Quantity[Tensor](
        "relative difference of the loss of the ray from that of the forward pass",
        lambda v: abs(losses[3](*weights13(*point(task, v, 3))).item() / ends[3][0] - 1),
        ROUNDING,
    ).of({"L = 3": ends[3][1], near: longer})
    return Verdict(
        [
            cases.check("L = 1", unlike=other_w),
            cases.check("L = 2", unlike=other_w),
            cases.check("L = 3", unlike=near),
            risks.check("L = 3", unlike=near),
        ],
        settings={
            "task": task,
            "L = 3: a": [round(v, 5) for v in ends[3][1][:3].tolist()],
            "L = 3: b": [round(v, 5) for v in ends[3][1][3:].tolist()],
        },
        remarks=["The last transform changes nothing and is 0."],
    )


def traces(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)


def directions(task: LinearRegression, gradients: tuple[Tensor, Tensor]) -> Cases:
    """Eqs. 36 and 37 for the four stated R~ and S~, in the sense of Theorem 4's."""

    def slower(case: tuple[str, Tensor, float]) -> float:
        which, direction, factor = case
        size = partial(rates, task) if which == "A" else traces  # Tr(Sigma^-1/2 S Sigma^1/2) = Tr S
        gradient = gradients[0 if which == "A" else 1]
        return excess(gradient, lambda r: matrices(factor * size(r) / task.d, direction))

    inverse = task.covariance.inverse()
    return Quantity("how much slower the loss falls than along any R, S", slower, ROUNDING).of(
        {
            "Eq. 34: R~ = r I": ("A", IDENTITY, 1.0),
            "Eq. 37: S~ = s Sigma^-1": ("B", inverse, 1.0),
            "R~ = r Sigma^-1": ("A", inverse, 1.0),
            "S~ = s I": ("B", IDENTITY, 1.0),
            "S~ = s I without the 1/d in s": ("B", IDENTITY, 2.0),
        }
    )


@claim(
    "ahn2023/theorem5-direction",
    "In the proof: moving in S lowers the loss at least as fast as any direction, and so the flow "
    "in S lowers it as fast as gradient flow",
    source="Proof of Theorem 5, Eqs. 34 to 37",
    formula=r"\frac{d}{dt} A_i = -r_i \Sigma^{-1},\; \frac{d}{dt} B_i = -s_i \Sigma^{-1} "
    r"\;\Rightarrow\; \frac{d}{dt} f \le -\sum_i \|\nabla_{A_i} f\|_F^2 + \|\nabla_{B_i} f\|_F^2",
)
def descent_direction_with_transforms(scale: Scale) -> Verdict:
    task = on_the_ray(2, 6, scale=10.0)
    loss = ExactLoss.of(task, 8)
    transform = torch.tensor([0.8], dtype=DTYPE)

    def given_transform(steps: Tensor) -> Tensor:
        return theory.linear.ray_risk(steps, 6, 2, pad(transform, (0, 1)))

    # The steps that are best for this transform: there only the gradient in B is left.
    _, steps = theory.flow.descend(given_transform, torch.tensor([0.4, 1.5], dtype=DTYPE))
    gradients = loss.gradients(*point(task, torch.cat([steps, transform]), 2))
    generic = loss.gradients(*point(task, torch.tensor([0.4, 1.5, 0.8], dtype=DTYPE), 2))
    moved = directions(task, generic)

    def speed(direction: Tensor) -> float:
        """-df/dt over |grad f|^2, the flow of B along this direction."""
        a, b = gradients
        flow_a = -matrices(rates(task, a), task.covariance.inverse())
        flow_b = -matrices(traces(b), direction)
        fall = -((a * flow_a).sum() + (b * flow_b).sum())
        return (fall / (a.square().sum() + b.square().sum())).item()

    speeds = Quantity(
        "speed of descent over |grad f|^2 (Eq. 35), where the steps are the best for b = 0.8",
        speed,
        at_least(2 - INEQUALITY.bound, INEQUALITY.why),
    ).of(
        {
            "B along -s_i Sigma^-1": task.covariance.inverse(),
            "B along -s_i I": IDENTITY,
            "B along -s_i I / 3": IDENTITY / 3,
        }
    )
    near = "S~ = s I without the 1/d in s"
    return Verdict(
        printed=[
            moved.check("Eq. 34: R~ = r I", unlike=near),
            moved.check("Eq. 37: S~ = s Sigma^-1", unlike=near),
            speeds.check("B along -s_i Sigma^-1", unlike="B along -s_i I / 3"),
        ],
        corrected=[
            moved.check("R~ = r Sigma^-1", unlike=near),
            moved.check("S~ = s I", unlike=near),
            speeds.check("B along -s_i I", unlike="B along -s_i I / 3"),
        ],
        correction=Correction(
            r"\tilde R_i = r_i I,\quad \tilde S_i = s_i \Sigma^{-1},\quad"
            r" \frac{d}{dt} B_i = -s_i \Sigma^{-1}",
            r"\tilde R_i = r_i \Sigma^{-1},\quad \tilde S_i = s_i I,\quad"
            r" \frac{d}{dt} B_i = -s_i I",
            "On the ray the gradient in B is a multiple of I, so s Sigma^-1 has the derivative of "
            "S times Tr(Sigma^-1)/d, and does not lie in S. With s I the proof goes through.",
            Kind.PROOF,
            "Eigenvalues 10 and 3, two layers, b = 0.8 and the steps that are best for it: df/dt = "
            f"-{speeds['B along -s_i Sigma^-1']:.2f} |grad f|^2, where at most -1 is claimed.",
        ),
        settings={"task": task, "directions": 20, "best steps for b = 0.8": steps.tolist()},
    )


def gd_plus_plus(prompt: Prompt, steps: Tensor, rates: Tensor, *, moved_first: bool) -> Tensor:
    """GD++ of von Oswald 2022, in its own form: data are transformed, nothing is learned.

    x_j <- x_j - gamma X X^T x_j and y_j <- y_j - (eta/n) sum_i y_i x_i^T x_j, both from the data
    as they are; the prediction is minus the query's y, which starts at 0. `moved_first` takes the
    step on the covariates as moved.
    """
    n = prompt.n
    x, y = torch.cat([prompt.x, prompt.x_query], 1), torch.cat([prompt.y, 0 * prompt.y_query], 1)
    for eta, gamma in zip(steps.tolist(), rates.tolist(), strict=True):
        new = x - gamma * x @ x[:, :n].mT @ x[:, :n]
        seen = new if moved_first else x
        y = (
            y
            - eta
            / n
            * (seen @ torch.einsum("bnd,bn->bd", seen[:, :n], y[:, :n])[..., None])[..., 0]
        )
        x = new
    return -y[:, n:]


@claim(
    "ahn2023/theorem5-gd++",
    "With isotropic data, A_i = a_i I and B_i = b_i I, the transformer is exactly GD++ of von "
    "Oswald et al. (2022), up to step sizes",
    source="Section 6, after Theorem 5",
    formula=r"\eta_i = -a_i,\qquad \gamma_i = -a_i b_i / n",
)
def equals_gd_plus_plus(scale: Scale) -> Verdict:
    d, n = 3, 6
    a, b = -0.2 + 0.1 * normal(0, 3), 0.5 * normal(1, 3)
    identity = torch.eye(d, dtype=DTYPE)
    isotropic = LinearRegression.isotropic(d, n).sample(32, generator=generator(0))

    def difference(prompt: Prompt, matrix: Tensor, *, moved_first: bool = False) -> float:
        prediction = AHN.predict(*weights13(matrices(a, matrix), matrices(b, identity)), prompt)
        other = gd_plus_plus(prompt, -a, -a * b / n, moved_first=moved_first)
        return ((prediction - other).abs().max() / other.abs().max()).item()

    skewed = on_the_ray(d, n)
    ours = GDPlusPlus((-a).tolist(), b.tolist())(isotropic)
    own = gd_plus_plus(isotropic, -a, -a * b / n, moved_first=False)
    cases = measured(
        "largest relative difference of predictions from GD++, three layers",
        ROUNDING,
        {
            "Sigma = I": difference(isotropic, identity),
            "innerloop's GD++": (ours - own).abs().max() / own.abs().max(),
            "covariates moved before the step": difference(isotropic, identity, moved_first=True),
            "A_i = a_i Sigma^-1, Sigma not a multiple of I": difference(
                skewed.sample(32, generator=generator(0)), skewed.covariance.inverse()
            ),
        },
    )
    return Verdict(
        [
            cases.check("Sigma = I", unlike="covariates moved before the step"),
            cases.check("innerloop's GD++", unlike="A_i = a_i Sigma^-1, Sigma not a multiple of I"),
        ],
        settings={"d": d, "n": n, "layers": 3, "prompts": 32},
    )
