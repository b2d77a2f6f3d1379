"""The bounds behind Theorem 1: Lemmas 7, 8 and 9 and Eq. 62 of appendix B."""

import math

import torch
from torch import Tensor

from innerloop.papers.common import normal
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.yang2024 import settings
from innerloop.papers.yang2024.settings import SMALL, Instance, antipodal, bounds, one_hot


def gradients(made: Instance) -> tuple[Tensor, Tensor]:
    """Of the library's exact loss, in Q and in w."""
    q, w = torch.autograd.grad(made.objective.loss(made.model), [made.model.q, made.model.w])
    return q, w


def largest_weight(made: Instance) -> float:
    """gamma alpha-bar."""
    return made.model.w.detach().abs().max().item()


def random_instances(count: int) -> list[Instance]:
    """Random heads with weights of very different sizes."""
    weights = [normal(1000 + seed, SMALL.heads, SMALL.tokens) for seed in range(count)]
    return [
        settings.instance(SMALL, seed).with_weights(10 ** (seed % 5 - 3) * w)
        for seed, w in enumerate(weights)
    ]


def ratio_42(made: Instance, factor: float = 1.0) -> float:
    bound = 2 * math.sqrt(2) * largest_weight(made) * made.f_max * math.sqrt(made.gap)
    return gradients(made)[0].norm(dim=(1, 2)).max().item() / (factor * bound)


@claim(
    "yang2024/lemma7",
    "The gradient in a query matrix is bounded by the root of the gap",
    source="Lemma 7, Eq. 42",
    formula=r"|\alpha_{h,k}| \le \bar\alpha:\quad \left\| \frac{\partial \ell}{\partial Q_h} "
    r"\right\|_F \le 2\sqrt{2}\, \gamma \bar\alpha \bar{f}_{\max} \sqrt{\ell - L^\star}",
)
def gradient_bound(scale: Scale) -> Verdict:
    draws = scale.pick(smoke=20, quick=100, paper=1000)
    over = [antipodal(1).with_weights(1e-3), *random_instances(draws)]
    return Verdict(
        bounds("(42)", over, ratio_42, {"0.99 sqrt(2) for 2 sqrt(2)": [0.99 / 2]}),
        settings={"sizes": SMALL, "random heads": draws},
        remarks=[
            "Half the constant would do, and no less: unit tokens have sum_j s_j |v_j - v| <= 1 "
            "around their mean v, where (83) has 2, and two opposite tokens with opposite features "
            "come to half of the bound. (56) has z_j for the column of Z-bar.",
        ],
    )


Pair = tuple[Instance, Instance]
"""The same dictionary with two sets of parameters."""


def pairs(count: int) -> list[Pair]:
    """Random ones, where Q moves, or w, or both; the steepest heads, and saturated ones."""
    steepest, saturated = antipodal(3).with_weights(1.0), one_hot(0, 0, 0)
    v = steepest.task.tokens[0]
    moves: list[tuple[Instance, Tensor | float, Tensor | float]] = [
        (steepest, 1e-3 * torch.outer(v, v), 0),
        (saturated, 0, 1.0),
    ]
    for seed, made in enumerate(random_instances(count)):
        q, w = (normal(seed, *parameter.shape) for parameter in made.model.parameters())
        q_scale, w_scale = 10.0 ** (seed % 4 - 3), 10.0 ** (seed % 5 - 3)
        moves.append((made, (seed % 3 != 0) * q_scale * q, (seed % 3 != 1) * w_scale * w))
    return [
        (one, one.with_weights(one.model.w.detach() + w, one.model.q + q)) for one, q, w in moves
    ]


def ratio_50(pair: Pair, factor: float = 1.0) -> float:
    one, other = pair
    distance = (one.model.q - other.model.q).detach().norm(dim=(1, 2))  # [heads]
    left = (one.b - other.b).norm(dim=1)  # [tokens, heads]
    # Where Q rests both sides are 0.
    return (left / (factor * 2 * one.zbar_norm * distance.clamp_min(1e-300))).max().item()


def ratio_51(pair: Pair, first: float = 1.0, last: float = 1.0) -> float:
    one, other = pair
    (q, w), (q_, w_) = ((made.model.q.detach(), made.model.w.detach()) for made in pair)
    queries = 2 * math.sqrt(one.h) * max(map(largest_weight, pair)) * (q - q_).norm()
    right = first * queries + last * math.sqrt(one.h) * (w - w_).norm(dim=0)  # [tokens]
    return ((one.delta - other.delta).norm(dim=0) / right).max().item()


