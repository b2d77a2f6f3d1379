"""Exact facts about looping on the ray, found by innerloop beside Figures 1 to 4.

The best steps: see `theory.linear.looped` and `theory.linear.ray` for the proofs. Prompts on which
a loop expands: I - a W/n has an eigenvalue below -1 if a lambda_max(W/n) > 2, which has a positive
probability for every a > 0, so that E tr (I - a W/n)^{2L'} grows without bound with L'.
"""

import torch
from scipy.stats import chi2
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import DTYPE, generator, identity, relative
from innerloop.papers.gatmiry2024.settings import (
    DESCENT,
    ROTATED,
    looped_loss,
    transformer_loss,
    white,
)
from innerloop.papers.quantity import ROUNDING, SAMPLING, at_least, checks
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Scale, Verdict
from innerloop.theory.linear import (
    expanding_probability,
    loop_risks,
    looped_optimum,
    untied_optimum,
)

BEST_STEP = {20: 0.6281, 100: 0.8945}
"""a* of two loops at these n and d = 10."""


def where_descent_ends(layers: int, loops: int) -> tuple[float, Tensor]:
    """On the expansion in words: the loss of the forward pass there, and the steps."""

    def weights(steps: Tensor) -> Tensor:
        return steps[:, None, None] * ROTATED.prior

    def loss(steps: Tensor) -> Tensor:
        task, a = ROTATED, weights(steps)
        return theory.linear.layered_risk(
            a, task.covariance, task.n, task.prior, loops=loops, symmetric=True
        )

    _, steps = theory.flow.descend(loss, torch.linspace(0.3, 0.8, layers, dtype=DTYPE))
    return transformer_loss(weights(steps).repeat(loops, 1, 1), ROTATED), steps.sort().values


def steps_in_words(n: int, loops: int) -> str:
    one = looped_optimum(loops, n, 10).steps[0]
    different = "/".join(f"{a:.2f}" for a in untied_optimum(loops, n, 10).steps.tolist())
    return f"{one:.3f} and {different} (n = {n}, L = {loops})"


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
    looped = {L: where_descent_ends(1, L) for L in depths}
    layered = {L: where_descent_ends(L, 1) for L in depths}

    def gap(n: int) -> float:
        exact = [(looped[L], looped_optimum(L, n, ROTATED.d)) for L in depths]
        exact += [(layered[L], untied_optimum(L, n, ROTATED.d)) for L in depths]
        losses = [relative(loss, best.risk) for (loss, _), best in exact]
        squares = [relative(steps, best.steps[: len(steps)]) ** 2 for (_, steps), best in exact]
        return max(losses + squares)

    def ratio(depths: tuple[int, ...]) -> float:
        return min(
            looped_optimum(L, n, 10).risk / untied_optimum(L, n, 10).risk
            for n in (5, 20, 100)
            for L in depths
        )

    table = ", ".join(steps_in_words(n, loops) for n in (20, 100) for loops in (2, 3))
    return Verdict(
        checks(
            "largest relative gap of losses, and squared one of steps, from where descent ends",
            DESCENT,
            {f"n = {ROTATED.n}": ROTATED.n},
            unlike={f"n = {ROTATED.n + 1}": ROTATED.n + 1},
            measure=gap,
        )
        + checks(
            "smallest ratio of the looped optimum to that of L layers, n = 5, 20, 100, d = 10",
            at_least(1 + 1e-6, "worse means a ratio above 1, by more than rounding"),
            {"L = 2, 3, 5, 10": (2, 3, 5, 10)},
            unlike={"L = 1": (1,)},
            measure=ratio,
        ),
        settings={"task": ROTATED, "L": ", ".join(map(str, depths))},
        remarks=[f"d = 10, one step looped and different steps: {table}."],
    )


def expanding_share(step: float, n: int, samples: int) -> float:
    """Of sampled prompts, d = 10."""
    source, count = generator(n), 0
    for start in range(0, samples, 200_000):
        batch = min(samples - start, 200_000)
        eigenvalues = theory.linear.sample_eigenvalues(batch, n, 10, generator=source)
        count += int((step * eigenvalues[:, -1] > 2).sum())
    return count / samples


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
    samples = scale.pick(smoke=20_000, quick=200_000, paper=20_000_000)
    sampled = {20: BEST_STEP[20], 100: 1.15}
    shares = {n: expanding_share(a, n, samples) for n, a in sampled.items()}

    def z(d: int) -> float:
        exact = {n: expanding_probability(a, n, d) for n, a in sampled.items()}
        return max(abs(shares[n] - p) / (p * (1 - p) / samples) ** 0.5 for n, p in exact.items())

    losses = [looped_loss(0.7 * identity(2), white(2, 4), loops) for loops in (1, 2, 3)]
    risks = [loop_risks(a, 25, n, 10) for n, a in BEST_STEP.items()]
    rare = {n: expanding_probability(a, n, 10) for n, a in BEST_STEP.items()}
    return Verdict(
        [
            *checks(
                f"largest |z| of the share of {samples} prompts from the probability at",
                SAMPLING,
                {"d = 10": 10},
                unlike={"d = 11": 11},
                measure=z,
            ),
            *checks(
                "relative difference from P(chi^2_k > 2n/a) at d = 1, n = 20, a = 1.2",
                ROUNDING,
                {"k = n": 20},
                unlike={"k = n + 1": 21},
                measure=lambda k: relative(expanding_probability(1.2, 20, 1), chi2.sf(40 / 1.2, k)),
            ),
            *checks(
                "relative difference of E tr (I - 0.7 W/n)^2L' from the forward pass, d = 2, L' <= 3",
                ROUNDING,
                {"n = 4": 4},
                unlike={"n = 5": 5},
                measure=lambda n: relative(
                    loop_risks(0.7, 3, n, 2)[1:], torch.tensor(losses, dtype=DTYPE)
                ),
            ),
            *checks(
                "smallest ratio of the mean after 25 loops to its minimum, trained with 2",
                at_least(10, "without bound: by orders of magnitude, and then on"),
                {"n = 20 and 100": min(r[-1] / r.min() for r in risks)},
                unlike={"at the minimum": 1.0},
            ),
        ],
        settings={"d": 10, "a": f"{sampled[20]} at n = 20, 1.15 at n = 100", "samples": samples},
        remarks=[
            "With the step that is best for two loops a loop expands on a share of "
            f"{rare[20]:.2%} of the prompts at n = 20, and of {rare[100]:.3g} at n = 100: a test "
            "batch of thousands does not hold one.",
        ],
    )
