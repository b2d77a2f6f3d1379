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
from innerloop.papers.yang2024.notation import Notation, ratio_error, relative_distance
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
        return relative_distance(prompt.y_query, prompt.y @ matrix)

    library = theory.softmax.DictionaryRisk.of(features, 7, 0.0).optimum
    away = (printed(7)[:, :7] - identity(7)).norm().item()
    right = {"N = 4": printed(4), "N = 7": printed(7), "N = 7, the library's optimum": library}
    name, wrong = "relative error of the labels, m = 4", {"N = 3": printed(3)}
    return Verdict(
        checks(name, ROUNDING, right, unlike=wrong, measure=error),
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
    for used in list(product((False, True), repeat=is_.n))[1:]:
        columns, tried = torch.tensor(used), torch.zeros_like(best)
        tried[columns] = torch.linalg.lstsq(is_.zbar[:, columns], is_.zbar @ is_.a).solution
        distance = (is_.zbar @ (tried - is_.a)).square().sum(0)
        better = ((tried >= 0).all(0) | (tried <= 0).all(0)) & (distance < least)
        best[:, better], least = tried[:, better], torch.where(better, distance, least)
    return best


def best_softmaxes() -> Instance:
    """One head at its floor: d = K orthonormal tokens allow every softmax."""
    v = torch.linalg.qr(normal(3, SMALL.tokens, SMALL.tokens)).Q
    task = replace(instance(SMALL, 0).task, tokens=v)
    free = Instance(task, DictionaryAttention(torch.zeros_like(v)[None], torch.zeros_like(v)[:1]))
    wanted, logits = nearest_of_one_sign(free), torch.zeros_like(v)
    logits[: task.shown] = (wanted.abs() + 1e-9).log()
    return free.with_weights(wanted.sum(0, keepdim=True), (v.mT @ logits @ v)[None])


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
    best, made = best_softmaxes(), instance(SMALL.with_heads(1), 0)
    all_shown = instance(replace(SMALL, tokens=SMALL.shown, heads=1), 0)
    is_, floor = Notation(made), theory.softmax.one_head_floor(made.risk)
    attained = Notation(best).gap / theory.softmax.one_head_floor(best.risk)

    def error(matrix: Tensor) -> float:
        by_hand = (is_.zbar @ (matrix - is_.a)).square().sum().item() / (2 * is_.k)
        return ratio_error((floor, by_hand))

    single, several = (
        [trained_one_layer(made.task, heads, seed, steps) for seed in range(starts)]
        for heads in (1, 4)
    )
    exact = "relative distance of the library's floor from that of"
    one_sign = {"weights of one sign, all sets of entries": nearest_of_one_sign(made)}
    cut_off = {"A with its negative entries cut off": is_.a.clamp_min(0)}
    some, every = (
        {name: theory.softmax.one_head_floor(each.risk) / Notation(each).gap}
        for name, each in (("N = 5, K = 20", made), ("N = K, where A = I has one sign", all_shown))
    )
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
            *checks("floor relative to the gap at w = 0", POSITIVE, some, unlike=every),
            *checks(exact, LEAST_SQUARES, one_sign, unlike=cut_off, measure=error),
            *checks("lowest gap relative to the floor", FLOOR, gaps, unlike=near_misses),
        ],
        settings={
            "task": made.task,
            "floor": f"{floor:.4f}; the gap at w = 0 is {is_.gap:.3f}",
            "training": f"Adam, learning rate 0.02, {steps} steps, exact loss, {starts} starts",
            "trained gaps of one head": ", ".join(f"{gap:.3f}" for gap in single),
        },
        remarks=[
            "All tokens share one Q: only orthonormal tokens reach the floor to any precision."
        ],
    )
