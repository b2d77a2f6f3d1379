"""Figure 4 of Gatmiry et al. (2024): to what A converges, how fast, and when it turns."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure as Picture

from innerloop.papers.gatmiry2024.figures import (
    EXAMPLES,
    LARGE_D,
    lands_on_the_best_step,
    loop_colour,
    loop_counts,
    prompt_seeds,
    seeds,
    step_gap,
)
from innerloop.papers.gatmiry2024.training import (
    INITIAL_STD,
    Trained,
    exactly_trained,
    looped_transformer,
    prompt_trained,
    ray_flow,
    skew_curvature,
)
from innerloop.papers.plots import history_table, plot_runs
from innerloop.papers.registry import FigureData, Table, figure
from innerloop.papers.verdict import Check, Correction, Scale, Verdict
from innerloop.training import History

FREE_LOOPS = 3
"""Loops of the models whose A is free and whose loss is exact."""


def _histories(runs: list[Trained]) -> list[tuple[int, History]]:
    return [(run.seed, run.history) for run in runs]


def draw_figure4(tables: Mapping[str, Table]) -> Picture:
    table, exact, flow = tables["training"], tables["exact"], tables["flow"]
    flow_n, flow_loops = (np.asarray(flow[key]) for key in ("n", "loops"))
    times, distances = (np.asarray(flow[key], dtype=float) for key in ("time", "distance"))
    picture = Picture(figsize=(13, 5.8))
    panels = picture.subplots(2, 4)
    for row, n in zip(panels, sorted(set(exact["n"])), strict=True):
        for i in (i for i, size in enumerate(exact["n"]) if size == n):
            loops = int(exact["loops"][i])
            name, colour, label = f"n={n} L={loops}", loop_colour(loops), f"$L = {loops}$"
            plot_runs(row[0], table, f"symmetric {name}", "step size", colour, label)
            plot_runs(row[1], table, f"symmetric {name}", "distance", colour, label)
            plot_runs(row[2], table, f"prompts {name}", "distance", colour, label)
            chosen = (flow_n == n) & (flow_loops == loops)
            row[3].plot(times[chosen], distances[chosen], color=colour, label=label)
            row[0].axhline(float(exact["step size"][i]), color=colour, linestyle=":", linewidth=1)
            for axes in row[1:]:
                limit = float(exact["distance"][i])
                axes.axhline(limit, color=colour, linestyle=":", linewidth=1)
        row[0].axhline(1, color="black", linewidth=0.8)
        row[0].set(title=f"$n = {n}$: tr$(A)/d$", ylim=(-0.05, 1.1), xlim=(0, 30))
        row[1].set(title=r"$\|A - I\|_F$, symmetric $A$", xlim=(0, 30))
        row[2].set(title=r"$\|A - I\|_F$, Adam on prompts")
        row[3].set(title=r"$\|A - I\|_F$, gradient flow", xscale="log", xlim=(1e-2, None))
        for axes in row[1:]:
            axes.set_ylim(0, None)
    for axes, label in zip(
        panels[1], ("L-BFGS iteration", "L-BFGS iteration", "Adam step", "time"), strict=True
    ):
        axes.set_xlabel(label)
    panels[0][1].legend(fontsize=8, title="dotted: exact limit")
    return picture


@figure(
    "gatmiry2024/figure4",
    "A converges to the identity for every number of loops, more slowly for more loops, but not "
    "for one loop",
    source="Figure 4, section 5.2",
    draw=draw_figure4,
    shares="looped transformers",
)
def figure4(scale: Scale) -> FigureData:
    d, counts = LARGE_D, loop_counts(scale)
    settings = [(n, loops) for n in EXAMPLES for loops in counts]
    runs = {key: [looped_transformer(d, *key, seed) for seed in seeds(scale)] for key in settings}
    prompts = {
        key: [prompt_trained(d, *key, seed, scale) for seed in prompt_seeds(scale)]
        for key in settings
    }
    trained = [run for group in runs.values() for run in group]
    best = {key: group[0].best_step for key, group in runs.items()}
    flows = {(n, loops): ray_flow(loops, n, d) for n, loops in settings}
    arrival = {key: times[-1].item() for key, (times, _) in flows.items()}
    free = {n: [exactly_trained(d, n, FREE_LOOPS, s) for s in seeds(scale)] for n in EXAMPLES}
    gain = {n: [run.loss / run.best.risk - 1 for run in group] for n, group in free.items()}
    exact_symmetric = [
        exactly_trained(d, n, FREE_LOOPS, s, symmetric=True) for n in EXAMPLES for s in seeds(scale)
    ]
    few, many = EXAMPLES
    one_loop = [run for run in trained if run.model.loops == 1]

    def slowdown(n: int) -> float:
        """The smallest ratio of the times that more and fewer loops take."""
        return min(arrival[n, more] / arrival[n, fewer] for fewer, more in pairwise(counts))

    verdict = Verdict(
        printed=[
            Check(
                "largest |A - I|_F / |I|_F at the end of training, more than one loop",
                max(run.history["distance"][-1] for run in trained if run.model.loops > 1) / d**0.5,
                0.01,
                min(run.history["distance"][0] for run in trained) / d**0.5,
                "training has converged: A on its way to I would be within a hundredth",
                "the initial matrices",
            )
        ],
        corrected=[
            *lands_on_the_best_step(trained),
            Check(
                f"difference of tr(A)/d from a* where A was trained on the exact loss, "
                f"{FREE_LOOPS} loops, which knows nothing of the multiples of I",
                max(step_gap(run) for run in exact_symmetric),
                1e-3,
                min(step_gap(run, 1.0) for run in exact_symmetric),
                "L-BFGS stops when the loss falls by less than 1e-9 of itself: a step within 1e-4",
                "a step size of 1, which would be A = I",
            ),
            Check(
                "one loop: largest relative difference of tr(A)/d from n / (n + d + 1)",
                max(abs(run.step * (run.task.n + d + 1) / run.task.n - 1) for run in one_loop),
                1e-6,
                min(abs((run.task.n + d + 1) / run.task.n - 1) for run in one_loop),
                "the loss is quadratic in A: L-BFGS gets to the square root of its precision",
                "A = I",
            ),
            Check(
                f"smallest factor by which more loops slow the gradient flow, n = {many}",
                slowdown(many),
                1.0,
                slowdown(few),
                "slower means a factor above 1; the time to come within 1% of a*, exact",
                f"the same at n = {few}, where more loops are no slower",
                at_least=True,
            ),
            Check(
                f"A free, {FREE_LOOPS} loops, n = {many}: loss relative to the best multiple of I",
                max(gain[many]),
                -1e-3,
                min(gain[few]),
                "the loss is exact, so that anything beyond rounding is below; a thousandth is",
                f"the same at n = {few}, where free A ends on the multiple of I",
            ),
            Check(
                f"curvature of the loss at a* I along skew-symmetric matrices, {FREE_LOOPS} loops, "
                f"n = {many}",
                skew_curvature(d, many, FREE_LOOPS),
                -1e-9,
                skew_curvature(d, few, FREE_LOOPS),
                "below 0 is a saddle; exact, up to rounding",
                f"the same at n = {few}",
            ),
        ],
        correction=Correction(
            r"A \to I \text{ for every } L > 1",
            r"A \to a^* I, \quad \|A - I\|_F \to (1 - a^*) \sqrt{d} > 0, \quad "
            r"a^* = \frac{n}{n + d + 1} \text{ for } L = 1",
            "At finite n the limit is not I but a shorter step: "
            f"a* = {best[few, 1]:.3f} for one loop and {best[few, counts[-1]]:.3f} for "
            f"{counts[-1]} at n = {few}, {best[many, 1]:.3f} and {best[many, counts[-1]]:.3f} at "
            f"n = {many}. One loop is no exception: it converges as well, to n / (n + d + 1) I, "
            "and is the closest of all to I. More loops are slower where n is much larger "
            f"than d: the exact gradient flow from 0 comes within 1% of a* after "
            + ", ".join(f"{arrival[many, loops]:.3g}" for loops in counts)
            + f" (L = {', '.join(map(str, counts))}, n = {many}), but "
            + ", ".join(f"{arrival[few, loops]:.3g}" for loops in counts)
            + f" at n = {few}. And all of this is about symmetric A. If A is free, as the model of "
            "section 3.5 allows, and n is several times d, a skew-symmetric part, which turns what "
            "is left of the error between two loops, lowers the loss: with "
            f"{FREE_LOOPS} loops and n = {many} by {-max(gain[many]):.1%}, and the best multiple "
            "of I is a saddle.",
        ),
        settings={
            "d": d,
            "n": ", ".join(map(str, EXAMPLES)),
            "seeds": len(seeds(scale)),
            "initial std": INITIAL_STD,
            "optimizer": "L-BFGS over symmetric A and free u, on fresh variance-reduced samples",
            "Adam on fresh prompts, A free": "tr(A)/d relative to a*, Dist: "
            + "; ".join(
                f"n = {n}, L = {loops}: {group[0].step / group[0].best_step - 1:+.1%}, "
                f"{group[0].history['dist'][-1]:.2f}"
                for (n, loops), group in prompts.items()
            ),
            f"A free, exact loss, {FREE_LOOPS} loops": "loss relative to the best multiple of I, "
            "Dist: "
            + "; ".join(
                f"n = {n}: {min(gain[n]):+.2%} to {max(gain[n]):+.2%}, "
                f"{free[n][0].history['dist'][-1]:.2f}"
                for n in EXAMPLES
            ),
        },
    )
    caption = (
        f"A during training (d = {d}); dotted lines are the exact limits. First two columns: "
        f"symmetric A, L-BFGS, mean and range over {len(seeds(scale))} seeds; A ends on a* I, "
        "and no curve goes to A = I. Third: free A, Adam on fresh prompts, as the paper may have "
        "done it; with many loops it ends away from the limit, because rare prompts carry the "
        "loss, because Adam keeps moving at its own pace, and because a skew-symmetric part of A "
        "lowers the loss. Fourth: gradient flow from A = 0, exact, until 1% from the end."
    )
    thinned = slice(None, None, 20)
    tables: dict[str, Table] = {
        "training": history_table(
            {f"symmetric n={n} L={k}": _histories(group) for (n, k), group in runs.items()}
            | {f"prompts n={n} L={k}": _histories(group) for (n, k), group in prompts.items()}
        ),
        "exact": {
            "n": [n for n, _ in settings],
            "loops": [loops for _, loops in settings],
            "step size": [best[key] for key in settings],
            "distance": [(1 - best[key]) * d**0.5 for key in settings],
        },
        "flow": {
            "n": [n for (n, _), (t, _) in flows.items() for _ in t[thinned]],
            "loops": [k for (_, k), (t, _) in flows.items() for _ in t[thinned]],
            "time": [v for t, _ in flows.values() for v in t[thinned].tolist()],
            "distance": [(1 - v) * d**0.5 for _, a in flows.values() for v in a[thinned].tolist()],
        },
    }
    return FigureData(tables, caption, verdict)
