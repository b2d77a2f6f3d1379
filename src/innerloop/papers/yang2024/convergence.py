"""Training finds it: Theorems 1 and 2 of Yang et al. (2024).

Gradient descent runs on the exact loss with the two learning rates of Eq. 10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from innerloop import theory
from innerloop.papers.common import ALGEBRA, DTYPE, generator
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Scale, Verdict
from innerloop.papers.yang2024.settings import TINY, Instance, Sizes, instance
from innerloop.tasks import SphericalCoefficients
from innerloop.training import History

SEEDS = 20
"""Starts among which the one with the largest certified rate is taken, before any training."""
WHY_BOUND = "the theorem; t = 0, where both sides are the first gap, is left out"


class Rates(NamedTuple):
    """eta_Q and eta_w."""

    query: float
    weight: float


@dataclass(frozen=True)
class Path:
    """A run of gradient descent, and what Theorem 1 says of it at every step."""

    history: History
    bound: list[float]
    """(1 - eta_w zeta_0 / 2K)^t times the first gap."""
    decrease: float
    zeta: list[float]
    """Relative to zeta_0; Eq. 43b has 1/2."""
    alpha: list[float]
    """The largest |alpha_h| relative to its bound of Eq. 43a."""

    @property
    def gap(self) -> list[float]:
        return self.history["gap"]

    @property
    def worst(self) -> float:
        """The largest gap relative to its bound, from the first step on."""
        return max(gap / bound for gap, bound in zip(self.gap[1:], self.bound[1:], strict=True))


def follow(made: Instance, steps: int, rates: Rates, *, certified: Instance | None = None) -> Path:
    """Descends, and compares with the bounds of the instance (or of another, certified one)."""
    constants = (certified or made).constants()
    query_rate, weight_rate = rates
    gamma = math.sqrt(weight_rate / query_rate) if query_rate > 0 else constants.least_gamma
    decrease = constants.decrease(weight_rate)
    history = made.descend(
        steps,
        query_rate=query_rate,
        weight_rate=weight_rate,
        metrics={
            "zeta": lambda model: made.zeta() / constants.zeta,
            "alpha": lambda model: (
                model.w.detach().norm(dim=1).max().item() / gamma / constants.alpha_bound(gamma)
            ),
        },
    )
    bound = [constants.gap * (1 - decrease) ** step for step in history["step"]]
    return Path(history, bound, decrease, history["zeta"], history["alpha"])


def certified_rates(made: Instance, *, printed: bool = False) -> Rates:
    """The learning rates of Eq. 16 at the least gamma, with L of (61) corrected or (17) printed."""
    constants = made.constants()
    gamma = constants.least_gamma
    query_rate, _ = constants.rates(gamma)
    if printed:
        query_rate = 1 / constants.printed_main_text_smoothness(gamma)
    return Rates(query_rate, gamma**2 * query_rate)


def fastest_start(sizes: Sizes) -> int:
    """The seed with the largest certified rate; known before training."""

    def rate(seed: int) -> float:
        made = instance(sizes, seed)
        return made.constants().decrease(certified_rates(made).weight)

    return max(range(SEEDS), key=rate)


def unstable_run(sizes: Sizes, seed: int) -> Path:
    """Four times the largest step that the quadratic in w allows."""
    made = instance(sizes, seed)
    curvature = torch.linalg.matrix_norm(made.outputs(), 2).max().item() ** 2 / sizes.tokens
    return follow(made, 30, Rates(0.0, 4 * 2 / curvature))


def moving_queries(sizes: Sizes, seed: int, steps: int) -> Path:
    """gamma = 0.01, far below (15): the query matrices move more than the weights."""
    made = instance(sizes, seed)
    constants = made.constants()
    rate = sizes.tokens / (sizes.heads * constants.root_norm**2)
    return follow(made, steps, Rates(1e4 * rate, rate))


@claim(
    "yang2024/theorem1",
    "Gradient descent converges to the infimum of the loss at a linear rate",
    source="Theorem 1, Eq. 15 to 18, and Eq. 43 of its proof",
    formula=r"L(\theta^{(t)}) - \inf L \le \left( 1 - \frac{\eta_w \zeta_0}{2K} \right)^t "
    r"\left( L(\theta^{(0)}) - \inf L \right)",
)
def linear_convergence(scale: Scale) -> Verdict:
    steps, seeds, short = scale.pick(
        smoke=(150, 1, 30), quick=(1000, 5, 100), paper=(3000, 20, 500)
    )
    paths = []
    for sizes in TINY:
        for seed in range(seeds):
            for printed in (False, True):
                made = instance(sizes, seed)
                paths.append(follow(made, short, certified_rates(made, printed=printed)))
    seed = fastest_start(TINY[0])
    made = instance(TINY[0], seed)
    rates = certified_rates(made)
    longest = follow(made, steps, rates)
    paths.append(longest)
    one_head = follow(
        instance(replace(TINY[0], heads=1), seed), steps, rates, certified=instance(TINY[0], seed)
    )
    # Down to where the gap is rounding error of the attention weights.
    last = next((t for t, gap in enumerate(longest.gap) if gap < 1e-28), steps)
    share = 1 - (longest.gap[last] / longest.gap[0]) ** (1 / last)
    return Verdict(
        [
            Check(
                "largest gap relative to its bound, over all steps t >= 1 of all runs",
                max(path.worst for path in paths),
                1.0,
                one_head.worst,
                WHY_BOUND,
                "one head at the same rates, against the same bound",
            ),
            Check(
                "smallest lambda_min(B_k B_k^T) / zeta_0, over all steps of all runs",
                min(min(path.zeta) for path in paths),
                0.5,
                min(moving_queries(TINY[2], fastest_start(TINY[2]), 100).zeta),
                "(43b)",
                "gamma = 0.01, far below (15)",
                at_least=True,
            ),
            Check(
                "largest |alpha_h| relative to its bound, over all steps of all runs",
                max(max(path.alpha) for path in paths),
                1.0,
                max(unstable_run(TINY[0], seed).alpha),
                "(43a)",
                "four times the largest stable learning rate of w",
            ),
        ],
        settings={
            "runs": f"{seeds} starts of {short} steps for each of {'; '.join(map(str, TINY))}; "
            f"rates from (17) as printed and from (61) as corrected",
            "one long run": f"{TINY[0]}, seed {seed}: of {SEEDS} the one with the largest "
            f"certified rate; {steps} steps",
            "certified share of the gap removed per step": f"{longest.decrease:.4f}",
            "measured share per step": f"{share:.4f}",
            "last gap": f"{longest.gap[-1]:.1e}, bound {longest.bound[-1]:.1e}",
            "gamma": f"{math.sqrt(rates.weight / rates.query):.1f}, the least that (15) allows",
        },
    )


@claim(
    "yang2024/theorem2",
    "After training, the transformer repeats the shown labels and predicts the others by ridge "
    "regression",
    source="Theorem 2, Eq. 20 to 22",
    formula=r"\frac{1}{2K} \|\hat{y} - \hat{y}^\star\|_2^2 \le \varepsilon,\quad "
    r"\hat{y}^\star = \begin{bmatrix} y \\ (Z^Q)^\top \hat\lambda \end{bmatrix},\quad "
    r"\hat\lambda = (Z Z^\top + m\tau I)^{-1} Z y",
)
def inference(scale: Scale) -> Verdict:
    sizes, radius, precision, failure = TINY[0], 3.0, 1e-3, 0.1
    prompts = scale.pick(smoke=2_000, quick=20_000, paper=200_000)
    made = instance(sizes, fastest_start(sizes))
    features, n, m = made.task.features, sizes.shown, sizes.features
    labels = torch.randn(50, n, generator=generator(1), dtype=DTYPE)

    def identity_error(penalty: float) -> float:
        coefficients = theory.softmax.ridge_coefficients(features[:n], labels, penalty)
        stated = torch.cat([labels, coefficients @ features[n:].mT], dim=1)
        learned = labels @ torch.linalg.solve(made.risk.gram, made.risk.cross)
        return ((learned - stated).norm() / stated.norm()).item()

    constants, rates = made.constants(), certified_rates(made)
    steps = theory.softmax.iterations(
        constants,
        constants.decrease(rates.weight),
        precision=precision,
        failure=failure,
        radius=radius,
        tau=sizes.tau,
        features=features[:n],
    )
    test = replace(made.task, coefficients=SphericalCoefficients(radius))
    prompt = test.sample(prompts, generator=generator(2))

    def late(model: object) -> float:
        """The share of prompts that are not yet predicted to the precision."""
        error = prompt.y @ (made.attention() - made.risk.optimum)
        return (error.square().mean(1) / 2 > precision).double().mean().item()

    history = made.descend(
        steps, query_rate=rates.query, weight_rate=rates.weight, every=10, metrics={"late": late}
    )
    steps_and_shares = zip(history["step"], history["late"], strict=True)
    enough = next((step for step, share in steps_and_shares if share <= failure), None)
    return Verdict(
        [
            Check(
                "relative distance of A^T y from (22), for arbitrary y",
                identity_error(m * sizes.tau),
                1e-12,
                identity_error(2 * m * sizes.tau),
                ALGEBRA,
                "twice the penalty",
            ),
            Check(
                f"share of {prompts} prompts with |lambda| = {radius:g} beyond the precision after "
                f"T = {steps} steps",
                history["late"][-1],
                failure,
                history["late"][0],
                "delta of the theorem",
                "before training",
            ),
        ],
        settings={
            "sizes": str(sizes),
            "epsilon": precision,
            "delta": failure,
            "B": radius,
            "steps that were enough": "never"
            if enough is None
            else f"{enough} (counted in tens), T is {steps / max(enough, 1):.1f} times as many",
            "note": "the shown labels are repeated with their noise",
        },
    )
