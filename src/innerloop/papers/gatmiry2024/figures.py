"""Figure 1 of Gatmiry et al. (2024), where looped training ends, and what its figures share.

The paper leaves the number of loops of Figure 1 and the number of examples of Figures 2 to 4 open:
here L = 5, and n = 20 and 100. How training differs from the paper's is told in `training`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure as Picture

from innerloop import theory
from innerloop.papers.gatmiry2024.training import (
    INITIAL_STD,
    Trained,
    looped_transformer,
    prompt_trained,
)
from innerloop.papers.registry import FigureData, Table, figure
from innerloop.papers.verdict import Check, Correction, Scale, Verdict

BLUE, RED, GREY, GREEN = "#0072B2", "#D55E00", "#555555", "#009E73"
SMALL_D, LOOPS_OF_FIGURE1 = 5, 5
LARGE_D, EXAMPLES = 10, (20, 100)
WHY_ONE_PERCENT = "a hundredth of a*; L-BFGS itself gets to a ten-thousandth"


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
    return theory.linear.loop_risks(1.0, run.model.loops, run.task.n, run.task.d)[-1].item()


def lands_on_the_best_step(trained: list[Trained]) -> list[Check]:
    """A ends at a multiple of the identity, and the multiple is the exact best step."""
    return [
        Check(
            "largest relative difference of tr(A)/d from the exact best step a*",
            max(step_gap(run) for run in trained),
            0.01,
            min(step_gap(run, 1.0) for run in trained),
            WHY_ONE_PERCENT,
            "a step size of 1, which would be A = I",
        ),
        Check(
            "largest Dist of A from multiples of I, A symmetric",
            max(run.history["dist"][-1] for run in trained),
            0.01,
            min(run.history["dist"][0] for run in trained),
            "a hundredth of its largest possible value",
            "the initial matrices",
        ),
    ]


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
    best = {n: theory.linear.looped_optimum(loops, n, d) for n in sizes}
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
            *lands_on_the_best_step(trained),
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
            f"{theory.linear.loop_risks(1.0, loops, sizes[0], d)[-1].item():.3g} in place of "
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
