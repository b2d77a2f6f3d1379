"""Figure 1 of Gatmiry et al. (2024): where looped training ends for few and for many examples."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure as Picture

from innerloop.papers.gatmiry2024.figure_parts import (
    BLUE,
    CHOSEN,
    GREY,
    LEFT_OPEN,
    RED,
    as_rows,
    as_table,
    exact_row,
    lands_on_the_best_step,
    prompt_seeds,
    seeds,
)
from innerloop.papers.gatmiry2024.training import looped_transformer, prompt_trained
from innerloop.papers.quantity import at_most, measured
from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict

D, LOOPS = 5, 5


def judge(tables: Tables) -> Verdict:
    ends, exact = as_rows(tables["ends"], training="symmetric"), as_rows(tables["exact"])
    first, last = exact[0], exact[-1]
    close = measured(
        "|A - I|_F / |I|_F",
        at_most(0.1, "very close is read as within a tenth"),
        {
            "trained, n < d, largest": max(e["distance"] for e in ends if e["n"] < D) / D**0.5,
            "A = 0.8 I": 0.2,
        },
    )
    shift = measured(
        "|u|",
        at_most(1e-3, "u* = 0, and the loss is quadratic in u: a loss within 1e-6 allows this"),
        {
            "trained, largest": max(end["shift"] for end in ends),
            "at the start, smallest": min(end["shift at the start"] for end in ends),
        },
    )
    return Verdict(
        printed=[close.check("trained, n < d, largest", unlike="A = 0.8 I")],
        corrected=[
            *lands_on_the_best_step(ends, tables["exact"], D),
            shift.check("trained, largest", unlike="at the start, smallest"),
        ],
        correction=Correction(
            r"A \to A^{opt} \approx I \text{ even for } n < d",
            r"A \to a^* I, \quad a^* = \mathrm{argmin}_a\, \mathbf{E}\,\mathrm{tr}\,"
            r"(I - a W/n)^{2L}",
            "The picture is right in that A becomes a multiple of the identity, and wrong in the "
            "multiple. With few examples a full step would overshoot along the large eigenvalues "
            "of the sample covariance, and the best step is shorter. Training ends there for "
            "every n.",
            Kind.SENTENCE,
            f"d = {D}, L = {LOOPS}: a* is {first['step size']:.3f} at n = {first['n']} and "
            f"{last['step size']:.3f} at n = {last['n']}. With A = I the loss at n = {first['n']} "
            f"would be {first['loss of A = I']:.3g} in place of {first['loss']:.3f}.",
        ),
    )


def draw(tables: Tables) -> Picture:
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
    judge=judge,
    draw=draw,
)
def figure1(scale: Scale) -> Numbers:
    every_size = (2, 3, 5, 10, 20, 50, 100)
    sizes = scale.pick(smoke=(2, 20), quick=every_size, paper=every_size)
    trained = [looped_transformer(D, n, LOOPS, seed) for n in sizes for seed in seeds(scale)]
    prompts = [
        prompt_trained(D, n, LOOPS, seed, scale) for n in sizes for seed in prompt_seeds(scale)
    ]
    off = [run.step / run.best_step - 1 for run in prompts]
    rows = [
        run.row(kind) | {"shift at the start": run.history["shift"][0]}
        for kind, runs in (("symmetric", trained), ("prompts", prompts))
        for run in runs
    ]
    return Numbers(
        {"ends": as_table(rows), "exact": as_table(exact_row(LOOPS, n, D) for n in sizes)},
        f"Looped transformers (d = {D}, {LOOPS} loops) trained with n examples; black: the exact "
        f"optimum. Blue: symmetric A, {len(seeds(scale))} starts, which fall on each other. Red: "
        f"free A, Adam on fresh prompts, {len(prompt_seeds(scale))} starts, as the paper may have "
        f"done it; it ends {min(off):+.0%} to {max(off):+.0%} from the best step, since rare "
        "prompts carry the loss, and off the multiples of the identity. A is never close to I with "
        f"few examples; it is close to a multiple of I. {LEFT_OPEN}, nor the number of loops of "
        f"this figure. {CHOSEN}, {LOOPS} loops.",
        {"d": D, "loops": LOOPS, "seeds": len(seeds(scale))},
    )
