"""Figure 4: one layer with different numbers of heads, trained as `one_layer_training` says."""

from __future__ import annotations

import math
from dataclasses import replace
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
WHY_LOST = "instability: what was gained is lost again, by a factor of 2"


def draw_figure4(tables: Tables) -> Picture:
    table, runs = tables["training"], tables["runs"]
    lines = list(zip(runs["run"], runs["tokens"], runs["heads"], runs["rate"], strict=True))
    owner, step, gap = (np.asarray(table[column]) for column in ("run", "step", "gap"))
    counts = sorted({int(heads) for heads in runs["heads"]})
    colours = dict(
        zip(counts, colormaps["viridis"](np.linspace(0, 0.92, len(counts))), strict=True)
    )
    main, floor = lines[0][3], np.mean(np.asarray(runs["floor"], dtype=float))
    picture = Picture(figsize=(9.6, 4.0))
    for axes, name in zip(picture.subplots(1, 2, sharey=True), (UNIT, GAUSSIAN), strict=True):
        for run, tokens, heads, rate in lines:
            label = f"H = {heads}" + (f", rate {rate:g}" if rate != main else "")
            style = {"color": colours[int(heads)], "linestyle": "-" if rate == main else "--"}
            if tokens == name:
                here = owner == run
                axes.plot(step[here], gap[here], linewidth=0.9, label=label, **style)
        axes.axhline(floor, color="black", linewidth=0.8, linestyle=":", label="floor of one head")
        axes.set(xlabel="steps of Adam", yscale="log", title=f"{name}, N = {runs['N'][0]}")
    picture.axes[0].set_ylabel(r"$L - L^*$")
    handles, labels = picture.axes[0].get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    picture.axes[1].legend(
        once.values(), once, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5)
    )
    return picture


NEARLY = Correction(
    r"H < N:\; \text{the loss stops far from the minimum}",
    r"H = 1:\; L - L^\star \ge \text{floor} > 0;\qquad H \text{ somewhat below } N:\; "
    r"L \to L^\star \text{ nearly}",
    "With tokens of norm 1, somewhat fewer than N heads go nearly to the minimum: Q is trained "
    "too, and H >= N is only needed for w alone to do the work. One head stays above its floor. "
    "With Gaussian tokens, which section 4 describes, the softmaxes are saturated and Q hardly "
    "moves. The instability with very many heads, where the text has the loss diverge too, is an "
    "oscillation, and belongs to the learning rate: a step of Adam moves every attention weight by "
    "about H times it.",
    kind=Kind.SENTENCE,
)


