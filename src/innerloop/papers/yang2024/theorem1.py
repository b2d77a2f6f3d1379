"""Training converges: Theorem 1, its proof's Eq. 43, 44 and 49, and a figure of its path.

Gradient descent runs on the exact loss with the two learning rates of Eq. 10.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure as Picture

from innerloop.papers.quantity import (
    INEQUALITY,
    ROUNDING,
    Cases,
    Quantity,
    at_least,
)
from innerloop.papers.registry import Numbers, Table, Tables, claim, figure
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.papers.yang2024.lemma10_eq17 import Point, printed_main_text
from innerloop.papers.yang2024.lemmas7_to_9 import gradients
from innerloop.papers.yang2024.notation import Notation
from innerloop.papers.yang2024.settings import (
    SMALL,
    TINY,
    Instance,
    Sizes,
    against,
    checked,
    instance,
    normal,
    one_hot,
)

SEEDS = 20
"""Starts among which the one with the largest certified rate is taken, before any training."""
BOUND = at_least(1 - 1e-12, "the inequality itself, as a ratio of its two sides; 1e-12 is rounding")
PER_STEP = "largest factor of the gap per step relative to its bound, over t >= 1"
ROUNDING_OF_GAPS = 1e-26
"""Relative to the first gap: below, a gap is rounding of the attention weights, squared."""


@dataclass(frozen=True)
class Certified:
    """Learning rates of Eq. 16, and what the theorem says about training with them."""

    gamma: float
    query_rate: float
    decrease: float
    """eta_w zeta_0 / 2K."""

    @property
    def weight_rate(self) -> float:
        return self.gamma**2 * self.query_rate


def certified(made: Instance, *, main_text: bool = False, share: float = 1.0) -> Certified:
    """At the least gamma of (15), eta_Q this share of 1/L, L of (61) corrected or (17) printed."""
    is_ = Notation(made)
    gamma = is_.least_gamma
    appendix = Point(made, gamma, is_.alpha_bar(gamma)).corrected()
    query_rate = share / (printed_main_text(made, gamma) if main_text else appendix)
    return Certified(gamma, query_rate, gamma**2 * query_rate * is_.zeta / (2 * is_.k))


def fastest_start(sizes: Sizes) -> int:
    """The seed with the largest certified rate; known before training."""
    return max(range(SEEDS), key=lambda seed: certified(instance(sizes, seed)).decrease)


Run = tuple[dict[str, list[float]], Certified]


def run(made: Instance, steps: int, *, main_text: bool = False, share: float = 1.0) -> Run:
    """Descends until the gap is rounding; gaps, zeta_t / zeta_0, max_h |alpha_h| / alpha-bar."""
    start, rates = Notation(made), certified(made, main_text=main_text, share=share)
    zeta, alpha_bar, first = start.zeta, start.alpha_bar(rates.gamma), start.gap
    history = made.descend(
        steps,
        query_rate=rates.query_rate,
        weight_rate=rates.weight_rate,
        metrics={
            "zeta": lambda model: Notation(made).zeta / zeta,
            "alpha": lambda model: (
                model.w.detach().norm(dim=1).max().item() / rates.gamma / alpha_bar
            ),
        },
    )
    ends = [t for t, gap in enumerate(history["gap"]) if gap < ROUNDING_OF_GAPS * first]
    names = ("step", "gap", "zeta", "alpha")
    return {name: history[name][: min(ends, default=None)] for name in names}, rates


def over_bound(path: Table, decrease: float, times: float) -> float:
    """(gap_t / gap_0)^(1/t) relative to 1 - times eta_w zeta_0 / 2K, the largest over t >= 1."""
    gaps, steps = (np.asarray(path[name], dtype=float) for name in ("gap", "step"))
    return ((gaps[1:] / gaps[0]) ** (1 / steps[1:])).max() / (1 - times * decrease)


def library_constants(made: Instance) -> Cases:
    """The library's constants against the printed formulas, and near misses of those."""
    is_, ours = Notation(made), made.constants()
    gamma = is_.least_gamma
    printed = certified(made)
    pairs = {
        "zeta_0 and (14)": (ours.zeta, is_.zeta),
        "the gap and (36)": (ours.gap, is_.gap),
        "gamma and (15)": (ours.least_gamma, gamma),
        "alpha-bar and (44)": (ours.alpha_bound(gamma), is_.alpha_bar(gamma)),
        "eta_w and (16)": (ours.rates(gamma)[1], printed.weight_rate),
        "the share of a step and (18)": (ours.decrease(printed.weight_rate), printed.decrease),
        "gamma and (15) with K": (ours.least_gamma, gamma * is_.k**-0.25),
    }
    return Quantity[tuple[float, float]](
        "relative distance of the library's constants",
        lambda pair: abs(pair[0] / pair[1] - 1),
        ROUNDING,
    ).of(pairs)


