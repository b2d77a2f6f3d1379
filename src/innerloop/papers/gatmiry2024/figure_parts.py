"""What the figures of Gatmiry et al. (2024) share: settings, tables as rows, and a judgement."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import log
from typing import Any

import torch
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure as Picture

from innerloop import theory
from innerloop.analysis import distance_to_identity
from innerloop.papers import Check, Scale, Table, Tables
from innerloop.papers.common import DTYPE, identity
from innerloop.papers.gatmiry2024.training import INITIAL_STD, Row
from innerloop.papers.plots import as_rows, plot_runs
from innerloop.papers.quantity import at_most, checks

BLUE, RED, GREY, GREEN = "#0072B2", "#D55E00", "#555555", "#009E73"
LARGE_D, EXAMPLES = 10, (20, 100)
PROCEDURE = (
    "The paper names neither the optimizer nor the batch, the steps, the initial scale, the number "
    "of runs, the loops of Figure 1 or n of the others. Here: Gaussian entries of standard "
    f"deviation {INITIAL_STD:g}; L-BFGS over symmetric A and free u on fresh variance-reduced "
    "samples until the loss stands still."
)
STEP = at_most(1e-3, "L-BFGS stops where the loss falls by 1e-9 of itself: a step within 1e-4")


def starts(scale: Scale) -> tuple[range, range]:
    """Seeds of the exact training, and of that on prompts: slow and chaotic, shown, not judged."""
    few = scale.pick(smoke=1, quick=2, paper=5)
    return range(scale.pick(smoke=2, quick=5, paper=5)), range(few)


def settings(scale: Scale) -> list[tuple[int, int]]:
    """n and loops of Figures 2 and 4."""
    loops = scale.pick(smoke=(1, 2, 5), quick=(1, 2, 3, 5, 10), paper=(1, 2, 3, 5, 10))
    return list(product(EXAMPLES, loops))


def drawn(tables: Tables, size: tuple, *columns: tuple[str, str, str], **shared: Any) -> Picture:
    """Panels for each n, a line for each number of loops, darker for fewer; dotted its limit.

    A column is a kind of training, what is drawn of it, and its limit in the table "exact".
    """
    picture = Picture(figsize=size)
    panels = picture.subplots(2, len(columns), **shared)
    wanted = zip(panels.flat, product(EXAMPLES, columns), strict=True)
    for axes, (n, (kind, key, limit)) in wanted:
        for best in as_rows(tables["exact"], n=n):
            loops = best["loops"]
            colour, label = to_hex(colormaps["viridis"](log(loops) / log(14))), f"$L = {loops}$"
            axes.axhline(best[limit], color=colour, linestyle=":", linewidth=1)
            if kind == "flow":
                points = as_rows(tables["flow"], n=n, loops=loops)
                x, y = ([point[column] for point in points] for column in ("time", key))
                axes.plot(x, y, color=colour, label=label)
            else:
                name = f"{kind} n={n} L={loops}"
                plot_runs(axes, tables["training"], name, key, colour, label)
    panels[0, 1].legend(fontsize=8, title="dotted: exact limit")
    return picture


def by_setting(exact: Table) -> dict[tuple[int, int], dict]:
    """The rows by n and loops."""
    return {(row["n"], row["loops"]): row for row in as_rows(exact)}


def exact_row(loops: int, n: int, d: int) -> Row:
    """The exact optimum, and the near misses it is told apart from."""
    best = theory.linear.looped_optimum(loops, n, d)
    other = theory.linear.looped_optimum(loops + 1, n, d).steps[0].item()
    step = best.steps[0].item()

    def loss(a: float) -> float:
        return theory.linear.ray_risk(torch.full((loops,), a, dtype=DTYPE), n, d).item()

    return {
        "n": n,
        "loops": loops,
        "step size": step,
        "step size of one loop more": other,
        "distance": (1 - step) * d**0.5,
        "loss": best.risk,
        "loss at the step of one loop more": loss(other),
        "loss at a step just out of tolerance": loss(step * (1 + STEP.bound)),
        "loss of A = I": loss(1.0),
    }


def lands_on_the_best_step(ends: Sequence[Mapping], exact: Table, d: int) -> list[Check]:
    """A ends at a multiple of the identity, which is the exact best step, and so is its loss."""
    best, stretched = by_setting(exact), identity(d)
    pairs = [(end, best[end["n"], end["loops"]]) for end in ends]
    stretched[0, 0] = 1.1

    def off(key: str) -> list[float]:
        return [abs(end["step size"] / best[key] - 1) for end, best in pairs]

    def share(loss: float, best: Mapping) -> float:
        return (loss - best["loss"]) / (best["loss at a step just out of tolerance"] - best["loss"])

    return [
        *checks(
            "relative difference of tr(A)/d from",
            STEP,
            {"the exact best step a*, largest": max(off("step size"))},
            unlike={"that of one loop more, smallest": min(off("step size of one loop more"))},
        ),
        *checks(
            "Dist of A from multiples of I",
            at_most(0.01, "a hundredth of its largest possible value"),
            {"trained, largest": max(end["dist"] for end in ends)},
            unlike={"diag(1.1, 1, ..., 1)": distance_to_identity(stretched)},
        ),
        *checks(
            "excess of the exact loss over the optimum, relative to that of a step 0.1% off, at",
            at_most(1.0, "the tolerance of the step, seen through the curvature of the exact loss"),
            {"the trained step, largest": max(share(e["ray loss"], b) for e, b in pairs)},
            unlike={
                "the best step of one loop more, smallest": min(
                    share(b["loss at the step of one loop more"], b) for _, b in pairs
                )
            },
        ),
    ]
