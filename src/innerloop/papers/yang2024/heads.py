"""How many heads: one is too few, and what more of them do to the rate."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from statistics import median

import torch

from innerloop import theory
from innerloop.papers.common import generator
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Correction, Scale, Verdict
from innerloop.papers.yang2024.settings import SMALL, Sizes, instance
from innerloop.training import train

HEADS = (6, 8, 16, 32, 64, 128)
TOKENS = (10, 20, 40, 80)
TARGET = 1e-3


@claim(
    "yang2024/one-head",
    "One head cannot reach the infimum: its attention weights for a token all have one sign",
    source="Section 3.3, the necessity of multi-head attention",
    formula=r"H = 1:\quad \inf_\theta L - L^\star \ge \frac{1}{2K} \sum_{k=1}^K "
    r"\min_{a \ge 0 \text{ or } a \le 0} \|\bar{Z} (a - A_{:,k})\|_2^2 > 0",
)
def one_head(scale: Scale) -> Verdict:
    steps, starts = scale.pick(smoke=(300, 1), quick=(2000, 3), paper=(10_000, 10))
    enough = instance(SMALL, 0)
    floor = theory.one_head_floor(enough.risk)
    start = enough.risk.gap(torch.zeros_like(enough.risk.optimum)).item()

    def trained_gap(heads: int, seed: int) -> float:
        made = instance(replace(SMALL, heads=heads), 0)
        model = type(made.model).gaussian(heads, SMALL.d, SMALL.tokens, generator=generator(seed))
        optimizer = torch.optim.Adam(model.parameters(), 2e-2)
        train(model, made.objective, optimizer, steps=steps, generator=generator(0), every=steps)
        return made.objective.gap(model).item()

    single = [trained_gap(1, seed) for seed in range(starts)]
    several = trained_gap(SMALL.heads, 0)
    enough.fit_weights()
    return Verdict(
        [
            Check(
                "floor of one head relative to the gap at w = 0",
                floor / start,
                1e-6,
                enough.risk.gap(enough.attention()).item() / start,
                "a floor at 0 would be rounding, 1e-16 squared; a millionth is far above it",
                f"the gap that {SMALL.heads} random heads reach with fitted w",
                at_least=True,
            ),
            Check(
                "lowest trained gap of one head relative to the floor",
                min(single) / floor,
                1.0,
                several / floor,
                "the floor is a lower bound",
                f"{SMALL.heads} heads, trained in the same way",
                at_least=True,
            ),
        ],
        settings={
            "sizes": f"{replace(SMALL, heads=1)}, seed 0",
            "floor": f"{floor:.4f}, by non-negative least squares; the gap at w = 0 is {start:.3f}",
            "training": f"Adam, learning rate 0.02, {steps} steps on the exact loss",
            "trained gaps": ", ".join(f"{gap:.3f}" for gap in single),
            "note": "all tokens share one Q, so that the floor need not be reached",
        },
    )


def certified_decrease(sizes: Sizes, starts: int) -> float:
    """The median share of the gap that a step certainly removes, at the least gamma."""
    rates = []
    for seed in range(starts):
        constants = instance(sizes, seed).constants()
        rates.append(constants.decrease(constants.rates(constants.least_gamma)[1]))
    return median(rates)


def steps_needed(sizes: Sizes, seed: int, limit: int) -> int:
    """Steps of gradient descent until the gap is a thousandth, at the learning rate K/(H |Zbar|^2).

    That rate is the largest which keeps the loss from rising for every Q, up to a factor of 2:
    |B_k|^2 <= H |Zbar|^2.
    """
    made = instance(sizes, seed)
    rate = sizes.tokens / (sizes.heads * made.constants().root_norm ** 2)
    history = made.descend(limit, query_rate=rate, weight_rate=rate, every=10)
    reached = (
        step
        for step, gap in zip(history["step"], history["gap"], strict=True)
        if gap <= TARGET * history["gap"][0]
    )
    return next(reached, limit)


@claim(
    "yang2024/rate-heads",
    "The convergence speed decreases as the number of heads increases",
    source="Section 3.1 after Eq. 18, and section 3.3",
    formula=r"H \mapsto \frac{\eta_w \zeta_0}{2K} \;\text{ decreases}",
)
def rate_against_heads(scale: Scale) -> Verdict:
    starts, seeds, limit = scale.pick(
        smoke=(5, 1, 1500), quick=(25, 3, 4000), paper=(100, 10, 6000)
    )
    rates = [certified_decrease(replace(SMALL, heads=heads), starts) for heads in HEADS]
    by_tokens = [certified_decrease(replace(SMALL, tokens=count), starts) for count in TOKENS]
    few, many = (
        median(steps_needed(replace(SMALL, heads=heads), seed, limit) for seed in range(seeds))
        for heads in (8, 128)
    )
    tokens_few, tokens_many = (
        median(steps_needed(replace(SMALL, tokens=count), seed, limit) for seed in range(seeds))
        for count in (TOKENS[0], TOKENS[-1])
    )
    growth = [after / before for before, after in pairwise(rates)]
    return Verdict(
        printed=[
            Check(
                "certified rate with the most heads relative to that with the fewest",
                rates[-1] / rates[0],
                1.0,
                by_tokens[0] / by_tokens[-1],
                "a decrease means a ratio below 1",
                "fewest tokens relative to most: the rate does fall with K",
            )
        ],
        corrected=[
            Check(
                "smallest ratio of certified rates, more heads to fewer",
                min(growth),
                1.0,
                min(after / before for before, after in pairwise(by_tokens)),
                "an increase means ratios above 1",
                "the same for more tokens to fewer",
                at_least=True,
            ),
            Check(
                "steps to a thousandth of the gap with 128 heads relative to 8",
                many / few,
                1.0,
                tokens_many / tokens_few,
                "faster means a ratio below 1",
                f"{TOKENS[-1]} tokens relative to {TOKENS[0]}",
            ),
        ],
        correction=Correction(
            r"\text{speed decreases as } H \text{ increases}",
            r"\frac{\eta_w \zeta_0}{2K} \;\text{ increases with } H \text{ towards } "
            r"\frac{\zeta_0}{2\sqrt{2} H \|\bar{Z}\|_2^2} \text{ at most}",
            "In (18) the number of heads enters through eta_w, which falls as 1/H because of L, and "
            "through zeta_0, the least eigenvalue of a sum over H heads, B_k B_k^T = sum_h b_h "
            "b_h^T. It grows at least as fast as H once H exceeds N, and much faster near N, where "
            "it starts from almost 0. Median certified rates over "
            f"{starts} starts: "
            + ", ".join(f"{rate:.1e} (H = {h})" for h, rate in zip(HEADS, rates, strict=True))
            + f". Gradient descent itself needs {few:g} steps with 8 heads and {many:g} with 128.",
        ),
        settings={
            "sizes": f"{replace(SMALL, heads=0)}".replace(", H = 0", ""),
            "learning rates of the runs": "eta_Q = eta_w = K / (H |Z-bar|^2)",
            "starts of the runs": seeds,
        },
    )


@claim(
    "yang2024/rate-tokens",
    "The convergence speed decreases as the size of the dictionary increases",
    source="Section 3.1, after Eq. 18",
    formula=r"K \mapsto \frac{\eta_w \zeta_0}{2K} \;\text{ decreases}",
)
def rate_against_tokens(scale: Scale) -> Verdict:
    starts = scale.pick(smoke=15, quick=50, paper=200)
    rates = [certified_decrease(replace(SMALL, tokens=count), starts) for count in TOKENS]
    by_heads = [certified_decrease(replace(SMALL, heads=heads), starts) for heads in HEADS]
    return Verdict(
        [
            Check(
                "largest ratio of certified rates, more tokens to fewer",
                max(after / before for before, after in pairwise(rates)),
                1.0,
                max(after / before for before, after in pairwise(by_heads)),
                "a decrease means ratios below 1",
                "the same for more heads to fewer",
            )
        ],
        settings={
            "sizes": f"{replace(SMALL, tokens=0)}".replace("K = 0, ", ""),
            "K": ", ".join(map(str, TOKENS)),
            "median certified rates": ", ".join(f"{rate:.1e}" for rate in rates),
            "starts": starts,
            "why": "zeta_0 is the least eigenvalue over K tokens",
        },
    )
