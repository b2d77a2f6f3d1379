"""Figures 2a, 3 and 4 of Yang et al. (2024), and the path of Theorem 1.

Departures from the paper, whose text leaves tau and the meaning of an iteration open and has no
public code. tau = 0.01, as its Figure 3 has. Training is on the exact population loss (9), one step
an iteration, by Adam with the learning rate 0.01: with the printed 0.0001 it hardly begins within
the iterations shown. Inference losses are exact expectations, compared at the end with 200 prompts.
Tokens have norm 1, as in section 2; Figure 2a also shows Gaussian tokens, as in section 4, and at
the paper's scale the training that section 4 describes: 10,000 functions, batches of 256, learning
rate 0.0001, where an iteration is taken to be an epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.figure import Figure as Picture

from innerloop import theory
from innerloop.analysis import Estimate
from innerloop.papers.common import SAMPLING, WHY_SAMPLING, generator
from innerloop.papers.plots import history_table, plot_runs
from innerloop.papers.registry import FigureData, Table, figure
from innerloop.papers.verdict import Check, Correction, Scale, Verdict
from innerloop.papers.yang2024.convergence import certified_rates, fastest_start, follow
from innerloop.papers.yang2024.settings import TINY, Instance, Sizes, instance
from innerloop.tasks import GaussianCoefficients, TabulatedCoefficients
from innerloop.training import DictionaryPrompts, History, Objective, train

BLUE, RED, GREY, GREEN, PURPLE = "#0072B2", "#D55E00", "#555555", "#009E73", "#AA4499"
FULL = Sizes(100, 20, 30, 200, 0.01, 64)
REDUCED = Sizes(20, 8, 10, 40, 0.01, 32)
THIRD = Sizes(100, 7, 10, 60, 0.01, 21)
"""A third of everything but d, on which it depends what Gaussian tokens do."""
RATE = 1e-2
UNIT, GAUSSIAN, PRINTED = "tokens of norm 1", "Gaussian tokens", "Gaussian tokens, as printed"
OUT_OF_DOMAIN = GaussianCoefficients(1.0, 2.0)
TEST_PROMPTS = 200


@dataclass(frozen=True)
class Trained:
    """A dictionary with its trained transformer, and how it got there."""

    made: Instance
    history: History

    @property
    def out_of_domain(self) -> theory.DictionaryRisk:
        task = self.made.task
        moment = OUT_OF_DOMAIN.second_moment(task.features.shape[1])
        return theory.DictionaryRisk.of(task.features, task.shown, task.tau, moment)

    def z(self, risk: theory.DictionaryRisk, coefficients: GaussianCoefficients) -> float:
        """|z| of the inference loss on 200 prompts against that of this risk."""
        error = self.made.attention() - self.made.risk.optimum
        prompt = replace(self.made.task, coefficients=coefficients).sample(
            TEST_PROMPTS, generator=generator(3)
        )
        sampled = (prompt.labels @ error).square().mean(1)
        return abs(Estimate.of(sampled).z(risk.distance(error, torch.zeros_like(error)).item()))


def trained(
    made: Instance, steps: int, rate: float, every: int, objective: Objective | None = None
) -> Trained:
    """Adam on the exact loss, or on another; records both inference losses, (1/K) |. - y*|^2."""
    run = Trained(made, History())
    risks = {"in domain": made.risk, "out of domain": run.out_of_domain}

    def inference(risk: theory.DictionaryRisk, model: object) -> float:
        return risk.distance(made.attention(), made.risk.optimum).item()

    history = train(
        made.model,
        objective or made.objective,
        torch.optim.Adam(made.model.parameters(), rate, fused=True),
        steps=steps,
        generator=generator(1),
        every=every,
        metrics={name: partial(inference, risk) for name, risk in risks.items()},
    )
    return replace(run, history=history)


def draw_figure2a(tables: Mapping[str, Table]) -> Picture:
    table, infimum = tables["training"], float(tables["infimum"]["loss"][0])
    names = list(dict.fromkeys(str(name) for name in table["training"]))
    picture = Picture(figsize=(4.6 * len(names), 3.6))
    for axes, name in zip(picture.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        plot_runs(axes, table, name, "out of domain", GREEN, "inference, out of domain")
        plot_runs(axes, table, name, "in domain", RED, "inference, in domain")
        plot_runs(axes, table, name, "loss", BLUE, "training loss")
        axes.axhline(infimum, color="black", linewidth=0.8, linestyle=":", label=r"infimum $L^*$")
        axes.set(title=name, xlabel="steps of Adam", yscale="log", ylim=(1e-4, 200))
    picture.axes[0].set_ylabel("loss")
    picture.axes[0].legend()
    return picture


@figure(
    "yang2024/figure2a",
    "The training loss and both inference losses of the one-layer transformer descend together, "
    "out of domain above in domain, and the prediction converges to ridge regression",
    source="Figure 2 (a), section 4",
    draw=draw_figure2a,
)
def figure2a(scale: Scale) -> FigureData:
    sizes, steps = scale.pick(smoke=(THIRD, 600), quick=(FULL, 600), paper=(FULL, 2000))
    runs = {
        name: trained(instance(sizes, 0, unit=name == UNIT), steps, RATE, every=10)
        for name in (UNIT, GAUSSIAN)
    }
    if scale is Scale.PAPER:
        made, epochs, batches = instance(sizes, 0, unit=False), 200, 39
        drawn = GaussianCoefficients().draw(10_000, sizes.features, generator=generator(2))
        described = replace(made.task, coefficients=TabulatedCoefficients(drawn))
        runs[PRINTED] = trained(
            made, epochs * batches, 1e-4, batches, DictionaryPrompts(described, 256)
        )
    best, plateau = runs[UNIT], runs[GAUSSIAN]
    risk = best.made.risk

    def share(run: Trained, column: str = "in domain") -> float:
        return run.history[column][-1] / run.history[column][0]

    def identity(infimum: float) -> float:
        """Largest relative error of: inference loss in domain = 2 (training loss - infimum)."""
        pairs = zip(best.history["in domain"], best.history["loss"], strict=True)
        return max(abs(2 * (loss - infimum) / inference - 1) for inference, loss in pairs)

    ratios = [
        outside / inside
        for outside, inside in zip(
            best.history["out of domain"], best.history["in domain"], strict=True
        )
    ]
    verdict = Verdict(
        [
            Check(
                "final inference loss in domain relative to the first",
                share(best),
                1e-3,
                share(plateau),
                "convergence to ridge regression: a thousandth, which the paper's figure does not "
                "reach",
                "Gaussian tokens, trained in the same way",
            ),
            Check(
                "smallest ratio of the inference losses out of domain and in domain",
                min(ratios),
                1.0,
                1 / max(ratios),
                "above means a ratio above 1",
                "in domain relative to out of domain",
                at_least=True,
            ),
            Check(
                "in domain is twice the training loss above L*: largest relative error",
                identity(risk.infimum),
                1e-6,
                identity(risk.printed_infimum),
                "float64: the difference of two losses of order 1, which falls to 1e-5",
                "the L* that Lemma 5 prints",
            ),
            Check(
                f"|z| of the out-of-domain loss on {TEST_PROMPTS} prompts against its expectation",
                best.z(best.out_of_domain, OUT_OF_DOMAIN),
                SAMPLING,
                best.z(risk, OUT_OF_DOMAIN),
                WHY_SAMPLING,
                "against the expectation in domain",
            ),
        ],
        settings={
            "sizes": str(sizes),
            "training": f"exact loss, Adam, learning rate {RATE}, {steps} steps, seed 0",
            "L*": round(risk.infimum, 5),
            "first and last training loss": f"{best.history['loss'][0]:.3f}, "
            f"{best.history['loss'][-1]:.5f}",
            "zeta_0": f"{instance(sizes, 0).zeta():.1e}, with Gaussian tokens "
            f"{instance(sizes, 0, unit=False).zeta():.1e}",
            "share left of the loss out of domain": f"{share(best, 'out of domain'):.1e}",
            "out of domain / in domain": f"{min(ratios):.2f} to {max(ratios):.2f}; E|lambda|^2 is "
            "5 times as large",
        },
    )
    caption = (
        "Left: tokens of norm 1. The inference loss in domain is twice what the training loss has "
        "above its infimum, an identity, so the curves must descend together; the training loss "
        "itself stops at the infimum. Then Gaussian tokens: with saturated softmaxes training "
        "ends on a plateau."
    )
    table = history_table({name: [(0, run.history)] for name, run in runs.items()})
    return FigureData({"training": table, "infimum": {"loss": [risk.infimum]}}, caption, verdict)


def draw_figure3(tables: Mapping[str, Table]) -> Picture:
    table = tables["gaps"]
    n = np.asarray(table["N"], dtype=float)
    m = int(table["m"][0])
    picture = Picture(figsize=(9.2, 3.4))
    left, right = picture.subplots(1, 2)
    for column, colour in (("in domain", BLUE), ("out of domain", GREEN)):
        gaps = np.asarray(table[column], dtype=float)
        left.plot(n[n != m], gaps[n != m], color=colour, label=column)
    left.axvline(m, color="black", linewidth=0.8, linestyle=":", label=f"N = m = {m}, gap 0")
    left.set(yscale="log", xlabel="N, shown labels", title="distance from $y^{best}$")
    left.set_ylabel(r"$E\,\frac{1}{K}\|\hat y^* - \hat y^{best}\|^2$")
    left.legend()
    right.plot(n, table["learned error"], color=RED, label="learned, penalty $m\\tau$")
    right.plot(n, table["best error"], "--", color=GREY, label="$y^{best}$, penalty $N\\tau$")
    right.axvline(m, color="black", linewidth=0.8, linestyle=":")
    right.set(yscale="log", xlabel="N, shown labels", title="error on the tokens not shown")
    right.set_ylabel("expected squared error per token")
    right.legend()
    return picture


@figure(
    "yang2024/figure3",
    "The closer N is to m, the closer the prediction is to the best one and the better it is",
    source="Figure 3, sections 3.2 and 4",
    draw=draw_figure3,
)
def figure3(scale: Scale) -> FigureData:
    m, count, tau = 100, 200, 0.01
    lengths = list(range(50, 151, scale.pick(smoke=10, quick=1, paper=1)))
    features = torch.randn(count, m, generator=generator(0), dtype=torch.float64)
    outside = OUT_OF_DOMAIN.second_moment(m)
    rows: dict[str, list[float]] = {"N": [], "m": [], "in domain": [], "out of domain": []}
    rows |= {"learned error": [], "best error": []}
    for n in lengths:
        risk = theory.DictionaryRisk.of(features, n, tau)
        learned = risk.optimum
        best = theory.ridge_matrix(features, n, n * tau)
        beyond = theory.DictionaryRisk.of(features, n, tau, outside)
        per_query = 2 * count / (count - n)
        row = {
            "N": n,
            "m": m,
            "in domain": risk.distance(learned, best).item(),
            "out of domain": beyond.distance(learned, best).item(),
            "learned error": per_query * risk.infimum,
            "best error": per_query * risk(best).item(),
        }
        for key, value in row.items():
            rows[key].append(value)
    caption = (
        "Left: how far the learned prediction is from y^best; zero at N = m, where both are the "
        "same ridge regression, and smaller again far from it. Right: the error on the tokens not "
        "shown, which falls with N throughout and hardly differs between the two."
    )
    return FigureData({"gaps": rows}, caption, judge_figure3(rows, lengths.index(m)))


def judge_figure3(rows: dict[str, list[float]], middle: int) -> Verdict:
    gaps, errors, lengths = rows["in domain"], rows["learned error"], rows["N"]
    m = lengths[middle]

    def least_growth(values: list[float]) -> float:
        """The smallest ratio of neighbouring values, the farther from N = m to the nearer."""
        left, right = values[middle - 1 :: -1], values[middle + 1 :]
        return min(far / near for side in (left, right) for near, far in pairwise(side))

    def largest_ratio(values: list[float]) -> float:
        return max(after / before for before, after in pairwise(values))

    peaks = [lengths[gaps.index(max(side))] for side in (gaps[:middle], gaps[middle:])]
    return Verdict(
        printed=[
            Check(
                "smallest ratio of the gap farther from N = m to that nearer",
                least_growth(gaps),
                1.0,
                least_growth(errors),
                "growing with the distance means ratios above 1",
                "the same for the error of the prediction itself",
                at_least=True,
            ),
            Check(
                "error of the prediction at N = m relative to the smallest over N",
                errors[middle] / min(errors),
                1.0,
                errors[0] / min(errors),
                "best at N = m means 1",
                f"the error at N = {lengths[0]:.0f}",
            ),
        ],
        corrected=[
            Check(
                "gap at N = m relative to the largest",
                gaps[middle] / max(gaps),
                1e-20,
                gaps[middle + 1] / max(gaps),
                "equal predictions: the square of float64 rounding",
                f"the gap at N = {lengths[middle + 1]:.0f}",
            ),
            Check(
                "largest ratio of the errors at successive N",
                largest_ratio(errors),
                1.0,
                largest_ratio(gaps[:middle]),
                "falling means ratios below 1",
                "the same for the gap, below N = m",
            ),
            Check(
                "smallest relative excess of the error of y^best over that of the learned one",
                min(b / a for a, b in zip(errors, rows["best error"], strict=True)) - 1,
                -1e-12,
                min(a / b for a, b in zip(errors, rows["best error"], strict=True)) - 1,
                "never better means none below zero; 1e-12 is rounding",
                "the learned prediction over y^best",
                at_least=True,
            ),
        ],
        correction=Correction(
            r"|N - m| \text{ smaller} \;\Rightarrow\; \text{closer to } "
            r"\hat{y}^{\mathrm{best}} \text{ and better}",
            r"\mathbb{E} \frac{1}{K} \|\hat{y}^\star - \hat{y}^{\mathrm{best}}\|^2 = "
            r"2 (L(\hat{y}^{\mathrm{best}}) - L^\star) = 0 \text{ at } N = m;\quad "
            r"\text{the error falls with } N",
            "The gap vanishes at N = m because the penalties m tau and N tau are then equal, grows "
            f"up to N = {peaks[0]:.0f} on one side and {peaks[1]:.0f} on the other, and shrinks "
            "again beyond. It measures how much worse y^best is, not the quality of the learned "
            f"prediction: its error per token is {errors[0]:.1f} at N = {lengths[0]:.0f}, "
            f"{errors[middle]:.1f} at N = m = {m:.0f} and {errors[-1]:.2f} at N = "
            f"{lengths[-1]:.0f}.",
        ),
        settings={
            "m": m,
            "tau": 0.01,
            "K": "200; the paper does not say",
            "features": "standard normal, seed 0; all numbers are exact, nothing is trained",
        },
    )


def draw_figure4(tables: Mapping[str, Table]) -> Picture:
    table = tables["training"]
    floor, shown = float(tables["floor"]["gap"][0]), int(tables["floor"]["N"][0])
    heads, rates = np.asarray(table["heads"]), np.asarray(table["rate"], dtype=float)
    picture = Picture(figsize=(6.4, 4.2))
    axes = picture.subplots()
    counts = sorted(set(heads.tolist()))
    colours = colormaps["viridis"](np.linspace(0, 0.92, len(counts)))
    for rate in sorted(set(rates.tolist()), reverse=True):
        for colour, count in zip(colours, counts, strict=True):
            chosen = (heads == count) & (rates == rate)
            if not chosen.any():
                continue
            label = f"H = {count}" + (f", rate {rate:g}" if rate != RATE else "")
            style = "-" if rate == RATE else "--"
            gap = np.asarray(table["gap"], dtype=float)[chosen]
            axes.plot(np.asarray(table["step"])[chosen], gap, style, color=colour, label=label)
    axes.axhline(floor, color="black", linewidth=0.8, linestyle=":", label="floor of one head")
    axes.set(xlabel="steps of Adam", ylabel=r"$L - L^*$", yscale="log")
    axes.set_title(f"N = {shown} shown labels")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8)
    return picture


@figure(
    "yang2024/figure4",
    "Fewer heads than shown labels stop far from the minimum, enough heads converge, and very many "
    "make the loss unstable",
    source="Figure 4, section 4",
    draw=draw_figure4,
)
def figure4(scale: Scale) -> FigureData:
    sizes, counts, steps = scale.pick(
        smoke=(REDUCED, [1, 2, 5, 10, 20, 256], 400),
        quick=(FULL, [1, 5, 10, 20, 30, 40, 50, 150, 400], 250),
        paper=(FULL, [1, 5, 10, 20, 30, 40, 50, 150, 400], 600),
    )
    rows: dict[str, list[float]] = {"heads": [], "rate": [], "step": [], "gap": []}
    gaps: dict[tuple[int, float], list[float]] = {}
    largest = counts[-1]
    runs = [(heads, RATE) for heads in counts] + [(largest, RATE / 10)] * (scale != Scale.QUICK)
    for heads, rate in runs:
        made = instance(replace(sizes, heads=heads), 0)
        history = train(
            made.model,
            made.objective,
            torch.optim.Adam(made.model.parameters(), rate, fused=True),
            steps=steps,
            generator=generator(1),
            every=1,
        )
        gaps[heads, rate] = [loss - made.risk.infimum for loss in history["loss"]]
        for step, gap in zip(history["step"], gaps[heads, rate], strict=True):
            for key, value in zip(rows, (heads, rate, step, gap), strict=True):
                rows[key].append(value)
    floor = theory.one_head_floor(made.risk)
    last = {heads: gaps[heads, RATE][-1] for heads in counts}
    enough = [heads for heads in counts if sizes.shown <= heads < largest]

    def rises(heads: int, rate: float = RATE) -> int:
        return sum(after > before for before, after in pairwise(gaps[heads, rate]))

    verdict = Verdict(
        [
            Check(
                "final gap of one head relative to its floor",
                last[1] / floor,
                1.0,
                last[enough[-1]] / floor,
                "the floor is a lower bound",
                f"{enough[-1]} heads",
                at_least=True,
            ),
            Check(
                "largest final gap of N heads or more relative to the floor of one",
                max(last[heads] for heads in enough),
                floor,
                last[1],
                "beyond what one head can do",
                "one head",
            ),
            Check(
                f"steps at which the loss rises, {largest} heads",
                rises(largest),
                1,
                rises(sizes.shown),
                "instability is a loss that rises",
                f"{sizes.shown} heads",
                at_least=True,
            ),
        ],
        settings={
            "sizes": f"{replace(sizes, heads=0)}".replace(", H = 0", ""),
            "training": f"exact loss, Adam, learning rate {RATE}, {steps} steps, seed 0",
            "final gaps": ", ".join(f"{gap:.1e} (H = {heads})" for heads, gap in last.items()),
            "share of the gap removed in the last quarter": ", ".join(
                f"{1 - gaps[heads, RATE][-1] / gaps[heads, RATE][-steps // 4]:.2f} (H = {heads})"
                for heads in counts
            ),
            "steps at which the loss rises": ", ".join(
                f"{rises(heads)} (H = {heads})" for heads in counts
            ),
        }
        | {
            f"{heads} heads at the learning rate {rate:g}": f"final gap {gap[-1]:.1e}, the loss "
            f"rises at {rises(heads, rate)} steps"
            for (heads, rate), gap in gaps.items()
            if rate != RATE
        },
    )
    caption = (
        "The training loss above its infimum for different numbers of heads. Below H = N the loss "
        "levels off; above, it converges. With very many heads a step of Adam moves every "
        "attention weight by about H times the learning rate, and the loss oscillates; it does "
        "not diverge, and before that it falls faster than with few heads."
    )
    tables: dict[str, Table] = {"training": rows, "floor": {"gap": [floor], "N": [sizes.shown]}}
    return FigureData(tables, caption, verdict)


def draw_path(tables: Mapping[str, Table]) -> Picture:
    table = tables["path"]
    step = np.asarray(table["step"], dtype=float)
    picture = Picture(figsize=(9.2, 3.4))
    left, right = picture.subplots(1, 2)
    gap = np.asarray(table["gap"], dtype=float)
    left.plot(step[gap > 1e-30], gap[gap > 1e-30], color=BLUE, label="gradient descent")
    left.plot(step, table["bound"], "--", color="black", label="bound of Theorem 1")
    left.plot(step, table["one head"], color=RED, label="one head, same rates")
    left.set(yscale="log", xlabel="step", ylabel=r"$L - \inf L$", title="the gap")
    left.legend()
    right.plot(step, table["zeta"], color=GREEN, label=r"$\zeta_t / \zeta_0$")
    right.axhline(0.5, color=GREEN, linestyle="--", label="its lower bound")
    right.plot(step, table["alpha"], color=PURPLE, label=r"$\max_h |\alpha_h| / \bar\alpha$")
    right.axhline(1, color=PURPLE, linestyle="--", label="its upper bound")
    right.set(xlabel="step", title="the two invariants of the proof", ylim=(0, 1.25))
    right.legend(ncols=2, loc="center right", fontsize=8)
    return picture


@figure(
    "yang2024/theorem1-path",
    "Every iterate lies under the bound of Theorem 1, at a rate that can be seen",
    source="Theorem 1, with Eq. 43",
    draw=draw_path,
)
def theorem1_path(scale: Scale) -> FigureData:
    sizes, steps = TINY[0], scale.pick(smoke=150, quick=800, paper=3000)
    seed = fastest_start(sizes)
    made = instance(sizes, seed)
    rates = certified_rates(made)
    single = instance(replace(sizes, heads=1), seed)
    one = follow(single, steps, rates, certified=instance(sizes, seed))
    path = follow(made, steps, rates)
    verdict = Verdict(
        [
            Check(
                "largest gap relative to its bound",
                path.worst,
                1 + 1e-12,
                one.worst,
                "the theorem; equality at t = 0, up to rounding",
                "one head at the same rates, against the same bound",
            )
        ],
        settings={
            "sizes": f"{sizes}, seed {seed}: of 20 the one with the largest certified rate",
            "eta_Q, eta_w": f"{rates.query:.2e}, {rates.weight:.3f}",
            "certified share of the gap removed per step": f"{path.decrease:.4f}",
        },
    )
    table: Table = {
        "step": path.history["step"],
        "gap": path.gap,
        "bound": path.bound,
        "one head": one.gap,
        "zeta": path.zeta,
        "alpha": path.alpha,
    }
    caption = (
        "Gradient descent at the certified learning rates, for the start with the largest "
        "certified rate among 20. Right: the least eigenvalue hardly moves, and the weights stay "
        "an order of magnitude below their bound."
    )
    return FigureData({"path": table}, caption, verdict)
