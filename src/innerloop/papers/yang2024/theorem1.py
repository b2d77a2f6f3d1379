"""Training converges: Theorem 1, its proof's Eq. 43, 44 and 49, and a figure of its path."""

from dataclasses import dataclass
from itertools import product

import numpy as np
from matplotlib.figure import Figure as Picture

from innerloop.papers.common import normal
from innerloop.papers.quantity import FROM_BELOW, INEQUALITY, ROUNDING, checks
from innerloop.papers.registry import Numbers, Table, Tables, claim, figure
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.papers.yang2024.lemmas7_to_10 import Point, gradients, printed_main_text
from innerloop.papers.yang2024.settings import SMALL, TINY, Instance, instance, one_hot, ratio_error

SEEDS = 20
PER_STEP = "largest factor of the gap per step relative to its bound, over t >= 1"
ROUNDING_OF_GAPS = 1e-26
"""Relative to the first gap: below, a gap is rounding of the attention weights, squared."""


@dataclass(frozen=True)
class Certified:
    """gamma, eta_Q and eta_w of Eq. 16, and eta_w zeta_0 / 2K."""

    gamma: float
    query_rate: float
    weight_rate: float
    decrease: float


def certified(made: Instance, *, main_text: bool = False, share: float = 1.0) -> Certified:
    """At the least gamma of (15), eta_Q this share of 1/L, L of (61) corrected or (17) printed."""
    gamma = made.least_gamma
    appendix = Point(made, gamma, made.alpha_bar(gamma)).corrected()
    query_rate = share / (printed_main_text(made, gamma) if main_text else appendix)
    weight_rate = gamma**2 * query_rate
    return Certified(gamma, query_rate, weight_rate, weight_rate * made.zeta / (2 * made.k))


def fastest_start() -> Instance:
    """Of this many starts the one with the largest certified rate, known before training."""
    starts = (instance(TINY[0], seed) for seed in range(SEEDS))
    return max(starts, key=lambda made: certified(made).decrease)


Run = tuple[dict[str, list[float]], Certified]


def run(made: Instance, steps: int, *, main_text: bool = False, share: float = 1.0) -> Run:
    """Descends until the gap is rounding; gaps, zeta_t / zeta_0, max_h |alpha_h| / alpha-bar."""
    rates = certified(made, main_text=main_text, share=share)
    zeta, first, bound = made.zeta, made.gap, rates.gamma * made.alpha_bar(rates.gamma)
    history = made.descend(
        steps,
        rates.query_rate,
        rates.weight_rate,
        zeta=lambda model: made.zeta / zeta,
        alpha=lambda model: model.w.detach().norm(dim=1).max().item() / bound,
    )
    ends = [t for t, gap in enumerate(history["gap"]) if gap < ROUNDING_OF_GAPS * first]
    last = min(ends, default=None)
    return {name: history[name][:last] for name in ("step", "gap", "zeta", "alpha")}, rates