@claim(
    "yang2024/theorem1",
    "Gradient descent converges to the infimum of the loss at a linear rate, with bounded weights "
    "and heads that stay of full rank",
    source="Theorem 1, Eq. 14 to 18, and Eq. 43 and 44 of its proof",
    formula=r"L(\theta^{(t)}) - \inf L \le \left( 1 - \frac{\eta_w \zeta_0}{2K} \right)^t "
    r"\left( L(\theta^{(0)}) - \inf L \right),\quad \|\alpha_h^{(t)}\|_2 \le \bar\alpha,\quad "
    r"\lambda_{\min}(B_k^{(t)} {B_k^{(t)}}^\top) \ge \frac{\zeta_0}{2}",
)
def linear_convergence(scale: Scale) -> Verdict:
    steps, seeds, short = scale.pick(
        smoke=(150, 4, 10), quick=(1000, 5, 100), paper=(3000, 20, 500)
    )
    runs = [
        run(instance(sizes, seed), short, main_text=main_text)
        for sizes in TINY
        for seed in range(seeds)
        for main_text in (False, True)
    ]
    seed = fastest_start(TINY[0])
    path, rates = run(instance(TINY[0], seed), steps)
    runs += [(path, rates), run(one_hot(0, 1), 300, share=0.25)]
    gaps = Quantity[float](
        PER_STEP,
        lambda times: max(over_bound(path, rates.decrease, times) for path, rates in runs),
        INEQUALITY,
    ).of({"(18)": 1.0, "(18) with 2.1 eta_w zeta_0 / K": 4.2})
    alpha = max(max(path["alpha"]) for path, _ in runs)
    weights = {"(43a)": alpha, "0.99 for the 4 in (44)": alpha * 4 / 0.99}
    zeta = min(min(path["zeta"]) for path, _ in runs)
    heads = {"(43b)": zeta / 0.5, "zeta_0 for zeta_0 / 2": zeta}
    size, rank = (
        "largest |alpha_h| relative to alpha-bar",
        "smallest lambda_min relative to its bound",
    )
    faster = 1 - (path["gap"][-1] / path["gap"][0]) ** (1 / path["step"][-1])
    return Verdict(
        [
            *against(gaps, "(18) with 2.1 eta_w zeta_0 / K"),
            *checked(size, INEQUALITY, weights, unlike="0.99 for the 4 in (44)"),
            *checked(rank, BOUND, heads, unlike="zeta_0 for zeta_0 / 2"),
            *against(library_constants(instance(TINY[0], seed)), "gamma and (15) with K"),
        ],
        settings={
            "runs": f"{seeds} starts of {short} steps for each of {'; '.join(map(str, TINY))}; "
            f"rates from (17) as printed and from (61) as corrected",
            "one long run": f"{TINY[0]}, seed {seed}: of {SEEDS} the one with the largest "
            f"certified rate; {steps} steps or until the gap is rounding",
            "share of the gap removed per step, certified and measured": f"{rates.decrease:.4f}, "
            f"{faster:.4f}",
        },
        remarks=[
            "A quarter of what the slowest direction loses per step is certified, 2 eta_w zeta_0 / "
            "K for small rates, and a quarter of alpha-bar would do: heads that attend to one "
            "token each and a residual along the slowest direction come that close.",
        ],
    )


IN_XI = Correction(
    r"\|\nabla_\theta \ell(\xi)\|_F^2",
    r"\|\nabla_\xi \ell(\xi)\|_F^2",
    "The derivatives that are summed are those in alpha = w / gamma, which are gamma times "
    "those in w, and (64) uses the inequality for the gradient in xi = (Q, alpha). In "
    "theta = (Q, w) it would need 1/gamma^2.",
    kind=Kind.MISPRINT,
)


