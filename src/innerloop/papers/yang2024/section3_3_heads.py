"""Section 3.3: the labels without noise (Eq. 26), and why one head is not enough."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from innerloop import theory
from innerloop.models import DictionaryAttention
from innerloop.papers.common import DTYPE, generator
from innerloop.papers.quantity import ROUNDING, Quantity, at_least, at_most
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.yang2024.notation import Notation
from innerloop.papers.yang2024.settings import SMALL, Instance, Sizes, instance, normal
from innerloop.tasks import DictionaryRegression
from innerloop.training import train

FLOOR = at_least(1 - 1e-9, "the floor is a lower bound; 1e-9 is rounding of least squares")


@claim(
    "yang2024/eq26",
    "Without noise and with N >= m examples, the shown labels determine those of all tokens",
    source="Section 3.3, Eq. 26",
    formula=r"\tau = 0,\; N \ge m:\quad y_k = \langle y, Z^\dagger \hat{Z}_{:,k} \rangle",
)
def noiseless(scale: Scale) -> Verdict:
    tokens, features = normal(12, 3, seed=1), normal(12, 4, seed=0)

    def error(case: tuple[int, bool]) -> float:
        shown, library = case
        task = DictionaryRegression(tokens, features, shown, 0.0)
        prompt = task.sample(50, generator=generator(2))
        matrix = torch.linalg.pinv(features[:shown].mT) @ features.mT
        if library:
            matrix = theory.softmax.DictionaryRisk.of(features, shown, 0.0).optimum
        return ((prompt.y @ matrix - prompt.y_query).norm() / prompt.y_query.norm()).item()

    cases = Quantity("relative error of the labels, m = 4", error, ROUNDING).of(
        {
            "N = 4": (4, False),
            "N = 7": (7, False),
            "N = 7, the library's optimum": (7, True),
            "N = 3": (3, False),
        }
    )
    projection = torch.linalg.pinv(features[:7].mT) @ features[:7].mT
    away = (projection - torch.eye(7, dtype=DTYPE)).norm().item()
    return Verdict(
        [cases.check(case, unlike="N = 3") for case in list(cases)[:-1]],
        settings={"m": 4, "K": 12},
        remarks=[
            "Section 3.3 adds that A becomes Z^+ Zhat. As tau -> 0 it does so only on the queries: "
            "its columns for the shown tokens stay the identity, while Z^+ Z is a projection of "
            f"rank m (distance {away:.3f} for N = 7); both give the same labels."
        ],
    )


def nearest_of_one_sign(made: Instance) -> Tensor:
    """For every token the a >= 0 or a <= 0 with the least |Zbar (a - A_k)|: [shown, tokens].

    Every set of entries that are not 0 is tried, which is exact and knows no solver.
    """
    is_ = Notation(made)
    best = torch.zeros_like(is_.a)
    least = (is_.zbar @ is_.a).square().sum(0)
    for used in product((False, True), repeat=is_.n):
        columns = torch.tensor(used)
        if not columns.any():
            continue
        tried = torch.zeros_like(best)
        tried[columns] = torch.linalg.lstsq(is_.zbar[:, columns], is_.zbar @ is_.a).solution
        distance = (is_.zbar @ (tried - is_.a)).square().sum(0)
        one_sign = (tried >= 0).all(0) | (tried <= 0).all(0)
        better = one_sign & (distance < least)
        best[:, better], least = tried[:, better], torch.where(better, distance, least)
    return best


def one_head_of(made: Instance) -> Instance:
    """One head that attends as told, where d = K orthonormal tokens allow every softmax."""
    wanted, v = nearest_of_one_sign(made), made.task.tokens
    logits = torch.zeros(len(v), len(v), dtype=DTYPE)
    logits[: made.task.shown] = (wanted.abs() + 1e-9).log()
    weights = wanted.sum(0, keepdim=True)
    return made.with_weights(weights, (v.mT @ logits @ v)[None])


def orthonormal(sizes: Sizes) -> Instance:
    made = instance(sizes, 0)
    rotation = torch.linalg.qr(normal(sizes.tokens, sizes.tokens, seed=3)).Q
    task = DictionaryRegression(rotation, made.task.features, sizes.shown, sizes.tau)
    return Instance(
        task, DictionaryAttention.gaussian(1, sizes.tokens, sizes.tokens, generator=generator(0))
    )


def trained_one_layer(task: DictionaryRegression, heads: int, seed: int, steps: int) -> float:
    """The gap that training from this start leaves."""
    tokens, d = task.tokens.shape
    made = Instance(task, DictionaryAttention.gaussian(heads, d, tokens, generator=generator(seed)))
    optimizer = torch.optim.Adam(made.model.parameters(), 2e-2)
    train(made.model, made.objective, optimizer, steps=steps, generator=generator(0), every=steps)
    return Notation(made).gap


@claim(
    "yang2024/one-head",
    "One head cannot reach the infimum: its attention weights for a token all have one sign",
    source="Section 3.3, the necessity of multi-head attention",
    formula=r"H = 1:\quad \inf_\theta L - L^\star \ge \frac{1}{2K} \sum_{k=1}^K "
    r"\min_{a \ge 0 \text{ or } a \le 0} \|\bar{Z} (a - A_{:,k})\|_2^2 > 0",
)
def one_head(scale: Scale) -> Verdict:
    steps, starts = scale.pick(smoke=(300, 2), quick=(1000, 3), paper=(10_000, 10))
    free, made = orthonormal(SMALL), instance(SMALL.with_heads(1), 0)
    floor = theory.softmax.one_head_floor(made.risk)
    is_ = Notation(made)

    def by_hand(each: Instance, matrix: Tensor) -> float:
        here = Notation(each)
        return (here.zbar @ (matrix - here.a)).square().sum().item() / (2 * here.k)

    exact = Quantity[Tensor](
        "relative distance of the library's floor from that of all sets of entries",
        lambda matrix: abs(floor / by_hand(made, matrix) - 1),
        at_most(1e-9, "rounding of least squares"),
    ).of(
        {
            "weights of one sign": nearest_of_one_sign(made),
            "A with its negative entries cut off": is_.a.clamp_min(0),
        }
    )
    all_shown = instance(Sizes(SMALL.d, SMALL.features, SMALL.shown, SMALL.shown, SMALL.tau, 1), 0)
    positive = Quantity[Instance](
        "floor of one head relative to the gap at w = 0",
        lambda each: theory.softmax.one_head_floor(each.risk) / Notation(each).gap,
        at_least(1e-9, "a floor at 0 would be rounding, 1e-16 squared; this is far above"),
    ).of({"K = 20, N = 5": made, "K = N, where A = I has one sign": all_shown})
    attained = Notation(one_head_of(free)).gap / theory.softmax.one_head_floor(free.risk)
    single, several = (
        [trained_one_layer(made.task, heads, seed, steps) for seed in range(starts)]
        for heads in (1, 4)
    )
    gaps = Quantity[float]("lowest gap relative to the floor of one head", float, FLOOR).of(
        {
            "one head, trained": min(single) / floor,
            "one head, the best softmaxes on orthonormal tokens": attained,
            "one head, the best softmaxes, 1.01 times the floor": attained / 1.01,
            "four heads, trained": min(several) / floor,
        }
    )
    return Verdict(
        [
            positive.check("K = 20, N = 5", unlike="K = N, where A = I has one sign"),
            exact.check("weights of one sign", unlike="A with its negative entries cut off"),
            gaps.check("one head, trained", unlike="four heads, trained"),
            gaps.check(
                "one head, the best softmaxes on orthonormal tokens",
                unlike="one head, the best softmaxes, 1.01 times the floor",
            ),
        ],
        settings={
            "task": made.task,
            "floor": f"{floor:.4f}; the gap at w = 0 is {is_.gap:.3f}",
            "training": f"Adam, learning rate 0.02, {steps} steps, exact loss, {starts} starts",
            "trained gaps of one head": ", ".join(f"{gap:.3f}" for gap in single),
        },
        remarks=[
            "All tokens share one Q, so that the floor need not be reached; on orthonormal tokens, "
            "as many as dimensions, it is, to any precision."
        ],
    )
