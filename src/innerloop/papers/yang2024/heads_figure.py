"""Figure 4 of Yang et al. (2024): training with different numbers of heads.

As in Figure 2a: the exact loss, one step an iteration, Adam with the learning rate 0.01, tokens of
norm 1; and beside it Gaussian tokens, as the experiments describe them. What is drawn is L - L*:
with tau = 0.01 no loss itself could reach the 0.001 of the printed axis, see `figures`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.figure import Figure as Picture

from innerloop import theory
from innerloop.papers.common import generator
from innerloop.papers.registry import FigureData, Table, figure
from innerloop.papers.verdict import Check, Correction, Scale, Verdict
from innerloop.papers.yang2024.settings import FULL, RATE, Sizes, infimum_and_axis, instance
from innerloop.training import train

REDUCED = Sizes(20, 8, 10, 40, 0.01, 0)
UNIT, GAUSSIAN = "tokens of norm 1", "Gaussian tokens"
COLUMNS = ("tokens", "heads", "rate", "step", "gap")
FAR = 1e-2
"""What is called far from the minimum: a hundredth of the gap at the start."""


def draw_figure4(tables: Mapping[str, Table]) -> Picture:
    table = tables["training"]
    floor, shown = float(tables["floor"]["gap"][0]), int(tables["floor"]["N"][0])
    tokens, heads, rates, step, gap = (np.asarray(table[column]) for column in COLUMNS)
    counts = sorted(set(heads.tolist()))
    colours = dict(
        zip(counts, colormaps["viridis"](np.linspace(0, 0.92, len(counts))), strict=True)
    )
    picture = Picture(figsize=(9.6, 4.0))
    for axes, name in zip(picture.subplots(1, 2, sharey=True), (UNIT, GAUSSIAN), strict=True):
        here = tokens == name
        for rate in sorted(set(rates[here].tolist()), reverse=True):
            for count in counts:
                chosen = here & (heads == count) & (rates == rate)
                label = f"H = {count}" + (f", rate {rate:g}" if rate != RATE else "")
                style = "-" if rate == RATE else "--"
                if chosen.any():
                    axes.plot(step[chosen], gap[chosen], style, color=colours[count], label=label)
        axes.axhline(floor, color="black", linewidth=0.8, linestyle=":", label="floor of one head")
        axes.set(xlabel="steps of Adam", yscale="log", title=f"{name}, N = {shown}")
    picture.axes[0].set_ylabel(r"$L - L^*$")
    handles, labels = picture.axes[0].get_legend_handles_labels()
    picture.axes[1].legend(
        handles, labels, loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8
    )
    return picture


Run = tuple[str, int, float]
"""Which tokens, how many heads, the learning rate."""


def gaps_of(sizes: Sizes, run: Run, steps: int) -> list[float]:
    """The loss above its infimum at every step."""
    tokens, heads, rate = run
    made = instance(replace(sizes, heads=heads), 0, unit=tokens == UNIT)
    optimizer = torch.optim.Adam(made.model.parameters(), rate, fused=True)
    history = train(
        made.model, made.objective, optimizer, steps=steps, generator=generator(1), every=1
    )
    return [loss - made.risk.infimum for loss in history["loss"]]


@figure(
    "yang2024/figure4",
    "With fewer heads than shown labels the loss stops far from the minimum, with enough heads it "
    "converges, and with very many it becomes unstable",
    source="Figure 4, section 4",
    draw=draw_figure4,
)
def figure4(scale: Scale) -> FigureData:
    sizes, counts, gaussian, steps = scale.pick(
        smoke=(REDUCED, [1, 2, 5, 8, 10, 20, 256], [8, 10], 300),
        quick=(FULL, [1, 5, 10, 20, 30, 40, 50, 150, 400], [5, 20, 30, 50], 400),
        paper=(FULL, [1, 5, 10, 20, 30, 40, 50, 150, 400], [5, 20, 30, 50, 150], 600),
    )
    runs: list[Run] = [(UNIT, heads, RATE) for heads in counts]
    runs += [(GAUSSIAN, heads, RATE) for heads in gaussian]
    if scale is Scale.PAPER:
        runs.append((UNIT, counts[-1], RATE / 10))
    gaps = {run: gaps_of(sizes, run, steps) for run in runs}
    rows: dict[str, list[float | int | str]] = {}
    for (tokens, heads, rate), values in gaps.items():
        for step, gap in enumerate(values):
            row: tuple[float | int | str, ...] = (tokens, heads, rate, step, gap)
            for key, value in zip(COLUMNS, row, strict=True):
                rows.setdefault(key, []).append(value)
    floor = theory.softmax.one_head_floor(instance(replace(sizes, heads=1), 0).risk)
    caption = (
        "The training loss above its infimum for different numbers of heads. Left: one head and a "
        "few are stopped; from somewhat below H = N on, training converges. With very many heads "
        "a step of Adam moves every attention weight by about H times the learning rate, and the "
        "loss oscillates, after falling faster than with few. Right: the saturated softmaxes of "
        "Gaussian tokens can hardly be trained, and the fewer heads, the higher the loss stops."
    )
    tables: dict[str, Table] = {"training": rows, "floor": {"gap": [floor], "N": [sizes.shown]}}
    return FigureData(tables, caption, judge_figure4(sizes, gaps, floor, steps))


def judge_figure4(
    sizes: Sizes, gaps: Mapping[Run, list[float]], floor: float, steps: int
) -> Verdict:
    """Shares are final gaps relative to that at the start, which is the same for all."""
    counts = [heads for tokens, heads, rate in gaps if tokens == UNIT and rate == RATE]
    share = {run: values[-1] / values[0] for run, values in gaps.items()}
    unit = {heads: share[UNIT, heads, RATE] for heads in counts}
    start = gaps[UNIT, 1, RATE][0]
    below = max(heads for heads in counts if heads < sizes.shown)
    enough = [heads for heads in counts if sizes.shown <= heads < counts[-1]]

    def rise(run: Run) -> float:
        """The most by which the gap rises above one that training had reached before."""
        least = accumulate(gaps[run], min)
        return max(gap / before for gap, before in zip(gaps[run], least, strict=True))

    def speed(heads: int) -> float:
        """How much of the logarithm of the gap a step removes, over the last 50 steps."""
        values = gaps[UNIT, heads, RATE]
        return math.log(values[-51] / values[-1]) / 50

    many = counts[-1]
    gaussian = share[GAUSSIAN, sizes.shown, RATE]
    return Verdict(
        printed=[
            Check(
                "smallest share of the gap left with fewer than N heads",
                min(value for heads, value in unit.items() if heads < sizes.shown),
                FAR,
                min(unit[heads] for heads in enough),
                "far from the minimum: a hundredth of the start",
                "N heads or more",
                at_least=True,
            )
        ],
        corrected=[
            Check(
                "final gap of one head relative to its floor",
                unit[1] * start / floor,
                1.0,
                unit[below] * start / floor,
                "the floor is a lower bound",
                f"{below} heads",
                at_least=True,
            ),
            Check(
                f"share of the gap left with H = {below} < N = {sizes.shown} heads",
                unit[below],
                FAR,
                share[GAUSSIAN, below, RATE],
                "a hundredth of the start, as above",
                "the same number of heads on Gaussian tokens",
            ),
            Check(
                f"largest share of the gap left with N to {enough[-1]} heads",
                max(unit[heads] for heads in enough),
                FAR,
                unit[1],
                "a hundredth of the start, as above",
                "one head",
            ),
            Check(
                f"speed of descent over the last 50 steps, {below} heads relative to N",
                speed(below) / speed(sizes.shown),
                0.5,
                speed(1) / speed(sizes.shown),
                "a run that has stopped has 0 and N heads have 1: nearer to going on",
                "one head",
                at_least=True,
            ),
            Check(
                f"largest rise of the gap over one already reached, {many} heads",
                rise((UNIT, many, RATE)),
                2.0,
                max(rise((UNIT, heads, RATE)) for heads in counts if heads != many),
                "instability: what was gained is lost again, by a factor of 2",
                "the largest with any smaller number of heads",
                at_least=True,
            ),
        ],
        correction=Correction(
            r"H < N:\; \text{the loss stops far from the minimum}",
            r"H = 1:\; L - L^\star \ge \text{floor} > 0;\qquad H \text{ somewhat below } N:\; "
            r"L \to L^\star \text{ nearly}",
            f"With tokens of norm 1, {below} heads for N = {sizes.shown} leave {unit[below]:.1e} "
            f"of the gap after {steps} steps and go on descending, at "
            f"{speed(below) / speed(sizes.shown):.2f} times the speed of N heads: Q is trained "
            "too, and H >= N is only needed for w alone to do the work. One head stays above its "
            "floor. With Gaussian tokens, which section 4 describes, the softmaxes are saturated "
            f"and Q hardly moves: there {below} heads leave {share[GAUSSIAN, below, RATE]:.2f} of "
            f"the gap, but N heads stop as well, at {gaussian:.2f}. The instability with "
            f"{many} heads, where the text has the loss diverge too, is an oscillation.",
        ),
        settings={
            "sizes": f"{replace(sizes, heads=0)}".replace(", H = 0", ""),
            "training": f"exact loss, Adam, learning rate {RATE}, {steps} steps, seed 0",
            "L*": infimum_and_axis(sizes),
            "gap at the start": round(start, 3),
            "floor of one head": round(floor, 3),
        }
        | {
            f"{tokens}, {heads} heads, learning rate {rate:g}": f"{share[tokens, heads, rate]:.1e} "
            f"of the gap left, largest rise {rise((tokens, heads, rate)):.2f} times"
            for tokens, heads, rate in gaps
        },
    )