def judge_figure4(tables: Tables) -> Verdict:
    columns = {name: np.asarray(values) for name, values in tables["runs"].items()}
    n, main, counts = columns["N"][0], columns["rate"][0], np.unique(columns["heads"]).tolist()
    many, below = counts[-1], max(heads for heads in counts if heads < n)

    def of(column: str, heads: int, tokens: str = UNIT, rate: float = main) -> list[float]:
        """For every start."""
        rows = (
            (columns["tokens"] == tokens) & (columns["heads"] == heads) & (columns["rate"] == rate)
        )
        return columns[column][rows].tolist()

    enough = max((h for h in counts if n <= h < many), key=lambda heads: sum(of("share", heads)))
    rates = np.unique(columns["rate"][columns["heads"] == many]).tolist()
    few, slow = f"H = {below} < N", f"H = {enough}, the most left with N heads or more"
    stuck = f"H = {below}, Gaussian tokens"

    def left(stops: bool) -> Cases:
        return measured(
            "mean logarithm of the share of the gap that is left",
            (at_least if stops else at_most)(math.log(FAR), WHY_FAR),
            {
                few: mean_log(of("share", below)),
                slow: mean_log(of("share", enough)),
                stuck: mean_log(of("share", below, GAUSSIAN)),
                "H = 1": mean_log(of("share", 1)),
            },
        )

    floor = measured(
        "lowest final gap relative to the floor of one head",
        at_least(1.0, "the floor is a lower bound"),
        {f"H = {heads}": min(of("to floor", heads)) for heads in (1, below)},
    )
    unstable = measured(
        "smallest over the starts of the largest rise of the gap",
        at_least(2.0, WHY_LOST),
        {f"H = {heads}": min(of("rise", heads)) for heads in (many, n)},
    )
    stable = measured(
        f"largest rise of the gap with H = {many}",
        at_most(2.0, WHY_LOST),
        {f"learning rate {rate:g}": max(of("rise", many, rate=rate)) for rate in rates},
    )
    return Verdict(
        printed=[
            left(stops=True).check(few, unlike=slow),
            unstable.check(f"H = {many}", unlike=f"H = {n}"),
        ],
        corrected=[
            floor.check("H = 1", unlike=f"H = {below}"),
            left(stops=False).check(few, unlike=stuck),
            left(stops=False).check(slow, unlike="H = 1"),
            stable.check(f"learning rate {rates[0]:g}", unlike=f"learning rate {rates[-1]:g}"),
        ],
        correction=replace(
            NEARLY,
            counterexample=f"{below} heads for N = {n} leave {math.exp(left(True)[few]):.1e} of "
            f"the gap with tokens of norm 1 and {math.exp(left(True)[stuck]):.2f} with Gaussian "
            "ones (geometric means over the starts).",
        ),
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
    many, rate = counts[-1], recipe.rate
    other = QUICK_RATE if rate < QUICK_RATE else rate / 10
    kinds = [(UNIT, heads, rate) for heads in counts] + [(UNIT, many, other)]
    kinds += [(GAUSSIAN, heads, rate) for heads in gaussian]
    table: dict[str, list[float | int | str]] = {"run": [], "step": [], "gap": []}
    runs: dict[str, list[float | int | str]] = {}
    for run, ((tokens, heads, rate), seed) in enumerate(
        (kind, seed) for kind in kinds for seed in range(recipe.seeds)
    ):
        made = recipe.made(heads, tokens, seed)
        floor = theory.softmax.one_head_floor(made.risk)
        steps = steps_of_many if heads == many else recipe.steps
        history = adam(made, recipe, every=max(steps // 600, 1), rate=rate, steps=steps)
        gaps = [loss - made.risk.infimum for loss in history["loss"]]
        rise = max(gap / low for gap, low in zip(gaps, accumulate(gaps, min), strict=True))
        row: dict[str, float | int | str] = {
            "run": run,
            "tokens": tokens,
            "heads": heads,
            "rate": rate,
            "seed": seed,
        }
        row |= {"N": made.task.shown, "floor": floor, "share": gaps[-1] / gaps[0]}
        for name, value in (row | {"rise": rise, "to floor": gaps[-1] / floor}).items():
            runs.setdefault(name, []).append(value)
        table["run"] += [run] * len(gaps)
        table["step"] += history["step"]
        table["gap"] += gaps
    return Numbers(
        {"training": table, "runs": runs},
        "The training loss above its infimum for different numbers of heads, every line a "
        "dictionary and start of its own. Left: one head and a few are stopped; from somewhat "
        "below H = N on, training converges; with many heads the loss oscillates, the more heads "
        "the earlier, and at another learning rate (dashed) it does not. Right: the saturated "
        "softmaxes of Gaussian "
        "tokens can hardly be trained, and the fewer heads, the higher the loss stops. Drawn is "
        "L - L*: with tau = 0.01 no loss itself could reach the 0.001 of the printed axis. "
        f"{recipe.in_words} Sizes: {recipe.sizes}; the paper has N = 30 and K = 200.",
        {
            "training": f"{recipe}, exact loss; {steps_of_many} steps with {many} heads",
            "starts of each": recipe.seeds,
        },
        [infimum_and_axis(recipe.sizes)],
    )
