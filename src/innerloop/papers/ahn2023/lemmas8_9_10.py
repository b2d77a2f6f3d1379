"""Lemmas 8, 9 and 10: the order of layers, and what the query's label slot does."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import torch
from torch import Tensor

from innerloop import theory
from innerloop.models import AHN
from innerloop.papers.ahn2023.settings import ExactLoss, matrices, on_the_ray, weights9, weights13
from innerloop.papers.common import DTYPE, generator, normal, rotated, symmetric
from innerloop.papers.quantity import ROUNDING, Quantity
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.tasks import LinearRegression

STEPS = torch.tensor([0.2, 0.5, 0.9], dtype=DTYPE)


@claim(
    "ahn2023/lemma8",
    "On the ray the order of the layers does not matter",
    source="Lemma 8",
    formula=r"f(\ldots, A_i, \ldots, A_j, \ldots) = f(\ldots, A_j, \ldots, A_i, \ldots)"
    r"\quad\text{if } A_\ell = a_\ell \Sigma^{-1}",
)
def order_does_not_matter(scale: Scale) -> Verdict:
    task = on_the_ray(2, 5)
    loss, transformed = ExactLoss.of(task, 6), ExactLoss.of(task, 26)
    ray = weights9(matrices(-STEPS, task.covariance.inverse()))
    off = torch.zeros(3, 2, 2, dtype=DTYPE)
    off[0, 0, 1] = off[0, 1, 0] = 0.01
    moving = 0.01 * torch.eye(2, dtype=DTYPE).expand(3, 2, 2)

    def spread(case: tuple[ExactLoss, tuple[Tensor, Tensor]]) -> float:
        """Of the loss over all orders of the three layers, relative."""
        exact, (p, q) = case
        orders = [list(order) for order in permutations(range(3))]
        values = torch.stack([exact(p[order], q[order]) for order in orders])
        return ((values.max() - values.min()) / values.min()).item()

    spreads = Quantity("relative spread of the loss over the six orders", spread, ROUNDING).of(
        {
            "on the ray": (loss, ray),
            "one entry of one A_i off the ray by 0.01": (
                loss,
                weights9(ray[1][:, :-1, :-1] + off),
            ),
            "on the ray, with transforms 0.01 I": (
                transformed,
                weights13(ray[1][:, :-1, :-1], moving),
            ),
        }
    )
    values = Quantity[int](
        "relative difference of the loss from E tr prod_i (I - a_i W/n)^2",
        lambda n: abs(theory.linear.ray_risk(STEPS, n, 2).item() / loss(*ray).item() - 1),
        ROUNDING,
    ).of({"n = 5": 5, "n = 6 for 5": 6})
    return Verdict(
        [
            spreads.check("on the ray", unlike="one entry of one A_i off the ray by 0.01"),
            spreads.check("on the ray", unlike="on the ray, with transforms 0.01 I"),
            values.check("n = 5", unlike="n = 6 for 5"),
        ],
        settings={"task": task, "layers": 3, "a": (-STEPS).tolist()},
    )


def two_passes(layers: int, column: float) -> tuple[Tensor, Tensor, Tensor]:
    """All tokens from label slot 0 and from label slot y_q, and y_q; weights (13).

    `column` times a normal vector is put in the last column of the Q_i, which (13) has at 0.
    """
    d, n = 4, 9
    task = LinearRegression(rotated([1.2, 0.8, 0.5, 0.3], seed=0), n)
    prompt = task.sample(32, generator=generator(0))
    p, q = weights13(-0.2 * symmetric(normal(1, layers, d, d)), 0.2 * normal(2, layers, d, d))
    q[:, :-1, -1] += column * normal(3, layers, d)
    z = prompt.token_matrix()
    with_label = z.clone()
    with_label[:, -1, -1] = prompt.y_query[:, 0]
    return AHN.layers(p, q, z), AHN.layers(p, q, with_label), prompt.y_query[:, 0]


CASES = {
    "1 layer": (1, 0.0),
    "3 layers": (3, 0.0),
    "3 layers, last column of Q not 0 but 0.01 N(0, 1)": (3, 0.01),
}


def identity_of_weights13(name: str, gap: Callable[[tuple[int, float]], float]) -> Verdict:
    """An identity of weights (13), measured by gap((layers, column))."""
    cases = Quantity(name, gap, ROUNDING).of(CASES)
    *true, near = CASES
    return Verdict(
        [cases.check(name, unlike=near) for name in true],
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
    def gap(case: tuple[int, float]) -> float:
        z, with_label, y = two_passes(*case)
        masked_out = torch.zeros(z.shape[-1], z.shape[-1], dtype=DTYPE)
        masked_out[-1, -1] = 1  # I - M
        row = with_label[:, -1:, :]
        stated = (masked_out @ row.mT @ row @ masked_out).diagonal(dim1=-2, dim2=-1).sum(-1)
        loss = (AHN.readout_sign * z[:, -1, -1] - y).square()  # Eq. 5
        return ((stated - loss).abs().max() / loss.max()).item()

    return identity_of_weights13("largest difference of the two losses of a prompt, relative", gap)


@claim(
    "ahn2023/lemma10",
    "With weights (13), a number added to the query's label slot is added to its output, and "
    "nothing else changes",
    source="Lemma 10",
    formula=r"F_X(X_0, Y_0 + C) = F_X(X_0, Y_0),\qquad F_Y(X_0, Y_0 + C) = F_Y(X_0, Y_0) + C",
)
def label_slot_is_additive(scale: Scale) -> Verdict:
    def gap(case: tuple[int, float]) -> float:
        z, with_label, y = two_passes(*case)
        expected = z.clone()
        expected[:, -1, -1] += y
        return ((with_label - expected).abs().max() / expected.abs().max()).item()

    return identity_of_weights13("largest relative change of any entry beyond the stated one", gap)
