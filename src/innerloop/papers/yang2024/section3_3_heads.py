"""Section 3.3: the labels without noise (Eq. 26), and why one head is not enough."""

from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from innerloop import theory
from innerloop.models import DictionaryAttention
from innerloop.papers.common import generator, identity, normal
from innerloop.papers.quantity import ROUNDING, at_least, at_most, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.papers.yang2024 import settings
from innerloop.papers.yang2024.settings import SMALL, Instance, instance
from innerloop.tasks import DictionaryRegression
from innerloop.training import train

FLOOR = at_least(1 - 1e-9, "the floor is a lower bound; 1e-9 is rounding of least squares")
POSITIVE = at_least(1e-9, "a floor at 0 would be rounding, 1e-16 squared; this is far above")
LEAST_SQUARES = at_most(1e-9, "rounding of least squares")


@claim(
    "yang2024/eq26",
    "Without noise and with N >= m examples, the shown labels determine those of all tokens",
    source="Section 3.3, Eq. 26",
    formula=r"\tau = 0,\; N \ge m:\quad y_k = \langle y, Z^\dagger \hat{Z}_{:,k} \rangle",
)
def noiseless(scale: Scale) -> Verdict:
    tokens, features = normal(1, 12, 3), normal(0, 12, 4)

    def printed(shown: int) -> Tensor:
        return torch.linalg.pinv(features[:shown].mT) @ features.mT

    def error(matrix: Tensor) -> float:
        task = DictionaryRegression(tokens, features, len(matrix), 0.0)
        prompt = task.sample(50, generator=generator(2))
        return settings.relative_distance(prompt.y_query, prompt.y @ matrix)

    library = theory.softmax.DictionaryRisk.of(features, 7, 0.0).optimum
    away = (printed(7)[:, :7] - identity(7)).norm().item()
    right = {"N = 4": printed(4), "N = 7": printed(7), "N = 7, the library's optimum": library}
    name, wrong = "relative error of the labels, m = 4", {"N = 3": printed(3)}
    return Verdict(
        checks(name, ROUNDING, right, unlike=wrong, measure=error),
        settings={"m": 4, "K": 12},
        remarks=[
            "As tau -> 0, A becomes Z^+ Zhat, as section 3.3 says, only on the queries: its "
            "columns for the shown tokens stay the identity, and Z^+ Z is a projection of rank m "
            f"(distance {away:.3f} for N = 7); both give the same labels."
        ],
    )


def nearest_of_one_sign(made: Instance) -> Tensor:
    """For every token the a >= 0 or a <= 0 with the least |Zbar (a - A_k)|: [shown, tokens].

    Every set of entries that are not 0 is tried, which is exact and knows no solver.
    """
    zbar, a, best = made.zbar, made.a, torch.zeros_like(made.a)
    least = (zbar @ a).square().sum(0)
    for used in list(product((False, True), repeat=made.n))[1:]:
        columns, tried = torch.tensor(used), torch.zeros_like(best)
        tried[columns] = torch.linalg.lstsq(zbar[:, columns], zbar @ a).solution
        distance = (zbar @ (tried - a)).square().sum(0)
        better = ((tried >= 0).all(0) | (tried <= 0).all(0)) & (distance < least)
        best[:, better], least = tried[:, better], torch.where(better, distance, least)
    return best


def best_softmaxes() -> Instance:
    """One head at its floor: d = K orthonormal tokens allow every softmax."""
    v = torch.linalg.qr(normal(3, SMALL.tokens, SMALL.tokens)).Q
    free = settings.without_weights(
        replace(instance(SMALL, 0).task, tokens=v), torch.zeros_like(v)[None]
    )
    wanted, logits = nearest_of_one_sign(free), torch.zeros_like(v)
    logits[: free.n] = (wanted.abs() + 1e-9).log()
    return free.with_weights(wanted.sum(0, keepdim=True), (v.mT @ logits @ v)[None])


def trained_one_layer(task: DictionaryRegression, heads: int, seed: int, steps: int) -> float:
    """The gap that training from this start leaves."""
    tokens, d = task.tokens.shape
    made = Instance(task, DictionaryAttention.gaussian(heads, d, tokens, generator=generator(seed)))
    optimizer = torch.optim.Adam(made.model.parameters(), 2e-2)
    train(made.model, made.objective, optimizer, steps=steps, generator=generator(0), every=steps)
    return made.gap


@claim(
    "yang2024/one-head",
    "One head cannot reach the infimum: its attention weights for a token all have one sign",
    source="Section 3.3, the necessity of multi-head attention",
    formula=r"H = 1:\quad \inf_\theta L - L^\star \ge \frac{1}{2K} \sum_{k=1}^K "
    r"\min_{a \ge 0 \text{ or } a \le 0} \|\bar{Z} (a - A_{:,k})\|_2^2 > 0",
)
def one_head(scale: Scale) -> Verdict:
    steps, starts = scale.pick(smoke=(300, 2), quick=(1000, 3), paper=(10_000, 10))
    best, made = best_softmaxes(), instance(SMALL.with_heads(1), 0)
    all_shown = instance(replace(SMALL, tokens=SMALL.shown, heads=1), 0)
    floor = theory.softmax.one_head_floor(made.risk)
    attained = best.gap / theory.softmax.one_head_floor(best.risk)

    def error(matrix: Tensor) -> float:
        by_hand = (made.zbar @ (matrix - made.a)).square().sum().item() / (2 * made.k)
        return settings.ratio_error((floor, by_hand))

    single, several = (
        [trained_one_layer(made.task, heads, seed, steps) for seed in range(starts)]
        for heads in (1, 4)
    )
    exact = "relative distance of the library's floor from that of"
    one_sign = {"weights of one sign, all sets of entries": nearest_of_one_sign(made)}
    cut_off = {"A with its negative entries cut off": made.a.clamp_min(0)}
    some = {"N = 5, K = 20": floor / made.gap}
    no_floor = theory.softmax.one_head_floor(all_shown.risk) / all_shown.gap
    none = {"N = K, where A = I has one sign": no_floor}
    gaps = {
        "one head, trained": min(single) / floor,
        "one head, the best softmaxes on orthonormal tokens": attained,
    }
    near_misses = {
        "four heads, trained": min(several) / floor,
        "one head, the best softmaxes, 1.01 times the floor": attained / 1.01,
    }
    return Verdict(
        [
            *checks("floor relative to the gap at w = 0", POSITIVE, some, unlike=none),
            *checks(exact, LEAST_SQUARES, one_sign, unlike=cut_off, measure=error),
            *checks("lowest gap relative to the floor", FLOOR, gaps, unlike=near_misses),
        ],
        settings={
            "task": made.task,
            "training": f"Adam, learning rate 0.02, {steps} steps, exact loss, {starts} starts",
        },
        remarks=[
            f"The floor is {floor:.4f}, the gap at w = 0 {made.gap:.3f}, after training "
            f"{min(single):.3f}. All tokens share one Q: only orthonormal ones reach the floor."
        ],
    )
