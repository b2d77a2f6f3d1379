"""Figures 1 and 2: training three layers of weights (9)."""

from functools import partial

import numpy as np
from matplotlib.figure import Figure as Picture

from innerloop import theory
from innerloop.analysis import estimate_risk
from innerloop.models import AHN, GradientDescentWeights, LinearAttentionWeights
from innerloop.papers.ahn2023 import training
from innerloop.papers.ahn2023.settings import ARRIVED, BEST, LAYERS, SPARSE_N, D, matrices
from innerloop.papers.common import generator
from innerloop.papers.plots import as_table, heatmaps, history_table, matrix_table, plot_runs
from innerloop.papers.quantity import SAMPLING, at_most, checks
from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict
from innerloop.training import Exact

BLUE, RED, GREY, GREEN = "#0072B2", "#D55E00", "#555555", "#009E73"
CONSTANT = at_most(0.05, "a twentieth of the axis from 0 to 1; nothing measured is near it")


def draw_figure1(tables: Tables) -> Picture:
    table, reference = tables["training"], training.only_row(tables["reference"])
    sample, optimum = f"on {reference['prompts']:,.0f} prompts", reference["least loss"]
    picture = Picture(figsize=(11, 2.9))
    panels = picture.subplots(1, 4)
    for layer, axes in enumerate(panels[:3]):
        plot_runs(axes, table, "exact", f"white {layer}", BLUE, r"$\Sigma^{1/2} A \Sigma^{1/2}$")
        plot_runs(axes, table, "exact", f"plain {layer}", RED, r"$A$")
        plot_runs(axes, table, "prompts", f"white {layer}", BLUE, sample, "--")
        axes.set(title=f"({'abc'[layer]}) layer {layer}", ylim=(0, 1.02), xlabel="L-BFGS iteration")
    plot_runs(panels[3], table, "exact", "loss", GREY, "exact loss")
    plot_runs(panels[3], table, "prompts", "loss", GREEN, sample, "--")
    panels[3].axhline(optimum, color="black", linewidth=0.8, label=f"exact optimum {optimum:.5f}")
    panels[3].set(title="(d) training loss", yscale="log", xlabel="L-BFGS iteration")
    panels[0].set_ylabel("Dist to multiples of the identity")
    for axes in panels[[0, 3]]:
        axes.legend(fontsize=7)
    return picture


def judge_figure1(tables: Tables) -> Verdict:
    reference = training.only_row(tables["reference"])
    least, end = reference["least loss"], reference["Dist of Sigma^-1"]
    losses = np.array([curve[-1] for curve in training.curves(tables, "exact", "loss")])
    red_lines, blue_lines = (training.curves(tables, "exact", c) for c in ("plain", "white"))
    red_move, blue_move = (min(map(np.ptp, lines)) for lines in (red_lines, blue_lines))
    fresh, looped = (np.abs(np.asarray(tables["fresh"][k], float)) for k in ("trained", "looped"))
    once = "the best step, looped three times"
    flattest = "how far the flattest line of any layer and seed moves"
    gap = "largest relative gap of the final loss from the least one of the ray"
    gaps = {"trained": np.abs(losses / least - 1).max()}
    z = "|z| of the loss of the paper's forward pass on fresh prompts against the least one"
    matched = training.matches_theory(tables, "exact")
    return Verdict(
        matched[:1]
        + checks(flattest, CONSTANT, {"A (red)": red_move}, unlike={"whitened (blue)": blue_move})
        + training.loss_left(losses.max()),
        matched
        + checks(gap, BEST, gaps, unlike={once: reference["looped"] / least - 1})
        + checks(z, SAMPLING, {"trained": fresh.max()}, unlike={once: looped.min()}),
        Correction(
            r"\mathrm{Dist}(A_i, I) = \mathrm{const},\quad f(A) \to 0",
            rf"\mathrm{{Dist}}(A_i, I) \to \mathrm{{Dist}}(\Sigma^{{-1}}, I) = "
            rf"{end:.3f},\quad f(A) \to {least:.5f} > 0",
            f"The red line falls from about 1 to {min(line.min() for line in red_lines):.2f}, as "
            f"near A = 0 the gradient is a multiple of Sigma, and rises to {end:.3f}. Three steps "
            f'on 20 examples leave {least / D:.1%} of E y^2 = 5 at best: the text\'s "almost 0", '
            'not the caption\'s "convergence of loss to 0".',
            Kind.SENTENCE,
            f"Every red line moves by {red_move:.2f} or more, and every loss ends at {least:.5f}.",
        ),
        settings={"layers": LAYERS, "d": D, "n": SPARSE_N},
    )