def over_bound(path: Table, decrease: float, times: float) -> float:
    """(gap_t / gap_0)^(1/t) relative to 1 - times eta_w zeta_0 / 2K, the largest over t >= 1."""
    gaps, steps = (np.asarray(path[name], dtype=float) for name in ("gap", "step"))
    return ((gaps[1:] / gaps[0]) ** (1 / steps[1:])).max() / (1 - times * decrease)


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
        for sizes, seed, main_text in product(TINY, range(seeds), (False, True))
    ]
    made = fastest_start()
    ours, gamma, printed = made.constants(), made.least_gamma, certified(made)
    library = {
        "zeta_0 and (14)": (ours.zeta, made.zeta),
        "the gap and (36)": (ours.gap, made.gap),
        "gamma and (15)": (ours.least_gamma, gamma),
        "alpha-bar and (44)": (ours.alpha_bound(gamma), made.alpha_bar(gamma)),
        "eta_w and (16)": (ours.rates(gamma)[1], printed.weight_rate),
        "the share of a step and (18)": (ours.decrease(printed.weight_rate), printed.decrease),
    }
    without = {"gamma and (15) with K": (ours.least_gamma, gamma * made.k**-0.25)}
    constants = "relative distance of the library's constants"
    path, rates = run(made, steps)
    runs += [(path, rates), run(one_hot(0, 1), 300, share=0.25)]
    bound, faster_bound = (
        {name: max(over_bound(path, rates.decrease, times) for path, rates in runs)}
        for name, times in (("(18)", 1.0), ("(18) with 2.1 eta_w zeta_0 / K", 4.2))
    )
    faster = 1 - (path["gap"][-1] / path["gap"][0]) ** (1 / path["step"][-1])
    alpha = max(max(path["alpha"]) for path, _ in runs)
    zeta = min(min(path["zeta"]) for path, _ in runs)
    size, rank = "largest |alpha_h| relative to alpha-bar", "smallest lambda_min over its bound"
    weights, fewer = {"(43a)": alpha}, {"0.99 for the 4 in (44)": alpha * 4 / 0.99}
    heads, whole = {"(43b)": zeta / 0.5}, {"zeta_0 for zeta_0 / 2": zeta}
    return Verdict(
        [
            *checks(PER_STEP, INEQUALITY, bound, unlike=faster_bound),
            *checks(size, INEQUALITY, weights, unlike=fewer),
            *checks(rank, FROM_BELOW, heads, unlike=whole),
            *checks(constants, ROUNDING, library, unlike=without, measure=ratio_error),
        ],
        settings={
            "runs": f"{seeds} starts of {short} steps for each of {'; '.join(map(str, TINY))}; "
            "rates from (17) as printed and from (61) as corrected",
            "one long run": f"of {SEEDS} starts the one with the largest certified rate",
            "share removed per step": f"{rates.decrease:.4f} certified, {faster:.4f} measured",
        },
        remarks=[
            "One-hot heads with a residual along the slowest direction lose four times the "
            "certified share per step, and reach a quarter of alpha-bar.",
        ],
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
    seeds, start = range(scale.pick(smoke=20, quick=100, paper=500)), instance(SMALL, 0)
    gamma, zeta, q, w = 30.0, start.zeta, start.model.q.detach(), start.model.w
    moved = [start.with_weights(normal(s, *w.shape), q + 0.1 * normal(s, *q.shape)) for s in seeds]
    points = [(made, zeta) for made in moved if made.zeta >= zeta / 2]
    points.append((one_hot(0, 1), one_hot(0, 1).zeta))

    def ratio(made: Instance, zeta: float, scale: float, factor: float) -> float:
        """|gradient|^2 / (sigma gap), the gradient in w times a scale; sigma times a factor."""
        q, w = gradients(made)
        square = q.square().sum() + (scale * w).square().sum()
        return square.item() / (factor * zeta * gamma**2 / made.k * made.gap)

    def error(made: Instance, power: int) -> float:
        heads = (made.b.mT @ (made.zbar @ made.delta).mT.unsqueeze(-1)).square().sum().item()
        left = (gamma * gradients(made)[1]).square().sum().item()
        return ratio_error((gamma**2 / made.k**power * heads, left))

    def largest_error(power: int) -> float:
        return max(error(made, power) for made, _ in points)

    theta, xi = (
        checks(
            "smallest |gradient|^2 relative to sigma (l - L*)",
            FROM_BELOW,
            {f"in {name}": (scale, 1.0)},
            unlike={f"in {name}, 2.02 sigma": (scale, 2.02)},
            measure=lambda case: min(ratio(*point, *case) for point in points),
        )
        for name, scale in (("theta = (Q, w)", 1.0), ("xi = (Q, alpha)", gamma))
    )
    name, right, wrong = "largest relative error of the equality", {"1/K^2": 2}, {"1/K": 1}
    return Verdict(
        printed=theta,
        corrected=[*xi, *checks(name, ROUNDING, right, unlike=wrong, measure=largest_error)],
        correction=Correction(
            r"\|\nabla_\theta \ell(\xi)\|_F^2",
            r"\|\nabla_\xi \ell(\xi)\|_F^2",
            "The derivatives that are summed are those in alpha = w / gamma, and (64) uses the "
            "gradient in xi. In theta it would need 1/gamma^2.",
            kind=Kind.MISPRINT,
            counterexample="One head for each of two shown tokens, attending to it alone, w = 0, "
            f"gamma = {gamma:g}: the ratio is 2 / gamma^2 in theta, and 2 in xi.",
        ),
        settings={"task": start.task, "heads": f"{len(points)} sets", "gamma": gamma},
    )


BOUNDS = {"bound of Theorem 1": 1.0, "at ten times its rate": 10.0}


def draw_path(tables: Tables) -> Picture:
    table = tables["path"]
    step = np.asarray(table["step"], dtype=float)
    picture = Picture(figsize=(9.2, 3.4))
    left, right = picture.subplots(1, 2)
    left.plot(step, table["gap"], color="#0072B2", label="gradient descent")
    for name, style, colour in zip(BOUNDS, ("--", ":"), ("black", "#D55E00"), strict=True):
        left.plot(step, table[name], style, color=colour, label=name)
    low = min(float(gap) for gap in table["gap"])
    left.set(yscale="log", xlabel="step", ylabel=r"$L - \inf L$", title="the gap", ylim=(low, None))
    left.legend()
    for column, colour, label, bound, side in (
        ("zeta", "#009E73", r"$\zeta_t / \zeta_0$", 0.5, "lower"),
        ("alpha", "#AA4499", r"$\max_h |\alpha_h| / \bar\alpha$", 1.0, "upper"),
    ):
        right.plot(step, table[column], color=colour, label=label)
        right.axhline(bound, color=colour, linestyle="--", label=f"its {side} bound")
    right.set(xlabel="step", title="the two invariants of the proof", ylim=(0, 1.25))
    right.legend(ncols=2, loc="center right", fontsize=8)
    return picture


def judge_path(tables: Tables) -> Verdict:
    path, decrease = tables["path"], float(tables["certified"]["decrease"][0])
    bound, ten = ({name: over_bound(path, decrease, times)} for name, times in BOUNDS.items())
    return Verdict(checks(PER_STEP, INEQUALITY, bound, unlike=ten))


@figure(
    "yang2024/theorem1-path",
    "Every iterate lies under the bound of Theorem 1, at a rate that can be seen",
    source="Theorem 1, with Eq. 43",
    judge=judge_path,
    draw=draw_path,
)
def theorem1_path(scale: Scale) -> Numbers:
    path, rates = run(fastest_start(), scale.pick(smoke=150, quick=800, paper=3000))
    for name, times in BOUNDS.items():
        path[name] = [path["gap"][0] * (1 - times * rates.decrease) ** t for t in path["step"]]
    return Numbers(
        {"path": path, "certified": {"decrease": [rates.decrease]}},
        "Not a figure of the paper. Gradient descent at the certified learning rates, from the "
        f"start with the largest certified rate among {SEEDS}, until the gap is rounding. Right: "
        "the least eigenvalue hardly moves, and the weights stay far below their bound.",
        {"sizes": TINY[0], "eta_Q, eta_w": f"{rates.query_rate:.2e}, {rates.weight_rate:.3f}"},
    )