@claim(
    "yang2024/eq49",
    "The loss satisfies a Polyak-Lojasiewicz inequality while the heads keep half of zeta_0",
    source="Proof of Theorem 1, step 1, Eq. 45 and 49",
    formula=r"\|\nabla_\theta \ell(\xi)\|_F^2 \ge \sum_{k,h} \left( \frac{\partial \ell}{\partial "
    r"\alpha_{h,k}} \right)^2 = \frac{\gamma^2}{K^2} \sum_{k=1}^K (\bar{Z}\delta_k)^\top B_k "
    r"B_k^\top \bar{Z}\delta_k \ge \sigma (\ell(\xi) - L^\star)",
)
def polyak_lojasiewicz(scale: Scale) -> Verdict:
    count, gamma, start = scale.pick(smoke=20, quick=100, paper=500), 30.0, instance(SMALL, 0)
    # Heads moved from one start as far as they keep half of zeta_0.
    moved = [
        start.with_weights(
            normal(SMALL.heads, SMALL.tokens, seed=seed),
            start.model.q + 0.1 * normal(SMALL.heads, SMALL.d, SMALL.d, seed=seed),
        )
        for seed in range(count)
    ]
    zeta = Notation(start).zeta
    points = [(made, zeta) for made in moved if Notation(made).zeta >= zeta / 2]
    points.append((one_hot(0, 1), Notation(one_hot(0, 1)).zeta))

    def least(case: tuple[float, float]) -> float:
        """|gradient|^2 / (sigma gap), the gradient in w times a scale; sigma times a factor."""
        scale, factor = case
        ratios = []
        for made, zeta in points:
            is_, (q, w) = Notation(made), gradients(made)
            sigma = factor * zeta * gamma**2 / is_.k
            square = q.square().sum() + (scale * w).square().sum()
            ratios.append(square.item() / (sigma * is_.gap))
        return min(ratios)

    def identity_error(power: int) -> float:
        errors = []
        for made, _ in points:
            is_ = Notation(made)
            heads = (is_.b.mT @ (is_.zbar @ is_.delta).mT.unsqueeze(-1)).square().sum().item()
            left = (gamma * gradients(made)[1]).square().sum().item()
            errors.append(abs(gamma**2 / is_.k**power * heads / left - 1))
        return max(errors)

    inequality = Quantity("smallest |gradient|^2 relative to sigma (l - L*)", least, BOUND).of(
        {
            "in xi = (Q, alpha)": (gamma, 1.0),
            "in xi, 2.02 sigma": (gamma, 2.02),
            "in theta = (Q, w)": (1.0, 1.0),
            "in theta, 2.02 sigma": (1.0, 2.02),
        }
    )
    identity = Quantity("largest relative error of the equality", identity_error, ROUNDING).of(
        {"1/K^2": 2, "1/K": 1}
    )
    return Verdict(
        printed=[inequality.check("in theta = (Q, w)", unlike="in theta, 2.02 sigma")],
        corrected=[
            inequality.check("in xi = (Q, alpha)", unlike="in xi, 2.02 sigma"),
            *against(identity, "1/K"),
        ],
        correction=replace(
            IN_XI,
            counterexample="One head for each of two shown tokens, attending to it alone, w = 0, "
            f"gamma = {gamma:g}: |gradient|^2 / (sigma (l - L*)) is 2 / gamma^2 in theta, and 2 in "
            "xi.",
        ),
        settings={"task": start.task, "heads": f"{len(points)} sets", "gamma": gamma},
    )


def draw_path(tables: Tables) -> Picture:
    table = tables["path"]
    step = np.asarray(table["step"], dtype=float)
    picture = Picture(figsize=(9.2, 3.4))
    left, right = picture.subplots(1, 2)
    left.plot(step, table["gap"], color="#0072B2", label="gradient descent")
    left.plot(step, table["bound"], "--", color="black", label="bound of Theorem 1")
    left.plot(step, table["ten times"], ":", color="#D55E00", label="at ten times its rate")
    low = min(float(gap) for gap in table["gap"])
    left.set(yscale="log", xlabel="step", ylabel=r"$L - \inf L$", title="the gap", ylim=(low, None))
    left.legend()
    right.plot(step, table["zeta"], color="#009E73", label=r"$\zeta_t / \zeta_0$")
    right.axhline(0.5, color="#009E73", linestyle="--", label="its lower bound")
    right.plot(step, table["alpha"], color="#AA4499", label=r"$\max_h |\alpha_h| / \bar\alpha$")
    right.axhline(1, color="#AA4499", linestyle="--", label="its upper bound")
    right.set(xlabel="step", title="the two invariants of the proof", ylim=(0, 1.25))
    right.legend(ncols=2, loc="center right", fontsize=8)
    return picture


def judge_path(tables: Tables) -> Verdict:
    path, decrease = tables["path"], float(tables["certified"]["decrease"][0])
    cases = {
        name: over_bound(path, decrease, times)
        for name, times in (("(18)", 1.0), ("ten times the rate", 10.0))
    }
    return Verdict(checked(PER_STEP, INEQUALITY, cases, unlike="ten times the rate"))


@figure(
    "yang2024/theorem1-path",
    "Every iterate lies under the bound of Theorem 1, at a rate that can be seen",
    source="Theorem 1, with Eq. 43",
    judge=judge_path,
    draw=draw_path,
)
def theorem1_path(scale: Scale) -> Numbers:
    sizes, steps = TINY[0], scale.pick(smoke=150, quick=800, paper=3000)
    seed = fastest_start(sizes)
    path, rates = run(instance(sizes, seed), steps)
    for name, times in (("bound", 1.0), ("ten times", 10.0)):
        path[name] = [path["gap"][0] * (1 - times * rates.decrease) ** t for t in path["step"]]
    return Numbers(
        {"path": path, "certified": {"decrease": [rates.decrease]}},
        "Not a figure of the paper. Gradient descent at the certified learning rates, for the "
        "start with the largest certified rate among 20, until the gap is rounding. Right: the "
        "least eigenvalue hardly moves, and the weights stay an order of magnitude below their "
        "bound.",
        {
            "sizes": f"{sizes}, seed {seed}",
            "eta_Q, eta_w": f"{rates.query_rate:.2e}, {rates.weight_rate:.3f}",
            "certified share of the gap removed per step": f"{rates.decrease:.4f}",
        },
    )
