"""Exact facts about looping on the ray, found by innerloop beside Figures 1 to 4.

The proofs of the best steps are in `theory.linear.looped` and `theory.linear.ray`. A loop expands
where a lambda_max(W/n) > 2, which has a positive probability for every a > 0.
"""

from functools import partial

import torch
from scipy.stats import chi2
from torch import Tensor

from innerloop.papers import Check, Scale, Verdict, claim
from innerloop.papers.common import DTYPE, generator, identity, relative
from innerloop.papers.gatmiry2024.settings import DESCENT, ROTATED, transformer_loss, white
from innerloop.papers.quantity import ROUNDING, SAMPLING, at_least, checks
from innerloop.theory import flow, linear

BEST_STEP = {20: 0.6281, 100: 0.8945}  # of two loops at these n, d = 10


def where_descent_ends(layers: int, loops: int) -> tuple[float, Tensor]:
    """On the expansion in words: the loss of the forward pass there, and the steps."""
    task = ROTATED
    loss = partial(linear.layered_risk, loops=loops, symmetric=True)
    _, steps = flow.descend(
        lambda v: loss(v[:, None, None] * task.prior, task.covariance, task.n, task.prior),
        torch.linspace(0.3, 0.8, layers, dtype=DTYPE),
    )
    steps = steps.sort().values
    return transformer_loss(steps.repeat(loops)[:, None, None] * task.prior, task), steps


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
    found = [where_descent_ends(1, L) for L in depths] + [where_descent_ends(L, 1) for L in depths]

    def gap(n: int) -> float:
        exact = [linear.looped_optimum(L, n, d) for L in depths]
        exact += [linear.untied_optimum(L, n, d) for L in depths]
        return max(
            max(relative(loss, best.risk), relative(steps, best.steps[: len(steps)]) ** 2)
            for (loss, steps), best in zip(found, exact, strict=True)
        )

    def ratio(n: int, loops: int) -> float:
        return linear.looped_optimum(loops, n, 10).risk / linear.untied_optimum(loops, n, 10).risk

    same, different = linear.looped_optimum(2, 20, 10), linear.untied_optimum(2, 20, 10)
    samples = scale.pick(smoke=20_000, quick=200_000, paper=2_000_000)
    drawn = linear.sampled_looped_optimum(2, 20, 10, samples=samples, generator=generator(0))

    def z(n: int) -> float:
        """Of the best step and loss at n among sampled contexts of 20 examples."""
        best = linear.looped_optimum(2, n, 10)
        off = abs(drawn.step - best.steps[0].item()) / drawn.step_error
        return max(off, abs(drawn.risk - best.risk) / drawn.risk_error)

    return Verdict(
        checks(
            f"largest |z| of step and loss that are best on {samples} contexts, n = 20, d = 10",
            SAMPLING,
            {"from those at n = 20": 20},
            unlike={"from those at n = 21": 21},
            measure=z,
        )
        + checks(
            "largest relative gap of losses, and squared one of steps, from where descent ends",
            DESCENT,
            {f"n = {n}": n},
            unlike={f"n = {n + 1}": n + 1},
            measure=gap,
        )
        + checks(
            "smallest ratio of the looped optimum to that of L layers, n = 5, 20, 100, d = 10",
            at_least(1 + 1e-6, "worse means a ratio above 1, by more than rounding"),
            {"L = 2, 3, 5, 10": min(ratio(n, L) for n in (5, 20, 100) for L in (2, 3, 5, 10))},
            unlike={"L = 1": min(ratio(n, 1) for n in (5, 20, 100))},
        ),
        settings={"task": ROTATED, "L": depths},
        remarks=[
            f"For d = 10, n = 20, L = 2 the best steps are {same.steps[0]:.3f}, looped, and "
            f"{different.steps[0]:.2f} and {different.steps[1]:.2f} of two layers."
        ],
    )


def expanding_share(step: float, n: int, samples: int) -> float:
    """Of sampled prompts, d = 10."""
    source, count = generator(n), 0
    for start in range(0, samples, 200_000):
        batch = min(samples - start, 200_000)
        largest = linear.sample_eigenvalues(batch, n, 10, generator=source)[:, -1]
        count += int((step * largest > 2).sum())
    return count / samples


def on_sampled_contexts(samples: int) -> list[Check]:
    """The exact mean loss after one and two loops beside that on sampled contexts."""
    n, step = 100, BEST_STEP[100]
    contexts = linear.sample_eigenvalues(samples, n, 10, generator=generator(1))
    losses = linear.context_losses(step, 2, contexts)[:, 1:]

    def z(n: int) -> float:
        off = losses.mean(0) - linear.loop_risks(step, 2, n, 10)[1:]
        return (off / losses.std(0)).abs().max().item() * samples**0.5

    return checks(
        f"largest |z| of the mean loss after 1 and 2 loops on {samples} prompts of n = {n}",
        SAMPLING,
        {f"from that at n = {n}": n},
        unlike={f"from that at n = {n + 1}": n + 1},
        measure=z,
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
    samples = scale.pick(smoke=20_000, quick=200_000, paper=20_000_000)
    sampled = {20: BEST_STEP[20], 100: 1.15}
    shares = {n: expanding_share(a, n, samples) for n, a in sampled.items()}

    def z(d: int) -> float:
        exact = {n: linear.expanding_probability(a, n, d) for n, a in sampled.items()}
        return max(abs(shares[n] - p) / (p * (1 - p) / samples) ** 0.5 for n, p in exact.items())

    looped = [transformer_loss(0.7 * identity(2).expand(k, 2, 2), white(2, 4)) for k in (1, 2, 3)]
    passes = torch.tensor(looped, dtype=DTYPE)
    line = linear.expanding_probability(1.2, 20, 1)
    risks = [linear.loop_risks(a, 25, n, 10) for n, a in BEST_STEP.items()]
    rare = [linear.expanding_probability(a, n, 10) for n, a in BEST_STEP.items()]
    return Verdict(
        [
            *checks(
                f"largest |z| of the share of {samples} prompts from the probability at",
                SAMPLING,
                {"d = 10": 10},
                unlike={"d = 11": 11},
                measure=z,
            ),
            *on_sampled_contexts(samples),
            *checks(
                "relative difference of the probability at d = 1, a = 1.2 from P(chi^2_k > 2n/a)",
                ROUNDING,
                {"k = n = 20": relative(line, chi2.sf(40 / 1.2, 20))},
                unlike={"k = n + 1": relative(line, chi2.sf(40 / 1.2, 21))},
            ),
            *checks(
                "relative difference of E tr (I - 0.7 W/n)^2L', L' = 1 to 3, from the forward pass",
                ROUNDING,
                {"d = 2, n = 4": relative(linear.loop_risks(0.7, 3, 4, 2)[1:], passes)},
                unlike={"n = 5": relative(linear.loop_risks(0.7, 3, 5, 2)[1:], passes)},
            ),
            *checks(
                "smallest ratio of the mean after 25 loops to its minimum, trained with 2",
                at_least(10, "without bound: by orders of magnitude, and then on"),
                {"n = 20 and 100": min(risk[-1] / risk.min() for risk in risks)},
                unlike={"at the minimum": 1.0},
            ),
        ],
        settings={"d": 10, "a": f"{sampled[20]} at n = 20, 1.15 at n = 100", "samples": samples},
        remarks=[
            f"With the best step of two loops a loop expands on {rare[0]:.2%} of the prompts at "
            f"n = 20, and on a share of {rare[1]:.3g} at n = 100: a test batch holds none."
        ],
    )
