"""How the certified rate depends on heads and tokens: section 3.1 after Eq. 18, and section 3.3."""

from bisect import bisect_left
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import mean_log
from innerloop.papers.quantity import at_least, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.papers.yang2024.settings import FALLS, SMALL, Instance, instance, tensor

HEADS = (8, 16, 32, 64, 128)
TOKENS = (10, 20, 40, 80)
TARGET = 1e-3
RATES = "mean log ratio of certified rates of paired starts"
STEPS = "mean log ratio of steps of w to a thousandth of the gap, to those of 8 heads"
SUM = at_least(1 - 1e-9, "Weyl's inequality for the least eigenvalue of a sum; 1e-9 is rounding")


def part(made: Instance, *, heads: int | None = None, tokens: int | None = None) -> Instance:
    """The first heads, or the first tokens of the dictionary: starts are paired."""
    q, w, task = made.model.q.detach(), made.model.w.detach(), made.task
    task = replace(task, tokens=task.tokens[:tokens], features=task.features[:tokens])
    return Instance(task, made.model).with_weights(w[:heads, :tokens], q[:heads])


def certified_rates(over: list[Instance], **kept: int) -> Tensor:
    """eta_w zeta_0 / 2K at the least gamma of (15) and the largest eta_Q of (16), of parts."""
    every = [part(made, **kept).constants() for made in over]
    return tensor(*(c.decrease(c.rates(c.least_gamma)[1]) for c in every))


def steps_needed(made: Instance) -> int:
    """Steps to a thousandth of the gap when only w moves, at the learning rate K/(H |Zbar|^2).

    The residuals Zbar delta_k then shrink by I - B_k B_k^T / (H |Zbar|^2) per step: nothing is run.
    """
    b = made.b
    values, vectors = torch.linalg.eigh(b @ b.mT / (made.h * made.zbar_norm**2))
    start = vectors.mT @ (made.zbar @ made.a).mT.unsqueeze(-1)
    power = start.squeeze(-1).square() / start.square().sum()

    def left(steps: int) -> float:
        return (power * (1 - values) ** (2 * steps)).sum().item()

    enough = 1
    while left(enough) > TARGET:
        enough *= 2
    return bisect_left(range(enough), -TARGET, key=lambda steps: -left(steps))


def repeated(made: Instance, distinct: int) -> Instance:
    """The same number of heads, of which only these many are different."""
    q = made.model.q.detach()
    return made.with_weights(0.0, q[torch.arange(len(q)) % distinct])


def sum_ratio(made: Instance, other: Instance) -> float:
    """zeta_0 of both sets of heads together relative to the sum of the library's for each."""
    one, two = made.model, other.model
    both = made.with_weights(torch.cat([one.w, two.w]).detach(), torch.cat([one.q, two.q]))
    apart = [theory.softmax.smallest_eigenvalue(m.risk, m.softmaxes()) for m in (made, other)]
    return both.zeta / sum(zeta.item() for zeta in apart)


@claim(
    "yang2024/rate-heads",
    "The convergence speed decreases as the number of heads increases",
    source="Section 3.1 after Eq. 18, and section 3.3",
    formula=r"H \mapsto \frac{\eta_w \zeta_0}{2K} \;\text{ decreases}",
)
def rate_against_heads(scale: Scale) -> Verdict:
    starts, seeds, steps = scale.pick(smoke=(60, 2, 50), quick=(50, 5, 500), paper=(200, 10, 3000))
    many = [instance(SMALL.with_heads(HEADS[-1]), seed) for seed in range(starts)]
    rates = {h: certified_rates(many, heads=h) for h in (8, 16, 128)}
    more, some = ({f"{h} heads to 8": rates[h] / rates[8]} for h in (128, 16))
    certified = checks(RATES, FALLS, more, unlike=some, measure=mean_log)
    few = tensor(*(steps_needed(part(made, heads=8)) for made in many))
    six = [repeated(made, 6) for made in many]
    all_, alike = (mean_log(tensor(*map(steps_needed, over)) / few) for over in (many, six))
    near_miss = {"128 heads, of which 6 are different": alike}
    needed = checks(STEPS, FALLS, {"128 heads": all_}, unlike=near_miss)
    halves = [(part(made, heads=2 * h), part(made, heads=h)) for made in many for h in HEADS[:-1]]
    halves += [(repeated(made, 16), repeated(made, 16)) for made in many]
    least = min(sum_ratio(*pair) for pair in halves)
    whole, more_than = {"the sum": least}, {"1.001 times the sum": least / 1.001}
    sums = checks("smallest zeta_0 of two sets of heads relative to", SUM, whole, unlike=more_than)

    def left(made: Instance) -> str:
        """The share of the gap after gradient descent on Q and w, both at K/(H |Zbar|^2)."""
        rate = made.k / (made.h * made.zbar_norm**2)
        first, last = made.descend(steps, rate, rate, every=steps)["gap"]
        return f"{last / first:.3f}"

    of_8, of_128 = (", ".join(left(part(m, heads=h)) for m in many[:seeds]) for h in (8, 128))
    return Verdict(
        printed=certified,
        corrected=[*sums, *needed],
        correction=Correction(
            r"\text{speed decreases as } H \text{ increases}",
            r"\frac{\eta_w \zeta_0}{2K} \le \frac{\zeta_0}{2\sqrt{2} H \|\bar{Z}\|_2^2},\quad "
            r"\zeta_0(H + H') \ge \zeta_0(H) + \zeta_0(H')",
            "In (18) eta_w falls as 1/H because of L, but zeta_0, the least eigenvalue of a sum "
            "over the heads, grows at least in proportion to H, and much faster near H = N: the "
            "certified rate rises until it levels off, and so does that of w with Q at rest.",
            kind=Kind.STATEMENT,
            counterexample=f"{SMALL.with_heads(0)}: the mean logarithm of the certified rate rises "
            f"by {certified[0].measured:.2f} from 8 to 128 heads, that of the steps of w to a "
            f"thousandth of the gap changes by {needed[0].measured:.2f}.",
        ),
        settings={"sizes": SMALL.with_heads(0), "starts": starts},
        remarks=[
            "Where Q is trained too, both at the rate K / (H |Z-bar|^2), the order depends on the "
            f"start: after {steps} steps {of_8} of the gap are left (H = 8) and {of_128} (H = 128)."
        ],
    )


@claim(
    "yang2024/rate-tokens",
    "The convergence speed decreases as the size of the dictionary increases",
    source="Section 3.1, after Eq. 18",
    formula=r"K \mapsto \frac{\eta_w \zeta_0}{2K} \;\text{ decreases}",
)
def rate_against_tokens(scale: Scale) -> Verdict:
    starts = scale.pick(smoke=100, quick=200, paper=1000)
    large = [instance(replace(SMALL, tokens=TOKENS[-1]), seed) for seed in range(starts)]
    rates = {k: certified_rates(large, tokens=k) for k in TOKENS}
    fewer_heads = certified_rates(large, heads=8, tokens=TOKENS[0])
    slower = {f"{after} tokens to {k}": rates[after] / rates[k] for k, after in pairwise(TOKENS)}
    faster = {"16 heads to 8": rates[TOKENS[0]] / fewer_heads}
    return Verdict(
        checks(RATES, FALLS, slower, unlike=faster, measure=mean_log),
        settings={"sizes": str(SMALL).replace(f"K = {SMALL.tokens}, ", ""), "starts": starts},
        remarks=["zeta_0 is a least eigenvalue over K tokens: more can only lower it."],
    )