@claim(
    "yang2024/lemma8",
    "The heads' outputs and the residuals are Lipschitz in the parameters",
    source="Lemma 8, Eq. 50 and 51",
    formula=r"\|b^h_k - {b^h_k}'\|_2 \le 2 \|\bar{Z}\|_2 \|Q_h - Q_h'\|_F,\quad "
    r"\|\delta_k - \delta_k'\|_2 \le 2\gamma\sqrt{H}\,\bar\alpha "
    r"\sqrt{\sum_h \|Q_h - Q_h'\|_F^2} + \gamma\sqrt{H} \|\alpha_k - \alpha_k'\|_2",
)
def lipschitz_bounds(scale: Scale) -> Verdict:
    draws = scale.pick(smoke=40, quick=200, paper=2000)
    over = pairs(draws)
    factors = {"0.7 for the 2": [0.35, 1.0], "0.99 times the last term": [1.0, 0.99]}
    return Verdict(
        [
            *bounds("(50)", over, ratio_50, {"0.7 for the 2": [0.35]}),
            *bounds("(51)", over, ratio_51, factors),
        ],
        settings={"sizes": SMALL, "random pairs": draws, "distances": "0.001 to 10 in an entry"},
        remarks=[
            "1/sqrt(2) for the 2 would do in both, and no less: two opposite tokens, attended to "
            "alike. The last term of (51) is tight where the heads are alike and saturated."
        ],
    )


def ratio_52(made: Instance, factor: float = 1.0) -> float:
    return made.b.norm(dim=1).max().item() / (factor * made.zbar_norm)


def ratio_53(made: Instance, weights: float = 1.0, target: float = 1.0) -> float:
    right = weights * made.h * largest_weight(made) + target * settings.norm(made.a)
    return made.delta.norm(dim=0).max().item() / right


@claim(
    "yang2024/lemma9",
    "The heads' outputs and the residuals are bounded",
    source="Lemma 9, Eq. 52 and 53",
    formula=r"\|b^h_k\|_2 \le \|\bar{Z}\|_2,\quad \|\delta_k\|_2 \le \gamma H \bar\alpha + "
    r"\|A\|_2",
)
def size_bounds(scale: Scale) -> Verdict:
    draws = scale.pick(smoke=40, quick=200, paper=2000)
    saturated = [one_hot(0, 0, 0).with_weights(w) for w in (-1e6, -1e-3)]
    over = [*random_instances(draws), *saturated]
    factors = {"0.99 gamma H alpha-bar": [0.99, 1.0], "0.99 |A|": [1.0, 0.99]}
    return Verdict(
        [
            *bounds("(52)", over, ratio_52, {"0.99 |Z-bar|": [0.99]}),
            *bounds("(53)", over, ratio_53, factors),
        ],
        settings={"sizes": SMALL, "random heads": draws},
        remarks=["Both are tight where all heads attend to the same token alone."],
    )


def ratio_62(made: Instance, factor: float = 1.0) -> float:
    """With gamma = 1, which multiplies both sides: alpha is then w."""
    bound = made.zbar_norm * math.sqrt(2 / made.k * made.gap)
    return gradients(made)[1].norm(dim=1).max().item() / (factor * bound)


@claim(
    "yang2024/eq62",
    "The gradient in the weights of a head is bounded by the root of the gap",
    source="Proof of Theorem 1, step 3, Eq. 62",
    formula=r"\left\| \frac{\partial \ell}{\partial \alpha_h} \right\|_2 \le \|\bar{Z}\|_2 "
    r"\gamma \sqrt{\frac{2}{K} (\ell - L^\star)}",
)
def weight_gradient_bound(scale: Scale) -> Verdict:
    draws = scale.pick(smoke=40, quick=200, paper=2000)
    over = [*random_instances(draws), one_hot(0, 1)]
    return Verdict(
        bounds("(62)", over, ratio_62, {"1.98 for the 2": [0.99**0.5]}),
        settings={"sizes": SMALL, "random heads": draws},
        remarks=[
            "Tight where a head attends to one token alone and all residuals lie along its column "
            "of Z-bar. The display before (62) lacks a partial sign.",
        ],
    )
