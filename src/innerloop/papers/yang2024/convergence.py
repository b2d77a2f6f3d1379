"""Training finds it: Proposition 1 and Theorems 1 and 2 of Yang et al. (2024).

Gradient descent runs on the exact loss with the two learning rates of Eq. 10.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop import theory
from innerloop.papers.common import ALGEBRA, DTYPE, generator
from innerloop.papers.registry import claim
from innerloop.papers.verdict import Check, Correction, Scale, Verdict
from innerloop.papers.yang2024.settings import TINY, Instance, Sizes, instance
from innerloop.tasks import SphericalCoefficients
from innerloop.training import DictionaryExact, History

SEEDS = 20
"""Starts among which the one with the largest certified rate is taken, before any training."""


def rank_deficit(made: Instance) -> int:
    """N minus the least numerical rank of B_k over the tokens."""
    b = made.risk.root @ made.softmaxes().permute(2, 1, 0)  # [tokens, shown, heads]
    return made.task.shown - int(torch.linalg.matrix_rank(b).min())


def on_tokens(sizes: Sizes, tokens: Tensor) -> Instance:
    """An instance on given tokens, which may be equal on purpose."""
    made = instance(sizes, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        task = replace(made.task, tokens=tokens)
    return Instance(task, made.model, DictionaryExact(task))


def smallest_singular_value(made: Instance) -> float:
    return torch.linalg.svdvals(made.softmaxes().permute(2, 1, 0))[:, -1].min().item()


@claim(
    "yang2024/proposition1",
    "With H >= N heads and Gaussian query matrices, every B_k has full row rank almost surely",
    source="Proposition 1",
    formula=r"H \ge N,\; Q_h(i,j) \sim \mathcal{N}(0, \beta^2):\quad \mathrm{rank}\, B_k = N "
    r"\;\text{ for all } k",
)
def full_rank(scale: Scale) -> Verdict:
    seeds = scale.pick(smoke=2, quick=10, paper=50)
    shapes = (
        Sizes(8, 6, 5, 20, 0.05, 5),
        Sizes(2, 6, 6, 12, 0.05, 6),
        Sizes(100, 20, 30, 60, 0.01, 30),
    )
    made = [instance(sizes, seed) for sizes in shapes for seed in range(seeds)]
    fewer = [
        instance(replace(sizes, heads=sizes.heads - 1), seed)
        for sizes in shapes
        for seed in range(seeds)
    ]
    one_hot = on_tokens(Sizes(12, 6, 6, 12, 0.05, 6), torch.eye(12, dtype=DTYPE))
    doubled = instance(shapes[0], 0).task.tokens.clone()
    doubled[3] = doubled[1]
    equal = [rank_deficit(on_tokens(replace(shapes[0], heads=h), doubled)) for h in (5, 10, 64)]
    deficit = max(rank_deficit(each) for each in [*made, one_hot])
    why = "full rank allows none; singular values below max(N, H) roundings of the largest are 0"
    return Verdict(
        [
            Check(
                "largest N - rank B_k over tokens and starts, H = N",
                deficit,
                0,
                min(rank_deficit(each) for each in fewer),
                why,
                "H = N - 1 heads",
            ),
            Check(
                "the same, where the prompt's tokens are distinct",
                deficit,
                0,
                min(equal),
                why,
                "two equal tokens in the prompt, H = N, 2 N and 64",
            ),
        ],
        settings={
            "sizes": "; ".join(map(str, shapes)),
            "starts of each": seeds,
            "smallest singular value of the softmaxes": ", ".join(
                f"{min(map(smallest_singular_value, made[i * seeds : (i + 1) * seeds])):.1e}"
                for i in range(len(shapes))
            ),
            "more than stated": "distinct tokens are enough, Assumption 3 is not needed: a "
            "Gaussian Q is as likely as any rotation of it, and some rotation of distinct tokens "
            "satisfies the assumption. One-hot tokens, which violate it, are among the starts",
        },
    )


@claim(
    "yang2024/unit-tokens",
    "Tokens drawn from a standard Gaussian, as in the experiments, let training start at full rank",
    source="Section 4, Setup, with Proposition 1",
    formula=r"v_k \sim \mathcal{N}(0, I_d):\quad \zeta_0 = \min_k \lambda_{\min}(B_k B_k^\top) > 0",
)
def unit_tokens(scale: Scale) -> Verdict:
    sizes = scale.pick(
        smoke=Sizes(100, 20, 30, 60, 0.01, 64),
        quick=Sizes(100, 20, 30, 200, 0.01, 64),
        paper=Sizes(100, 20, 30, 200, 0.01, 64),
    )
    unit, raw = instance(sizes, 0), instance(sizes, 0, unit=False)
    spread = {
        name: torch.std(made.task.tokens[: sizes.shown] @ made.model.q[0] @ made.task.tokens.mT)
        for name, made in (("unit", unit), ("raw", raw))
    }
    few = instance(replace(sizes, heads=sizes.shown - 1), 0)
    why = "full rank allows none; singular values below 64 roundings of the largest are 0"
    return Verdict(
        printed=[
            Check(
                "N - rank B_k, the largest over tokens, Gaussian tokens",
                rank_deficit(raw),
                0,
                rank_deficit(instance(replace(sizes, heads=sizes.shown - 1), 0, unit=False)),
                why,
                "H = N - 1 heads",
            )
        ],
        corrected=[
            Check(
                "N - rank B_k, the largest over tokens, tokens of norm 1",
                rank_deficit(unit),
                0,
                rank_deficit(few),
                why,
                "H = N - 1 heads",
            )
        ],
        correction=Correction(
            r"v_k \sim \mathcal{N}(0, I_d)",
            r"\|v_k\|_2 = 1",
            f"In d = {sizes.d} dimensions Gaussian tokens have norm {sizes.d**0.5:.0f}, and the "
            f"logits v_i^T Q v_k the standard deviation {spread['raw']:.0f}: every softmax is one "
            f"token, and zeta_0 is {raw.zeta():.0e}. Almost surely it is positive, but nothing can "
            "be trained at that rate, and in float64 the rank is not full. Section 2 has tokens of "
            f"norm 1, for which the logits have the standard deviation {spread['unit']:.2f} and "
            f"zeta_0 = {unit.zeta():.1e}. Where training then ends is in figure2a.",
        ),
        settings={"sizes": str(sizes), "Q": "standard normal", "seed": 0},
    )


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
        """The largest gap relative to its bound."""
        return max(gap / bound for gap, bound in zip(self.gap, self.bound, strict=True))


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
    b = made.risk.root @ made.softmaxes().permute(2, 1, 0)
    curvature = torch.linalg.matrix_norm(b, 2).max().item() ** 2 / sizes.tokens
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
        smoke=(150, 1, 30), quick=(1000, 10, 200), paper=(3000, 20, 500)
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
                "largest gap relative to its bound, over all steps of all runs",
                max(path.worst for path in paths),
                1 + 1e-12,
                one_head.worst,
                "the theorem; equality at t = 0, up to rounding",
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
        coefficients = theory.ridge_coefficients(features[:n], labels, penalty)
        stated = torch.cat([labels, coefficients @ features[n:].mT], dim=1)
        learned = labels @ torch.linalg.solve(made.risk.gram, made.risk.cross)
        return ((learned - stated).norm() / stated.norm()).item()

    constants, rates = made.constants(), certified_rates(made)
    steps = theory.iterations(
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
        error = prompt.labels @ (made.attention() - made.risk.optimum)
        return (error.square().mean(1) / 2 > precision).double().mean().item()

    history = made.descend(
        steps, query_rate=rates.query, weight_rate=rates.weight, every=10, metrics={"late": late}
    )
    enough = next(
        step
        for step, share in zip(history["step"], history["late"], strict=True)
        if share <= failure
    )
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
            "steps that were enough": f"{enough} (counted in tens)",
            "T / enough": round(steps / max(enough, 1), 1),
            "note": "the shown labels are repeated with their noise",
        },
    )
