"""Figure 2 of Gatmiry et al. (2024): the loss during training, looped and with L layers."""

from itertools import pairwise, product

from matplotlib.figure import Figure as Picture

from innerloop import theory
from innerloop.papers import Correction, Kind, Numbers, Scale, Table, Tables, Verdict, figure
from innerloop.papers.gatmiry2024 import figure_parts as parts
from innerloop.papers.gatmiry2024 import training
from innerloop.papers.plots import as_rows, as_table, history_table
from innerloop.papers.quantity import at_most, checks


def worst(table: Table, column: str) -> dict[tuple[int, int], float]:
    """The largest loss of all starts, by n and loops."""
    found: dict[tuple[int, int], float] = {}
    for row in as_rows(table):
        key = row["n"], row["loops"]
        found[key] = max(row[column], found.get(key, 0.0))
    return found


def judge(tables: Tables) -> Verdict:
    exact = parts.by_setting(tables["exact"])
    looped, layers = worst(tables["ends"], "ray loss"), worst(tables["layers"], "loss")
    ratio = {key: looped[key] / layers[key] for key in layers}
    few, many = parts.EXAMPLES
    similar, similar_for_two = checks(
        "ratio of the loss of L loops to that of L layers",
        at_most(2.0, "similar is read as within a factor of two"),
        {"largest": max(ratio.values()), "L = 2": max(ratio[few, 2], ratio[many, 2])},
        unlike={f"L = 5, n = {many}": ratio[many, 5]},
    )
    best = {key: exact[key]["loss of L layers"] for key in layers}
    reached = checks(
        "relative difference from the exact optimum of L layers",
        at_most(1e-3, "L-BFGS on the exact loss stops where it falls by 1e-9 of itself"),
        {"L layers, largest": max(abs(layers[key] / best[key] - 1) for key in best)},
        unlike={"L loops, smallest": min(looped[key] / best[key] - 1 for key in best)},
    )
    counts = sorted({loops for _, loops in looped})
    pairs = [(n, fewer, more) for n in parts.EXAMPLES for fewer, more in pairwise(counts)]
    five, ten = (exact[few, 1][f"{k} loops of the best step"] for k in (5, 10))
    lower = checks(
        "ratio of the loss of more loops to that of fewer",
        at_most(1.0, "lower means a ratio below 1"),
        {"trained, largest": max(looped[n, more] / looped[n, fewer] for n, fewer, more in pairs)},
        unlike={f"10 and 5 loops of the step that is best for one, n = {few}": ten / five},
    )
    ends = as_rows(tables["ends"])
    lands = parts.lands_on_the_best_step(ends, tables["exact"], parts.LARGE_D)
    listed = ", ".join(f"{r:.3g} (n = {n}, L = {loops})" for (n, loops), r in ratio.items())
    return Verdict(
        [similar, *lower],
        [*lower, similar_for_two, *reached, *lands],
        Correction(
            r"L_{\mathrm{looped}}(L) \approx L_{\mathrm{layers}}(L)",
            r"\frac{L_{\mathrm{looped}}(L)}{L_{\mathrm{layers}}(L)} = "
            r"\frac{\min_a \mathbf{E}\,\mathrm{tr}\,(I - aW/n)^{2L}}"
            r"{\min_{a_1, \ldots, a_L} \mathbf{E}\,\mathrm{tr}\prod_\ell (I - a_\ell W/n)^2}",
            "More loops do lower the loss. Looping is nearly as good as layers for L = 2 alone, "
            "and a little longer where n is close to d: L steps can be the best polynomial of "
            "degree L (the idea of Chebyshev's iteration), one step repeated cannot. "
            f"Next to {parts.LARGE_D}, the loss of zero weights, both look alike.",
            Kind.SENTENCE,
            f"Ratios of the trained losses: {listed}.",
        ),
    )


def draw(tables: Tables) -> Picture:
    columns = ("looped", "loss", "loss"), ("layers", "loss", "loss of L layers")
    picture = parts.drawn(tables, (11, 6.2), *columns, sharey="row")
    titles = product(parts.EXAMPLES, ("one layer, looped", "$L$ layers"))
    for axes, (n, title) in zip(picture.axes, titles, strict=True):
        axes.set(title=f"{title}, $n = {n}$", yscale="log", xlabel="L-BFGS iteration", xlim=(0, 60))
    for left in picture.axes[::2]:
        left.set_ylabel("loss")
    return picture


def exact_row(loops: int, n: int, d: int) -> training.Row:
    """That of all figures, what longer loops of its step do, and the optimum of L layers."""
    row = parts.exact_row(loops, n, d)
    longer = theory.linear.loop_risks(float(row["step size"]), 10, n, d).tolist()
    row |= {f"{k} loops of the best step": longer[k] for k in (5, 10)}
    return row | {"loss of L layers": theory.linear.untied_optimum(loops, n, d).risk}


@figure(
    "gatmiry2024/figure2",
    "More loops give a lower loss, and one layer looped L times does about as well as L layers",
    source="Figure 2, section 5.1",
    judge=judge,
    draw=draw,
    shares="looped transformers",
)
def figure2(scale: Scale) -> Numbers:
    d, (seeds, _), settings = parts.LARGE_D, parts.starts(scale), parts.settings(scale)
    ends: list[training.Row] = []
    layers: list[training.Row] = []
    histories = {}
    for n, loops in settings:
        runs = [training.looped_transformer(d, n, loops, seed) for seed in seeds]
        ends += [run.row("looped") for run in runs]
        histories[f"looped n={n} L={loops}"] = [(run.seed, run.history) for run in runs]
        untied = [(run.seed, run.history) for run in runs]  # one layer is one loop
        if loops > 1:
            untied = [(s, training.untied_transformer(d, n, loops, s)) for s in seeds]
            own = {"n": n, "loops": loops}
            layers += [{**own, "seed": s, "loss": h["loss"][-1]} for s, h in untied]
        histories[f"layers n={n} L={loops}"] = untied
    every = history_table(histories)
    return Numbers(
        {
            "training": {key: every[key] for key in ("training", "seed", "step", "loss")},
            "ends": as_table(ends),
            "layers": as_table(layers),
            "exact": as_table(exact_row(loops, n, d) for n, loops in settings),
        },
        f"Training loss (d = {d}), mean and range over {len(seeds)} starts, of one layer looped L "
        "times (left) and of L layers (right); dotted: the exact optima, which training reaches. "
        "Looped curves jump where a fresh sample begins; iterations after the 60th are not shown. "
        f"{parts.PROCEDURE} L layers: on the exact loss, symmetric up to "
        f"L = {training.EXACT_LAYERS}, multiples of the identity beyond.",
        {"d": d, "n": parts.EXAMPLES},
        [
            f"Chosen by looking: {training.BATCH} Wishart matrices per round; with 5, ten loops at "
            "n = 100 ended with a part off the ray that added up to 1e-3 of the loss, with 20 2e-4."
        ],
    )