@figure(
    "ahn2023/figure1",
    "Training finds A_i = a_i Sigma^-1; the red line Dist(A_i, I) is constant; the loss goes to 0",
    source="Figure 1, section 5.3",
    judge=judge_figure1,
    draw=draw_figure1,
    shares="trained transformers",
)
def figure1(scale: Scale) -> Numbers:
    prompts = scale.pick(smoke=2_000, quick=20_000, paper=20_000)
    samples = scale.pick(smoke=40_000, quick=100_000, paper=1_000_000)
    trained = training.sparse_transformers(scale)
    on_prompts = training.sparse_transformers(scale, prompts=prompts)
    optimum = theory.linear.untied_optimum(LAYERS, SPARSE_N, D).risk
    looped = theory.linear.looped_optimum(LAYERS, SPARSE_N, D)

    def fresh_z(run: training.Trained, weights: LinearAttentionWeights) -> float:
        """Of the loss of the paper's own layers on fresh prompts, against the optimum."""
        p, q = AHN.weights_to(*weights.matrices(), n=SPARSE_N)
        learner, source = partial(AHN.predict, p, q), generator(500 + run.seed)
        return estimate_risk(learner, run.task, samples=samples, generator=source).z(optimum)

    inverses = [run.task.covariance.inverse() for run in trained]
    once = [GradientDescentWeights(matrices(looped.steps, inverse)) for inverse in inverses]
    exact = [Exact(run.task).loss(run.model).item() for run in on_prompts]
    above = np.mean(exact) / optimum - 1
    reference = {"least loss": optimum, "looped": looped.risk, "prompts": prompts}
    runs = {"exact": trained, "prompts": on_prompts}
    tables = {
        "training": history_table({k: [(r.seed, r.history) for r in v] for k, v in runs.items()}),
        "fresh": {
            "trained": [fresh_z(run, run.model.weights) for run in trained],
            "looped": [fresh_z(*pair) for pair in zip(trained, once, strict=True)],
        },
        "reference": as_table([reference | training.reference_distances(SPARSE_N)]),
    }
    caption = (
        "Distance of A from multiples of I, whitened (blue) or not (red), and the training loss, "
        f"mean and range over {len(trained)} seeds. Solid: on the exact expected loss. Dashed: on "
        f"{prompts:,} fixed prompts, overfitted: the exact loss ends {above:.1%} above the least. "
        "The paper leaves batch, initial scale and iterations open; A need not be symmetric, and "
        "has innerloop's sign, minus the paper's."
    )
    settings = {
        "Sigma": "U^T D^2 U, D = (1, 1, .5, .25, 1), U random for every seed",
        "seeds": f"0 to {len(trained) - 1}",
        "optimizer": f"L-BFGS, strong Wolfe, from N(0, {training.INITIAL_STD}^2)",
        "fresh prompts": samples,
    }
    return Numbers(tables, caption, settings)


def whole_matrix_gap(tables: Tables, steps: list[float]) -> float:
    """The largest, relative, of all entries; layers may come in any order (Lemma 8): by trace."""
    values = np.asarray(tables["matrices"]["value"], float).reshape(-1, LAYERS, D, D)
    stated = np.asarray(steps)[:, None, None] * np.eye(D)
    gaps = [np.stack(sorted(layers, key=np.trace)) - stated for layers in values]
    return (np.linalg.norm(gaps, axis=(-2, -1)) / np.linalg.norm(stated, axis=(-2, -1))).max()


def judge_figure2(tables: Tables) -> Verdict:
    steps = {name: [float(v) for v in column] for name, column in tables["steps"].items()}
    best, near = ({name: whole_matrix_gap(tables, column)} for name, column in steps.items())
    name = "largest relative distance of a whole whitened matrix from the best step times I"
    settings = {"best steps": next(iter(steps.values()))}
    return Verdict(checks(name, ARRIVED, best, unlike=near), settings=settings)


@figure(
    "ahn2023/figure2",
    "The learned preconditioners, whitened, are multiples of the identity: the best three steps",
    source="Figure 2, section 5.3",
    judge=judge_figure2,
    draw=lambda tables: heatmaps(tables["matrices"], [f"layer {i}" for i in range(LAYERS)]),
    shares="trained transformers",
)
def figure2(scale: Scale) -> Numbers:
    found = {
        f"layer {i}" if run.seed == 0 else f"seed {run.seed}, layer {i}": matrix
        for run in training.sparse_transformers(scale)
        for i, matrix in enumerate(run.white_preconditioners)
    }
    steps = {
        f"the best steps of n = {n}": theory.linear.untied_optimum(LAYERS, n, D).steps.tolist()
        for n in (SPARSE_N, SPARSE_N + 1)
    }
    caption = (
        "Whitened preconditioners of the trained transformer, seed 0 of Figure 1; all seeds are "
        "in the table, and judged. innerloop's sign, minus the paper's."
    )
    return Numbers({"matrices": matrix_table(found), "steps": steps}, caption)
