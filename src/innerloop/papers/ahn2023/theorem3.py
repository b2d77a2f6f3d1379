"""Theorem 3: the best two layers on isotropic data."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.ahn2023.settings import ExactLoss, weights9
from innerloop.papers.common import DTYPE, normal, rotated, symmetric
from innerloop.papers.quantity import ROUNDING, Quantity, at_most, measured
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.tasks import LinearRegression

BEST = at_most(
    1e-8, "descent ends at gradients below 1e-8, and the loss is quadratic there: far below this"
)


def ends(
    task: LinearRegression, form: Callable[[Tensor], Tensor], size: int, starts: int
) -> list[tuple[float, Tensor]]:
    """Loss and A_0, A_1 where descent ends, A = form(vector); lowest first. The sign is ours."""

    def loss(vector: Tensor) -> Tensor:
        return theory.linear.layered_risk(
            form(vector.view(2, -1)), task.covariance, task.n, symmetric=True
        )

    centre = 0.5 * torch.eye(task.d, dtype=DTYPE).flatten() if size > task.d else 0.5
    found = [
        theory.flow.descend(loss, (centre + 0.3 * normal(s, 2, size)).flatten())
        for s in range(starts)
    ]
    return sorted(((value, form(v.view(2, -1))) for value, v in found), key=lambda end: end[0])


def sizes(scale: Scale) -> tuple[list[tuple[int, int]], int]:
    """(d, n), and starts of descent for each."""
    return scale.pick(
        smoke=([(2, 4), (2, 20)], 3),
        quick=([(2, 2), (2, 4), (2, 20), (3, 4), (3, 10)], 6),
        paper=([(2, 1), (2, 2), (2, 4), (2, 20), (3, 1), (3, 2), (3, 4), (3, 10)], 10),
    )


def best_symmetric(task: LinearRegression, starts: int) -> list[tuple[float, Tensor]]:
    d = task.d
    return ends(task, lambda v: symmetric(v.view(2, d, d)), d * d, starts)


@claim(
    "ahn2023/theorem3",
    "Two layers on isotropic data: among the best symmetric A_0, A_1 there are diagonal ones",
    source="Theorem 3",
    formula=r"\min_{A_0, A_1 \text{ symmetric}} f = \min_{A_0, A_1 \text{ diagonal}} f",
)
def two_layers_are_diagonal(scale: Scale) -> Verdict:
    settings, starts = sizes(scale)

    def excess(task: LinearRegression) -> float:
        """Of the best diagonal pair over the best symmetric pair that descent finds."""
        diagonal = ends(task, torch.diag_embed, task.d, starts)[0][0]
        return diagonal / best_symmetric(task, starts)[0][0] - 1

    tasks = {f"d = {d}, n = {n}": LinearRegression.isotropic(d, n) for d, n in settings}
    skewed = "d = 2, n = 4, not isotropic: eigenvalues 1 and 0.8"
    quantity = "how much the best diagonal pair is worse than the best symmetric pair found"
    cases = Quantity(quantity, excess, BEST).of(
        {**tasks, skewed: LinearRegression(rotated([1.0, 0.8], seed=0), 4)}
    )
    task = tasks["d = 2, n = 4"]
    value, a = best_symmetric(task, starts)[0]
    loss = ExactLoss.of(task, 4)
    forward = Quantity[Tensor](
        "relative difference of the loss of the forward pass from the one that descent is on",
        lambda weights: abs(loss(*weights9(weights)).item() / value - 1),
        ROUNDING,
    ).of({"the best pair": -a, "the best pair, 1% longer": -1.01 * a})
    return Verdict(
        [
            *(cases.check(name, unlike=skewed) for name in tasks),
            forward.check("the best pair", unlike="the best pair, 1% longer"),
        ],
        settings={"starts of descent": starts, "w": "N(0, I)"},
    )


@claim(
    "ahn2023/theorem3-scalar",
    "Two layers on isotropic data: every minimum that descent over symmetric A_0, A_1 finds is a "
    "pair of multiples of the identity, the best two steps of gradient descent",
    source="Theorem 3, and what is more",
    formula=r"A_0 = -a_0 I,\quad A_1 = -a_1 I",
    ours="measured",
)
def two_layers_are_scalar(scale: Scale) -> Verdict:
    settings, starts = sizes(scale)
    gaps: dict[str, float] = {}
    for d, n in settings:
        found = best_symmetric(LinearRegression.isotropic(d, n), starts)
        for examples, suffix in ((n, ""), (n + 1, ", the best steps of n + 1")):
            steps = theory.linear.untied_optimum(2, examples, d).steps
            pairs = [torch.diag_embed(s[:, None].expand(2, d)) for s in (steps, steps.flip(0))]
            gaps[f"d = {d}, n = {n}{suffix}"] = max(
                min((a - pair).abs().max().item() for pair in pairs) for _, a in found
            )
    cases = measured(
        "largest distance of any end of descent from the best two steps, in either order",
        at_most(1e-3, "a place is known to the root of what its loss is known to, 1e-8, times 10"),
        gaps,
    )
    near = "d = 2, n = 20, the best steps of n + 1"
    return Verdict(
        [cases.check(f"d = {d}, n = {n}", unlike=near) for d, n in settings],
        settings={"starts of descent": starts},
    )
