"""Exact facts about looping on the ray, found by innerloop beside Figures 1 to 4.

The best steps: see `theory.linear.looped` and `theory.linear.ray` for the proofs. Prompts on which
a loop expands: I - a W/n has an eigenvalue below -1 if a lambda_max(W/n) > 2, which has a positive
probability for every a > 0, so that E tr (I - a W/n)^{2L'} grows without bound with L'.
"""

from __future__ import annotations

import torch
from scipy.stats import chi2
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import DTYPE, generator, identity, relative
from innerloop.papers.gatmiry2024.settings import (
    DESCENT,
    ROTATED,
    against_last,
    looped_loss,
    transformer_loss,
    white,
)
from innerloop.papers.quantity import ROUNDING, SAMPLING, Quantity, at_least, measured
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict


@claim(
    "gatmiry2024/optimal-steps",
    "The best step of L loops, and the best L different steps of as many layers, are known "
    "exactly; the latter are the inverse roots of an orthogonal polynomial, all different, so that "
    "looping is worse for two layers or more",
    source="not in the paper; what the trainings of Figures 1, 2 and 4 end at",
    formula=r"a^* = \argmin_a \mathbb{E}\,\mathrm{tr}(I - a \tfrac{1}{n} W)^{2L},\qquad p_L(1/a_l) "
    r"= 0,\quad \mathbb{E}\,\mathrm{tr}\left[\tfrac{1}{n} W\, p_L p_k(\tfrac{1}{n} W)\right] = 0 "
    r"\; (k < L)",
    ours="proved",
)
def optimal_steps(scale: Scale) -> Verdict:
    depths = scale.pick(smoke=(1, 2), quick=(1, 2, 3), paper=(1, 2, 3))
    n, d = ROTATED.n, ROTATED.d

    def found(layers: int, loops: int) -> tuple[float, Tensor]:
        """The loss of the forward pass where descent on the expansion in words ends, and steps."""

        def loss(steps: Tensor) -> Tensor:
            a = steps[:, None, None] * ROTATED.prior
            return theory.linear.layered_risk(
                a, ROTATED.covariance, n, ROTATED.prior, loops=loops, symmetric=True
            )

        _, steps = theory.flow.descend(loss, torch.linspace(0.3, 0.8, layers, dtype=DTYPE))
        a = steps[:, None, None] * ROTATED.prior
        return transformer_loss(a.repeat(loops, 1, 1), ROTATED), steps.sort().values

    looped = {L: found(1, L) for L in depths}
    layered = {L: found(L, 1) for L in depths}

    def gap(length: int) -> float:
        """Of losses and steps from the exact ones at this prompt length; the largest."""
        gaps = []
        for L in depths:
            tied = theory.linear.looped_optimum(L, length, d)
            untied = theory.linear.untied_optimum(L, length, d)
            gaps += [relative(looped[L][0], tied.risk), relative(layered[L][0], untied.risk)]
            gaps += [relative(looped[L][1], tied.steps[:1]) ** 2]
            gaps += [relative(layered[L][1], untied.steps) ** 2]
        return max(gaps)

    same = Quantity[int](
        "largest relative gap of losses, and squared one of steps, from where descent ends",
        gap,
        DESCENT,
    ).of({f"n = {n}": n, f"n = {n + 1}": n + 1})
    sizes = [(20, 10), (100, 10), (5, 10)]
    worse = Quantity[tuple[int, ...]](
        "smallest ratio of the looped optimum to that of L layers, n = 5, 20, 100, d = 10",
        lambda counts: min(
            theory.linear.looped_optimum(L, n, d).risk / theory.linear.untied_optimum(L, n, d).risk
            for n, d in sizes
            for L in counts
        ),
        at_least(1 + 1e-6, "worse means a ratio above 1, by more than rounding"),
    ).of({"L = 2, 3, 5, 10": (2, 3, 5, 10), "L = 1": (1,)})
    table = "; ".join(
        f"n = {n}: "
        + ", ".join(
            f"{theory.linear.looped_optimum(L, n, 10).steps[0].item():.3f} and "
            + "/".join(f"{a:.2f}" for a in theory.linear.untied_optimum(L, n, 10).steps.tolist())
            + f" (L = {L})"
            for L in (2, 3)
        )
        for n in (20, 100)
    )
    return Verdict(
        [
            *against_last(same),
            *against_last(worse),
        ],
        settings={"task": ROTATED, "L": ", ".join(map(str, depths))},
        remarks=[f"d = 10, one step looped and different steps: {table}."],
    )


