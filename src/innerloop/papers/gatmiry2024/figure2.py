"""Figure 2 of Gatmiry et al. (2024): the loss during training, looped and with L layers."""

from __future__ import annotations

from itertools import pairwise

from matplotlib.figure import Figure as Picture

from innerloop import theory
from innerloop.papers.gatmiry2024.figure_parts import (
    CHOSEN,
    EXAMPLES,
    LARGE_D,
    LEFT_OPEN,
    as_rows,
    as_table,
    exact_row,
    lands_on_the_best_step,
    loop_colour,
    loop_counts,
    plot_each,
    seeds,
)
from innerloop.papers.gatmiry2024.training import (
    BATCH,
    EXACT_LAYERS,
    Row,
    looped_transformer,
    untied_transformer,
)
from innerloop.papers.plots import history_table
from innerloop.papers.quantity import at_most, measured
from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict


def judge(tables: Tables) -> Verdict:
    ends = as_rows(tables["ends"])
    exact = {(row["n"], row["loops"]): row for row in as_rows(tables["exact"])}

    def loss(kind: str, n: int, loops: int, key: str) -> float:
        """The largest of all starts."""
        return max(e[key] for e in ends if (e["training"], e["n"], e["loops"]) == (kind, n, loops))

    counts = sorted({loops for _, loops in exact})
    sizes = sorted({n for n, _ in exact})
    few, last = sizes[0], counts[-1]
    looped = {key: loss("looped", *key, "ray loss") for key in exact}
    layers = {key: loss("layers", *key, "loss") for key in exact if key[1] > 1}
    ratio = {key: looped[key] / layers[key] for key in layers}
    similar = measured(
        "ratio of the loss of L loops to that of L layers",
        at_most(2.0, "similar is read as within a factor of two"),
        {
            f"largest, L up to {last}": max(ratio.values()),
            "L = 2": max(ratio[n, 2] for n in sizes),
            f"L = 5, n = {sizes[-1]}": ratio[sizes[-1], 5],
        },
    )
    lower = measured(
        "ratio of the loss of more loops to that of fewer",
        at_most(1.0, "lower means a ratio below 1"),
        {
            "trained, largest": max(
                looped[n, more] / looped[n, fewer]
                for n in sizes
                for fewer, more in pairwise(counts)
            ),
            f"10 and 5 loops of the step that is best for one, n = {few}": (
                exact[few, 1]["10 loops of the best step"]
                / exact[few, 1]["5 loops of the best step"]
            ),
        },
    )
    reached = measured(
        "relative excess over the exact optimum of L layers",
        at_most(1e-3, "L-BFGS on the exact loss stops where it falls by 1e-9 of itself"),
        {
            "L layers, largest": max(
                layers[key] / exact[key]["loss of L layers"] - 1 for key in layers
            ),
            "L loops, smallest": min(
                looped[key] / exact[key]["loss of L layers"] - 1 for key in layers
            ),
        },
    )
    more = lower.check(
        "trained, largest", unlike=f"10 and 5 loops of the step that is best for one, n = {few}"
    )
    return Verdict(
        printed=[
            similar.check(f"largest, L up to {last}", unlike=f"L = 5, n = {sizes[-1]}"),
            more,
        ],
        corrected=[
            more,
            similar.check("L = 2", unlike=f"L = 5, n = {sizes[-1]}"),
            reached.check("L layers, largest", unlike="L loops, smallest"),
            *lands_on_the_best_step(
                [e for e in ends if e["training"] == "looped"], tables["exact"], LARGE_D
            ),
        ],
        correction=Correction(
            r"L_{\mathrm{looped}}(L) \approx L_{\mathrm{layers}}(L)",
            r"\frac{L_{\mathrm{looped}}(L)}{L_{\mathrm{layers}}(L)} = "
            r"\frac{\min_a \mathbf{E}\,\mathrm{tr}\,(I - aW/n)^{2L}}"
            r"{\min_{a_1, \ldots, a_L} \mathbf{E}\,\mathrm{tr}\prod_\ell (I - a_\ell W/n)^2}",
            "More loops do lower the loss. That looping is nearly as good as separate layers holds "
            "for L = 2 (and a little longer where n is close to d): L different steps can be the "
            "best polynomial of degree L (the idea of Chebyshev's iteration), one step repeated "
            f"cannot. Next to {LARGE_D}, the loss of zero weights, both are small, which may be "
            "why they look similar.",
            Kind.SENTENCE,
            "Ratios of the trained losses: "
            + "; ".join(
                f"n = {n}: "
                + ", ".join(f"{ratio[n, loops]:.3g} (L = {loops})" for loops in counts if loops > 1)
                for n in sizes
            )
            + ".",
        ),
    )


