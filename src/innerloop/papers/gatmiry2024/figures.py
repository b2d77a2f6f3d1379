"""Figures 1 and 2 of Gatmiry et al. (2024): where looped training ends, and how low the loss gets.

The paper leaves the number of loops of Figure 1 and the number of examples of Figures 2 to 4 open:
here L = 5, and n = 20 and 100. How training differs from the paper's is told in `training`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure as Picture

from innerloop import theory
from innerloop.papers.gatmiry2024.training import (
    EXACT_LAYERS,
    INITIAL_STD,
    Trained,
    looped_transformer,
    prompt_trained,
    untied_transformer,
)
from innerloop.papers.plots import history_table, plot_runs
from innerloop.papers.registry import FigureData, Table, figure
from innerloop.papers.verdict import Check, Correction, Scale, Verdict

BLUE, RED, GREY, GREEN = "#0072B2", "#D55E00", "#555555", "#009E73"
SMALL_D, LOOPS_OF_FIGURE1 = 5, 5
LARGE_D, EXAMPLES = 10, (20, 100)
WHY_ONE_PERCENT = "a hundredth of a*; L-BFGS itself gets to a ten-thousandth"
WHY_SIMILAR = "similar is taken to mean within a factor of two"


def seeds(scale: Scale) -> range:
    return range(scale.pick(smoke=1, quick=5, paper=5))


def prompt_seeds(scale: Scale) -> range:
    """Training on prompts is slow, and its bias is the same for all seeds: fewer of them."""
    return range(scale.pick(smoke=1, quick=1, paper=5))


def loop_counts(scale: Scale) -> tuple[int, ...]:
    return scale.pick(smoke=(1, 2, 5), quick=(1, 2, 3, 5, 10), paper=(1, 2, 3, 5, 10))


def loop_colour(loops: int) -> str:
    """Darker for fewer loops; the same in all figures."""
    red, green, blue, _ = colormaps["viridis"](np.log(loops) / np.log(14))
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def step_gap(run: Trained, step: float | None = None) -> float:
    """How far tr(A)/d, or another step, is from the best step, relative to it."""
    return abs((run.step if step is None else step) / run.best_step - 1)


def excess(run: Trained, loss: float | None = None) -> float:
    """How far the exact loss at the trained step, or another, is above the optimum."""
    return (run.ray_loss if loss is None else loss) / run.best.risk - 1


def loss_of_identity(run: Trained) -> float:
    """The exact loss of A = I."""
    return theory.loop_risks(1.0, run.model.loops, run.task.n, run.task.d)[-1].item()


def end_table(runs: Mapping[str, list[Trained]]) -> Table:
    """Where every training ended: one row each."""
    rows = [
        {
            "training": name,
            "n": run.task.n,
            "loops": run.model.loops,
            "seed": run.seed,
            "step size": run.step,
            "best step size": run.best_step,
            "distance": run.history["distance"][-1],
            "dist": run.history["dist"][-1],
            "shift": run.history["shift"][-1],
            "loss": run.loss,
            "best loss": run.best.risk,
        }
        for name, group in runs.items()
        for run in group
    ]
    return {key: [row[key] for row in rows] for key in rows[0]}


def draw_figure1(tables: Mapping[str, Table]) -> Picture:
    ends, exact = tables["ends"], tables["exact"]
    columns = {key: np.asarray(values) for key, values in ends.items()}
    picture = Picture(figsize=(11.5, 3.1))
    panels = picture.subplots(1, 4)
    styles = {
        "symmetric": ("o", BLUE, "trained, symmetric $A$"),
        "prompts": ("x", RED, "Adam on fresh prompts"),
    }
    for axes, key in zip(panels, ("step size", "distance", "dist", "loss"), strict=True):
        for name, (marker, colour, label) in styles.items():
            if key == "loss" and name == "prompts":
                continue  # a batch's loss says little: rare prompts carry it
            chosen = columns["training"] == name
            axes.plot(columns["n"][chosen], columns[key][chosen], marker, color=colour, label=label)
        axes.set(xscale="log", xlabel="examples $n$")
        axes.set_xticks([2, 5, 10, 20, 50, 100], ["2", "5", "10", "20", "50", "100"])
    for axes, key, label in (
        (panels[0], "step size", "exact $a^*$"),
        (panels[1], "distance", r"exact $(1 - a^*)\sqrt{d}$"),
        (panels[3], "loss", "exact optimum"),
    ):
        axes.plot(exact["n"], exact[key], color="black", linewidth=0.9, label=label, zorder=1)
    panels[0].axhline(1, color=GREY, linestyle=":", linewidth=1, label="$A = I$")
    panels[0].set(title="(a) step size tr$(A)/d$", ylim=(0, 1.08))
    panels[1].set(title=r"(b) $\|A - I\|_F$", ylim=(0, None))
    panels[2].set(title="(c) Dist to multiples of $I$", yscale="log")
    panels[3].set(title="(d) loss", yscale="log")
    for axes in (panels[0], panels[3]):
        axes.legend(fontsize=7)
    return picture


@figure(
    "gatmiry2024/figure1",
    "Looped training converges for every number of examples, to an A very close to the identity "
    "even when n < d",
    source="Figure 1, section 5.2",
    draw=draw_figure1,
)
def figure1(scale: Scale) -> FigureData:
    d, loops = SMALL_D, LOOPS_OF_FIGURE1
    every_size = (2, 3, 5, 10, 20, 50, 100)
    sizes = scale.pick(smoke=(2, 20), quick=every_size, paper=every_size)
    trained = [looped_transformer(d, n, loops, seed) for n in sizes for seed in seeds(scale)]
    prompts = [
        prompt_trained(d, n, loops, seed, scale) for n in sizes for seed in prompt_seeds(scale)
    ]
    best = {n: theory.looped_optimum(loops, n, d) for n in sizes}
    steps = {n: optimum.steps[0].item() for n, optimum in best.items()}
    off = [run.step / run.best_step - 1 for run in prompts]
    verdict = Verdict(
        printed=[
            Check(
                "largest |A - I|_F / |I|_F",
                max(run.history["distance"][-1] for run in trained) / d**0.5,
                0.1,
                min(run.history["distance"][0] for run in trained) / d**0.5,
                "very close is taken to mean within a tenth",
                "the initial matrices",
            )
        ],
        corrected=[
            Check(
                "largest relative difference of tr(A)/d from the exact best step a*",
                max(step_gap(run) for run in trained),
                0.01,
                min(step_gap(run, 1.0) for run in trained),
                WHY_ONE_PERCENT,
                "a step size of 1",
            ),
            Check(
                "largest Dist of A from multiples of I",
                max(run.history["dist"][-1] for run in trained),
                0.01,
                min(run.history["dist"][0] for run in trained),
                "a hundredth of its largest possible value",
                "the initial matrices",
            ),
            Check(
                "largest |u|",
                max(run.history["shift"][-1] for run in trained),
                1e-3,
                min(run.history["shift"][0] for run in trained),
                "u* = 0, and the loss is quadratic in u: a loss within 1e-6 allows about this",
                "the initial shifts",
            ),
            Check(
                "largest relative excess of the exact loss at the trained step over the optimum",
                max(excess(run) for run in trained),
                1e-3,
                min(excess(run, loss_of_identity(run)) for run in trained),
                "the loss is quadratic at the optimum, so a step within 1% is far closer in loss",
                "the exact loss of A = I",
            ),
        ],
        correction=Correction(
            r"A \to A^{opt} \approx I \text{ even for } n < d",
            r"A \to a^* I, \quad a^* = \mathrm{argmin}_a\, \mathbf{E}\,\mathrm{tr}\,"
            r"(I - a W/n)^{2L}",
            "The picture is right in that A becomes a multiple of the identity, and wrong in the "
            "multiple. With few examples a full step would overshoot along the large eigenvalues "
            "of the sample covariance, and the best step is shorter: exactly "
            f"a* = {steps[sizes[0]]:.3f} at n = {sizes[0]} and {steps[sizes[-1]]:.3f} at "
            f"n = {sizes[-1]} (d = {d}, L = {loops}). Training ends there for every n. With A = I "
            f"the loss at n = {sizes[0]} would be "
            f"{theory.loop_risks(1.0, loops, sizes[0], d)[-1].item():.3g} in place of "
            f"{best[sizes[0]].risk:.3f}.",
        ),
        settings={
            "d": d,
            "loops": loops,
            "a*": ", ".join(f"{n}: {step:.3f}" for n, step in steps.items()),
            "seeds": len(seeds(scale)),
            "initial std": INITIAL_STD,
            "optimizer": "L-BFGS over symmetric A and free u, on fresh variance-reduced samples",
            "Adam on fresh prompts, A free": "tr(A)/d relative to a*: "
            + ", ".join(f"{run.task.n}: {run.step / run.best_step - 1:+.1%}" for run in prompts),
        },
    )
    caption = (
        f"Looped transformers (d = {d}, {loops} loops) trained with n examples. Blue: symmetric A, "
        f"{len(seeds(scale))} seeds, which fall on each other and on the exact optimum (black). "
        "Red: free A, Adam on fresh prompts, as the paper may have done it; it ends "
        f"{min(off):+.0%} to {max(off):+.0%} from the best step, since rare prompts carry the "
        "loss, and off the multiples of the identity. A is never close to I with few "
        "examples; it is close to a multiple of I."
    )
    tables: dict[str, Table] = {
        "ends": end_table({"symmetric": trained, "prompts": prompts}),
        "exact": {
            "n": list(sizes),
            "step size": [steps[n] for n in sizes],
            "distance": [(1 - steps[n]) * d**0.5 for n in sizes],
            "loss": [best[n].risk for n in sizes],
        },
    }
    return FigureData(tables, caption, verdict)


def draw_figure2(tables: Mapping[str, Table]) -> Picture:
    table, exact = tables["training"], tables["exact"]
    picture = Picture(figsize=(11, 6.2))
    panels = picture.subplots(2, 2, sharey="row")
    for row, n in zip(panels, sorted(set(exact["n"])), strict=True):
        rows = [i for i, size in enumerate(exact["n"]) if size == n]
        for i in rows:
            loops = int(exact["loops"][i])
            colour = loop_colour(loops)
            plot_runs(row[0], table, f"looped n={n} L={loops}", "loss", colour, f"$L = {loops}$")
            kind = "layers" if loops > 1 else "looped"  # one layer is one loop
            plot_runs(row[1], table, f"{kind} n={n} L={loops}", "loss", colour, f"$L = {loops}$")
            for axes, key in zip(row, ("looped", "layers"), strict=True):
                axes.axhline(float(exact[key][i]), color=colour, linestyle=":", linewidth=1)
        row[0].set(title=f"one layer, looped, $n = {n}$", yscale="log", ylabel="loss")
        row[1].set(title=f"$L$ layers, $n = {n}$", yscale="log")
        for axes in row:
            axes.set_xlabel("L-BFGS iteration")
            axes.set_xlim(0, 60)
        row[1].legend(fontsize=8, loc="upper right")
    panels[0][0].legend(fontsize=8, loc="upper right", title="dotted: exact optimum")
    return picture


@figure(
    "gatmiry2024/figure2",
    "More loops give a lower loss, and one layer looped L times does about as well as L layers",
    source="Figure 2, section 5.1",
    draw=draw_figure2,
    shares="looped transformers",
)
def figure2(scale: Scale) -> FigureData:
    d, counts = LARGE_D, loop_counts(scale)
    looped = {
        (n, loops): [looped_transformer(d, n, loops, seed) for seed in seeds(scale)]
        for n in EXAMPLES
        for loops in counts
    }
    layers = {
        (n, loops): [untied_transformer(d, n, loops, seed) for seed in seeds(scale)]
        for n in EXAMPLES
        for loops in counts
        if loops > 1
    }
    untied = {key: theory.untied_optimum(key[1], key[0], d).risk for key in layers}
    losses = {key: max(run.ray_loss for run in runs) for key, runs in looped.items()}
    rest = max(run.loss / run.ray_loss - 1 for runs in looped.values() for run in runs)
    ends = {key: max(h["loss"][-1] for h in histories) for key, histories in layers.items()}
    ratio = {key: losses[key] / ends[key] for key in layers}
    last = counts[-1]
    one_loop_step = theory.looped_optimum(1, EXAMPLES[0], d).steps[0].item()
    too_long = theory.loop_risks(one_loop_step, 10, EXAMPLES[0], d)
    verdict = Verdict(
        printed=[
            Check(
                "largest ratio of the loss of L loops to that of L layers",
                max(ratio.values()),
                2.0,
                losses[EXAMPLES[0], 1] / ends[EXAMPLES[0], last],
                WHY_SIMILAR,
                f"one loop against {last} layers, n = {EXAMPLES[0]}",
            )
        ],
        corrected=[
            Check(
                "largest ratio of the loss of more loops to that of fewer",
                max(
                    losses[n, more] / losses[n, fewer]
                    for n in EXAMPLES
                    for fewer, more in pairwise(counts)
                ),
                1.0,
                (too_long[10] / too_long[5]).item(),
                "lower means a ratio below 1",
                f"ten against five loops of the step that is best for one loop, n = {EXAMPLES[0]}",
            ),
            Check(
                "looped: largest relative excess of the exact loss at the trained step",
                max(excess(run) for runs in looped.values() for run in runs),
                1e-3,
                min(excess(run, loss_of_identity(run)) for runs in looped.values() for run in runs),
                "the loss is quadratic at the optimum, so a step within 1% is far closer in loss",
                "the exact loss of A = I",
            ),
            Check(
                "largest relative excess of the loss of L layers over the exact optimum",
                max(ends[key] / untied[key] - 1 for key in layers),
                1e-3,
                min(losses[key] / untied[key] - 1 for key in layers),
                "as for the looped models; the whole loss is exact here",
                "the looped models with as many loops",
            ),
            Check(
                "ratio of the losses of two loops and of two layers",
                max(ratio[n, 2] for n in EXAMPLES),
                2.0,
                max(ratio[n, last] for n in EXAMPLES),
                WHY_SIMILAR,
                f"the same for {last} loops and layers",
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
            "cannot. Ratios of the trained losses: "
            + "; ".join(
                f"n = {n}: "
                + ", ".join(f"{ratio[n, loops]:.3g} (L = {loops})" for loops in counts if loops > 1)
                for n in EXAMPLES
            )
            + f". Next to {d}, the loss of zero weights, both are small, which may be why they "
            "look similar.",
        ),
        settings={
            "d": d,
            "n": ", ".join(map(str, EXAMPLES)),
            "seeds": len(seeds(scale)),
            "looped": "L-BFGS over symmetric A and free u, on fresh variance-reduced samples",
            "L layers": f"L-BFGS on the exact loss: symmetric matrices up to L = {EXACT_LAYERS}, "
            "multiples of the identity beyond",
            "what the rest of A adds to the looped loss, estimated": f"at most {rest:.1e} of it",
        },
    )
    caption = (
        f"Training loss (d = {d}), mean and range over {len(seeds(scale))} seeds, of one layer "
        "looped L times (left) and of L layers (right); dotted lines are the exact optima, which "
        "training reaches. More loops lower the loss. Beyond L = 2 layers of their own lower it "
        "much more. Looped curves jump where a fresh sample begins; iterations after the 60th, "
        "which only the slowest need, are not shown."
    )
    runs = {
        f"looped n={n} L={loops}": [(run.seed, run.history) for run in group]
        for (n, loops), group in looped.items()
    }
    untied_runs = {
        f"layers n={n} L={loops}": list(enumerate(histories))
        for (n, loops), histories in layers.items()
    }
    both = history_table(runs)
    other = history_table(untied_runs)
    keys = ("training", "seed", "step", "loss")
    tables: dict[str, Table] = {
        "training": {key: [*both[key], *other[key]] for key in keys},
        "exact": {
            "n": [n for n, _ in looped],
            "loops": [loops for _, loops in looped],
            "looped": [group[0].best.risk for group in looped.values()],
            "layers": [untied.get(key, looped[key][0].best.risk) for key in looped],
        },
    }
    return FigureData(tables, caption, verdict)