@claim(
    "gatmiry2024/expanding",
    "On some prompts every further loop makes the error larger; how many there are is known "
    "exactly, and in the end they carry the mean",
    source="not in the paper; what Figure 3 does not show",
    formula=r"P\left(a \lambda_{\max}(\tfrac{1}{n} W) > 2\right) > 0,\qquad \mathbb{E}\,"
    r"\mathrm{tr}(I - a \tfrac{1}{n} W)^{2L'} \to \infty \quad (L' \to \infty)",
    ours="proved",
)
def expanding_prompts(scale: Scale) -> Verdict:
    d = 10
    samples = scale.pick(smoke=20_000, quick=200_000, paper=20_000_000)
    step = {20: 0.6281, 100: 0.8945}  # a* of two loops
    settings = [(20, step[20]), (100, 1.15)]
    shares = {}
    for n, a in settings:
        count, source, left = 0, generator(n), samples
        while left:
            batch = min(left, 200_000)
            eigenvalues = theory.linear.sample_eigenvalues(batch, n, d, generator=source)
            count += int((a * eigenvalues[:, -1] > 2).sum())
            left -= batch
        shares[n] = count / samples

    def z(size: int) -> float:
        """The largest |z| of the sampled shares from the exact probability in d dimensions."""
        exact = {n: theory.linear.expanding_probability(a, n, size) for n, a in settings}
        return max(abs(shares[n] - p) / (p * (1 - p) / samples) ** 0.5 for n, p in exact.items())

    share = Quantity[int](
        f"largest |z| of the share of {samples} prompts, n = 20 and 100, from the probability at",
        z,
        SAMPLING,
    ).of({"d = 10": 10, "d = 11": 11})
    line = Quantity[int](
        "relative difference of the probability at d = 1, n = 20, a = 1.2, from P(chi^2_k > 2n/a)",
        lambda k: relative(theory.linear.expanding_probability(1.2, 20, 1), chi2.sf(40 / 1.2, k)),
        ROUNDING,
    ).of({"k = n": 20, "k = n + 1": 21})
    small, loops = white(2, 4), 3
    means = Quantity[int](
        "relative difference of E tr (I - a W/n)^2L' from the loss of the forward pass, d = 2, "
        "a = 0.7, L' = 1 to 3",
        lambda n: relative(
            theory.linear.loop_risks(0.7, loops, n, 2)[1:],
            torch.tensor(
                [looped_loss(0.7 * identity(2), small, k) for k in range(1, loops + 1)],
                dtype=DTYPE,
            ),
        ),
        ROUNDING,
    ).of({"n = 4": 4, "n = 5": 5})
    risks = {n: theory.linear.loop_risks(step[n], 25, n, d) for n in step}
    growth = measured(
        "smallest ratio of the mean after 25 loops to its minimum, trained with 2",
        at_least(10, "without bound: by orders of magnitude, and then on"),
        {
            "n = 20 and 100": min((r[-1] / r.min()).item() for r in risks.values()),
            "at the minimum": 1.0,
        },
    )
    rare = {n: theory.linear.expanding_probability(a, n, d) for n, a in step.items()}
    return Verdict(
        [
            *against_last(share),
            *against_last(line),
            *against_last(means),
            *against_last(growth),
        ],
        settings={"d": d, "a": f"{step[20]:.4f} at n = 20, 1.15 at n = 100", "samples": samples},
        remarks=[
            "With the step that is best for two loops a loop expands on a share of "
            f"{rare[20]:.2%} of the prompts at n = 20, and of {rare[100]:.3g} at n = 100: a test "
            "batch of thousands does not hold one.",
        ],
    )