def draw(tables: Tables) -> Picture:
    table, exact = tables["training"], as_rows(tables["exact"])
    picture = Picture(figsize=(11, 6.2))
    panels = picture.subplots(2, 2, sharey="row")
    for row, n in zip(panels, sorted({e["n"] for e in exact}), strict=True):
        for best in (e for e in exact if e["n"] == n):
            loops = best["loops"]
            name, colour, label = f"n={n} L={loops}", loop_colour(loops), f"$L = {loops}$"
            plot_each(row[0], table, f"looped {name}", "loss", colour, label)
            kind = "layers" if loops > 1 else "looped"  # one layer is one loop
            plot_each(row[1], table, f"{kind} {name}", "loss", colour, label)
            for axes, key in zip(row, ("loss", "loss of L layers"), strict=True):
                axes.axhline(best[key], color=colour, linestyle=":", linewidth=1)
        row[0].set(title=f"one layer, looped, $n = {n}$", yscale="log", ylabel="loss")
        row[1].set(title=f"$L$ layers, $n = {n}$", yscale="log")
        for axes in row:
            axes.set(xlabel="L-BFGS iteration", xlim=(0, 60))
        row[1].legend(fontsize=8, loc="upper right")
    panels[0][0].legend(fontsize=8, loc="upper right", title="dotted: exact optimum")
    return picture


@figure(
    "gatmiry2024/figure2",
    "More loops give a lower loss, and one layer looped L times does about as well as L layers",
    source="Figure 2, section 5.1",
    judge=judge,
    draw=draw,
    shares="looped transformers",
)
def figure2(scale: Scale) -> Numbers:
    d, counts = LARGE_D, loop_counts(scale)
    settings = [(n, loops) for n in EXAMPLES for loops in counts]
    looped = {key: [looped_transformer(d, *key, s) for s in seeds(scale)] for key in settings}
    layers = {
        key: [(s, untied_transformer(d, *key, s)) for s in seeds(scale)]
        for key in settings
        if key[1] > 1
    }
    ends = [run.row("looped") for runs in looped.values() for run in runs]
    for (n, loops), histories in layers.items():
        for seed, history in histories:
            row: Row = dict.fromkeys(ends[0], float("nan"))
            row |= {"training": "layers", "n": n, "loops": loops, "seed": seed}
            ends.append(row | {"loss": history["loss"][-1]})
    exact = []
    for n, loops in settings:
        row = exact_row(loops, n, d)
        longer = theory.linear.loop_risks(float(row["step size"]), 10, n, d).tolist()
        row |= {f"{k} loops of the best step": longer[k] for k in (5, 10)}
        exact.append(row | {"loss of L layers": theory.linear.untied_optimum(loops, n, d).risk})
    both = history_table(
        {
            f"looped n={n} L={k}": [(run.seed, run.history) for run in group]
            for (n, k), group in looped.items()
        }
    )
    other = history_table({f"layers n={n} L={k}": group for (n, k), group in layers.items()})
    keys = ("training", "seed", "step", "loss")
    return Numbers(
        {
            "training": {key: [*both[key], *other[key]] for key in keys},
            "ends": as_table(ends),
            "exact": as_table(exact),
        },
        f"Training loss (d = {d}), a line for each of {len(seeds(scale))} starts, of one layer "
        "looped L times (left) and of L layers (right); dotted lines are the exact optima, which "
        "training reaches. More loops lower the loss. Beyond L = 2 layers of their own lower it "
        "much more. Looped curves jump where a fresh sample begins; iterations after the 60th, "
        f"which only the slowest need, are not shown. {LEFT_OPEN}, nor n. {CHOSEN}; L layers "
        f"on the exact loss, symmetric matrices up to L = {EXACT_LAYERS} and multiples of the "
        "identity beyond.",
        {"d": d, "n": ", ".join(map(str, EXAMPLES)), "seeds": len(seeds(scale))},
        [
            f"Chosen by looking: {BATCH} Wishart matrices per round; with 5, ten loops at n = 100 "
            "ended with a part off the ray that added up to 1e-3 of the loss."
        ],
    )
