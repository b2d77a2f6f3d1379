"""Figure 4: one layer with different numbers of heads, trained as `one_layer_training` says."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure as Picture

from innerloop import theory
from innerloop.papers.quantity import Cases, at_least, at_most, measured
from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.papers.yang2024.one_layer_training import (
    GAUSSIAN,
    QUICK_RATE,
    UNIT,
    adam,
    infimum_and_axis,
    recipe_4,
)
from innerloop.papers.yang2024.settings import mean_log

FAR = 1e-2
WHY_FAR = "far from the minimum: a hundredth of the gap at the start; mean over the starts"
COLUMNS = ("tokens", "heads", "rate", "seed", "step", "gap", "floor", "N")


def draw_figure4(tables: Tables) -> Picture:
    tokens, heads, rates, seeds, step, gap, floor, shown = (
        np.asarray(tables["training"][column]) for column in COLUMNS
    )
    counts = sorted(set(heads.tolist()))
    colours = dict(
        zip(counts, colormaps["viridis"](np.linspace(0, 0.92, len(counts))), strict=True)
    )
    main = rates[heads == counts[0]][0]
    picture = Picture(figsize=(9.6, 4.0))
    for axes, name in zip(picture.subplots(1, 2, sharey=True), (UNIT, GAUSSIAN), strict=True):
        for count in counts:
            for rate in sorted(set(rates.tolist()), reverse=True):
                for seed in sorted(set(seeds.tolist())):
                    chosen = (tokens == name) & (heads == count) & (rates == rate) & (seeds == seed)
                    label = f"H = {count}" + (f", rate {rate:g}" if rate != main else "")
                    if chosen.any():
                        axes.plot(
                            step[chosen],
                            gap[chosen],
                            "-" if rate == main else "--",
                            color=colours[count],
                            linewidth=0.9,
                            label=label if seed == 0 else None,
                        )
        axes.axhline(
            floor.mean(), color="black", linewidth=0.8, linestyle=":", label="one head's floor"
        )
        axes.set(xlabel="steps of Adam", yscale="log", title=f"{name}, N = {shown[0]}")
    picture.axes[0].set_ylabel(r"$L - L^*$")
    handles, labels = picture.axes[0].get_legend_handles_labels()
    picture.axes[1].legend(
        handles, labels, loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8
    )
    return picture


class Runs:
    """The runs of the table, each a list of gaps."""

    def __init__(self, tables: Tables) -> None:
        self.gaps: dict[tuple[str, int, float], dict[int, list[float]]] = {}
        self.floors: dict[int, float] = {}
        rows = zip(*(tables["training"][column] for column in COLUMNS), strict=True)
        for tokens, heads, rate, seed, _, gap, floor, shown in rows:
            run = self.gaps.setdefault((str(tokens), int(heads), float(rate)), {})
            run.setdefault(int(seed), []).append(float(gap))
            self.floors[int(seed)], self.shown = float(floor), int(shown)
        self.counts = sorted({heads for tokens, heads, _ in self.gaps if tokens == UNIT})
        (self.rate,) = {rate for _, heads, rate in self.gaps if heads == self.counts[0]}

    def shares(self, heads: int, tokens: str = UNIT) -> list[float]:
        """What is left of the gap at the start, for every start."""
        return [gaps[-1] / gaps[0] for gaps in self.gaps[tokens, heads, self.rate].values()]

    def rises(self, heads: int, rate: float | None = None) -> list[float]:
        """The most by which the gap rises above one that training had reached before."""
        runs = self.gaps[UNIT, heads, rate or self.rate].values()
        return [
            max(g / low for g, low in zip(gaps, accumulate(gaps, min), strict=True))
            for gaps in runs
        ]

    def over_floor(self, heads: int) -> float:
        """The lowest final gap of any start relative to the floor of one head."""
        runs = self.gaps[UNIT, heads, self.rate]
        return min(gaps[-1] / self.floors[seed] for seed, gaps in runs.items())


def judge_figure4(tables: Tables) -> Verdict:
    runs = Runs(tables)
    n, many = runs.shown, runs.counts[-1]
    below = max(heads for heads in runs.counts if heads < n)
    enough = [heads for heads in runs.counts if n <= heads < many]
    slowest = max(enough, key=lambda heads: sum(runs.shares(heads)))
    rates = sorted({rate for _, heads, rate in runs.gaps if heads == many})

    def left(stops: bool) -> Cases:
        log = math.log(FAR)
        return measured(
            "mean logarithm of the share of the gap that is left",
            at_least(log, WHY_FAR) if stops else at_most(log, WHY_FAR),
            {
                f"H = {below} < N": mean_log(runs.shares(below)),
                f"H = {slowest}, the most left with N heads or more": mean_log(
                    runs.shares(slowest)
                ),
                "H = 1": mean_log(runs.shares(1)),
                f"H = {below}, Gaussian tokens": mean_log(runs.shares(below, GAUSSIAN)),
            },
        )

    slow = f"H = {slowest}, the most left with N heads or more"
    floor = measured(
        "lowest final gap relative to the floor of one head",
        at_least(1.0, "the floor is a lower bound"),
        {f"H = {heads}": runs.over_floor(heads) for heads in (1, below)},
    )
    lost = "2: what was gained is lost again, by a factor of 2"
    least = measured(
        "smallest over the starts of the largest rise of the gap",
        at_least(2.0, lost),
        {f"H = {many}": min(runs.rises(many)), f"H = {n}": min(runs.rises(n))},
    )
    most = measured(
        f"largest rise of the gap with H = {many}",
        at_most(2.0, lost),
        {f"learning rate {rate:g}": max(runs.rises(many, rate)) for rate in rates},
    )
    share = math.exp(left(True)[f"H = {below} < N"])
    return Verdict(
        printed=[
            left(True).check(f"H = {below} < N", unlike=slow),
            least.check(f"H = {many}", unlike=f"H = {n}"),
        ],
        corrected=[
            floor.check("H = 1", unlike=f"H = {below}"),
            left(False).check(f"H = {below} < N", unlike=f"H = {below}, Gaussian tokens"),
            left(False).check(slow, unlike="H = 1"),
            most.check(f"learning rate {rates[0]:g}", unlike=f"learning rate {rates[-1]:g}"),
        ],
        correction=Correction(
            r"H < N:\; \text{the loss stops far from the minimum}",
            r"H = 1:\; L - L^\star \ge \text{floor} > 0;\qquad H \text{ somewhat below } N:\; "
            r"L \to L^\star \text{ nearly}",
            "With tokens of norm 1, somewhat fewer than N heads go nearly to the minimum: Q is "
            "trained too, and H >= N is only needed for w alone to do the work. One head stays "
            "above its floor. With Gaussian tokens, which section 4 describes, the softmaxes are "
            f"saturated and Q hardly moves. The instability with {many} heads, where the text has "
            "the loss diverge too, is an oscillation, and belongs to the learning rate: a step of "
            "Adam moves every attention weight by about H times it.",
            kind=Kind.SENTENCE,
            counterexample=f"{below} heads for N = {n} leave {share:.1e} of the gap with tokens of "
            f"norm 1 and {math.exp(left(True)[f'H = {below}, Gaussian tokens']):.2f} with Gaussian "
            "ones (geometric means).",
        ),
        settings={
            f"{tokens}, {heads} heads, learning rate {rate:g}: share left": ", ".join(
                f"{gaps[-1] / gaps[0]:.1e}" for gaps in runs_of.values()
            )
            for (tokens, heads, rate), runs_of in runs.gaps.items()
        },
    )


@figure(
    "yang2024/figure4",
    "With fewer heads than shown labels the loss stops far from the minimum, with enough heads it "
    "converges, and with very many it becomes unstable",
    source="Figure 4, section 4",
    judge=judge_figure4,
    draw=draw_figure4,
)
def figure4(scale: Scale) -> Numbers:
    recipe = recipe_4(scale)
    counts, gaussian, steps_of_many = scale.pick(
        smoke=([1, 8, 10, 400], [8], 300),
        quick=([1, 2, 5, 8, 10, 20, 40, 400], [5, 8, 10], 300),
        paper=([1, 5, 10, 20, 30, 40, 50, 150, 400], [5, 20, 30, 50], recipe.steps),
    )
    many = counts[-1]
    other = QUICK_RATE if recipe.rate < QUICK_RATE else recipe.rate / 10
    runs = [(UNIT, heads, recipe.rate) for heads in counts]
    runs += [(GAUSSIAN, heads, recipe.rate) for heads in gaussian] + [(UNIT, many, other)]
    rows: dict[str, list[float | int | str]] = {}
    for tokens, heads, rate in runs:
        for seed in range(recipe.seeds):
            made = recipe.made(heads, tokens, seed)
            floor = theory.softmax.one_head_floor(made.risk)
            steps = steps_of_many if heads == many else recipe.steps
            history = adam(made, recipe, every=max(steps // 600, 1), rate=rate, steps=steps)
            for step, loss in zip(history["step"], history["loss"], strict=True):
                row = (
                    tokens,
                    heads,
                    rate,
                    seed,
                    step,
                    loss - made.risk.infimum,
                    floor,
                    made.task.shown,
                )
                for key, value in zip(COLUMNS, row, strict=True):
                    rows.setdefault(key, []).append(value)
    return Numbers(
        {"training": rows},
        "The training loss above its infimum for different numbers of heads, every line a "
        "dictionary and start of its own. Left: one head and a few are stopped; from somewhat "
        "below H = N on, training converges; with very many heads the loss oscillates, and at "
        "another learning rate (dashed) it does not. Right: the saturated softmaxes of Gaussian "
        "tokens can hardly be trained, and the fewer heads, the higher the loss stops. What is "
        "drawn is L - L*, since with tau = 0.01 no loss itself could reach the 0.001 of the printed "
        f"axis. {recipe.in_words} Sizes: {recipe.sizes}"
        + ("." if scale is Scale.PAPER else ", where the paper has N = 30 and K = 200."),
        {
            "training": f"{recipe}, exact loss; {steps_of_many} steps with {many} heads",
            "starts of each": recipe.seeds,
        },
        [infimum_and_axis(recipe.sizes)],
    )
