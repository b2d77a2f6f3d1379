"""Figure 4: one layer with different numbers of heads, trained as `one_layer_training` says."""

import math
from dataclasses import replace
from itertools import accumulate

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure as Picture

from innerloop import theory
from innerloop.papers.quantity import at_least, at_most, checks
from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.papers.yang2024.one_layer_training import GAUSSIAN, QUICK_RATE, UNIT, recipe_4
from innerloop.papers.yang2024.settings import Rows, add, mean_log

WHY_FAR = "far from the minimum: a hundredth of the gap at the start; mean over the starts"
STOPS, GOES_ON = at_least(math.log(1e-2), WHY_FAR), at_most(math.log(1e-2), WHY_FAR)
WHY_LOST = "instability: what was gained is lost again, by a factor of 2"
BOUND = at_least(1.0, "the floor is a lower bound")


def draw_figure4(tables: Tables) -> Picture:
    table, runs = tables["training"], tables["runs"]
    lines = list(zip(runs["run"], runs["tokens"], runs["heads"], runs["rate"], strict=True))
    owner, step, gap = (np.asarray(table[column]) for column in ("run", "step", "gap"))
    counts = sorted({int(heads) for heads in runs["heads"]})
    shades = colormaps["viridis"](np.linspace(0, 0.92, len(counts)))
    main, floor = lines[0][3], np.mean(np.asarray(runs["floor"], dtype=float))
    picture = Picture(figsize=(9.6, 4.0))
    for axes, name in zip(picture.subplots(1, 2, sharey=True), (UNIT, GAUSSIAN), strict=True):
        for run, tokens, heads, rate in lines:
            label = f"H = {heads}" + (f", rate {rate:g}" if rate != main else "")
            colour, style = shades[counts.index(int(heads))], "-" if rate == main else "--"
            if tokens == name:
                x, y = step[owner == run], gap[owner == run]
                axes.plot(x, y, style, color=colour, linewidth=0.9, label=label)
        axes.axhline(floor, color="black", linewidth=0.8, linestyle=":", label="floor of one head")
        axes.set(xlabel="steps of Adam", yscale="log", title=f"{name}, N = {runs['N'][0]}")
    picture.axes[0].set_ylabel(r"$L - L^*$")
    handles, labels = picture.axes[0].get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    picture.axes[1].legend(
        once.values(), once, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5)
    )
    return picture


def judge_figure4(tables: Tables) -> Verdict:
    columns = {name: np.asarray(values) for name, values in tables["runs"].items()}
    n, main, counts = columns["N"][0], columns["rate"][0], np.unique(columns["heads"]).tolist()
    many, below = counts[-1], max(heads for heads in counts if heads < n)

    def of(column: str, heads: int, tokens: str = UNIT, rate: float = main) -> np.ndarray:
        """For every start."""
        kind = (columns["tokens"] == tokens) & (columns["heads"] == heads)
        return columns[column][kind & (columns["rate"] == rate)]

    enough = max((h for h in counts if n <= h < many), key=lambda heads: of("share", heads).mean())
    rates = np.unique(columns["rate"][columns["heads"] == many]).tolist()
    few = {f"H = {below} < N": mean_log(of("share", below))}
    slow = {f"H = {enough}, the most left with N heads or more": mean_log(of("share", enough))}
    stuck = {f"H = {below}, Gaussian tokens": mean_log(of("share", below, GAUSSIAN))}
    one = {"H = 1": mean_log(of("share", 1))}
    above, under = ({f"H = {heads}": of("to floor", heads).min()} for heads in (1, below))
    lost, kept = ({f"H = {heads}": of("rise", heads).min()} for heads in (many, n))
    calm, wild = (
        {f"learning rate {rate:g}": of("rise", many, rate=rate).max()}
        for rate in (rates[0], rates[-1])
    )
    left, floor = "mean logarithm of the share of the gap that is left", "lowest final gap / floor"
    rise = "the largest rise of the gap"
    ((near,), (far,)) = ([math.exp(mean.mean) for mean in case.values()] for case in (few, stuck))
    return Verdict(
        printed=[
            *checks(left, STOPS, few, unlike=slow),
            *checks(f"smallest of {rise}", at_least(2.0, WHY_LOST), lost, unlike=kept),
        ],
        corrected=[
            *checks(f"{floor} of one head", BOUND, above, unlike=under),
            *checks(left, GOES_ON, few | slow, unlike=stuck | one),
            *checks(f"{rise}, H = {many}", at_most(2.0, WHY_LOST), calm, unlike=wild),
        ],
        correction=Correction(
            r"H < N:\; \text{the loss stops far from the minimum}",
            r"H = 1:\; L - L^\star \ge \text{floor} > 0;\qquad H \text{ somewhat below } N:\; "
            r"L \to L^\star \text{ nearly}",
            "With tokens of norm 1, somewhat fewer than N heads go nearly to the minimum, since Q "
            "is trained too: H >= N is only needed for w alone to do the work. One head stays "
            "above its floor. With the Gaussian tokens of section 4 the softmaxes are saturated "
            "and Q hardly moves. The instability with very many heads, where the text has the loss "
            "diverge, is an oscillation, and belongs to the learning rate: a step of Adam moves "
            "every attention weight by about H times it.",
            kind=Kind.SENTENCE,
            counterexample=f"{below} heads for N = {n} leave {near:.1e} of the gap with tokens of "
            f"norm 1 and {far:.2f} with Gaussian ones (geometric means over the starts).",
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
    counts, gaussian, of_many = scale.pick(
        smoke=([1, 8, 10, 400], [8], replace(recipe, steps=300, seeds=3)),
        quick=([1, 2, 5, 8, 10, 20, 40, 400], [5, 8, 10], replace(recipe, steps=300)),
        paper=([1, 5, 10, 20, 30, 40, 50, 150, 400], [5, 20, 30, 50], recipe),
    )
    many, main = counts[-1], recipe.rate
    kinds = [(UNIT, heads, main) for heads in counts]
    kinds += [(UNIT, many, QUICK_RATE if main < QUICK_RATE else main / 10)]
    kinds += [(GAUSSIAN, heads, main) for heads in gaussian]
    table, runs = Rows(), Rows()
    for tokens, heads, rate in kinds:
        used = replace(of_many if heads == many else recipe, rate=rate)
        for seed in range(used.seeds):
            made, run = recipe.made(heads, tokens, seed), len(runs.get("run", []))
            floor = theory.softmax.one_head_floor(made.risk)
            history = used.train(made, max(used.steps // 600, 1))
            gaps = [loss - made.risk.infimum for loss in history["loss"]]
            rise = max(gap / low for gap, low in zip(gaps, accumulate(gaps, min), strict=True))
            add(runs, {"run": run, "tokens": tokens, "heads": heads, "rate": rate, "seed": seed})
            add(runs, {"N": made.task.shown, "floor": floor, "share": gaps[-1] / gaps[0]})
            add(runs, {"rise": rise, "to floor": gaps[-1] / floor})
            for step, gap in zip(history["step"], gaps, strict=True):
                add(table, {"run": run, "step": step, "gap": gap})
    return Numbers(
        {"training": table, "runs": runs},
        "The training loss above its infimum for different numbers of heads, every line a "
        "dictionary and start of its own. Left: one head and a few are stopped; from somewhat "
        "below H = N on, training converges; with many heads the loss oscillates, and at another "
        "learning rate (dashed) it does not. Right: with Gaussian tokens, fewer heads stop higher. "
        f"{recipe.in_words} Sizes: {recipe.sizes}; the paper has N = 30 and K = 200.",
        {
            "training": f"{recipe}, exact loss; {of_many.steps} steps with {many} heads",
            "starts of each": f"{recipe.seeds}, and {of_many.seeds} of {many} heads",
        },
        [recipe.about_tau],
    )
