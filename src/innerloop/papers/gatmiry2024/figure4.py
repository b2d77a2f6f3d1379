"""Figure 4 of Gatmiry et al. (2024): to what A converges, how fast, and when it turns."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure as Picture

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
    prompt_seeds,
    seeds,
)
from innerloop.papers.gatmiry2024.settings import against_last
from innerloop.papers.gatmiry2024.training import (
    exactly_trained,
    looped_transformer,
    prompt_trained,
    ray_flow,
    skew_curvature,
)
from innerloop.papers.plots import history_table
from innerloop.papers.quantity import at_least, at_most, measured
from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Check, Correction, Kind, Scale, Verdict

FREE_LOOPS = 3
"""Loops of the models whose A is free and whose loss is exact."""


def turning(tables: Tables) -> list[Check]:
    """What becomes of A if it need not be symmetric: nothing at n = 20, a rotation at n = 100."""
    few, many = EXAMPLES
    free = as_rows(tables["free"])
    gain = {
        (kind, n): [
            e["loss"] / e["best loss"] - 1 for e in free if (e["kind"], e["n"]) == (kind, n)
        ]
        for kind in ("free", "symmetric")
        for n in EXAMPLES
    }
    bend = {row["n"]: row["curvature"] for row in as_rows(tables["curvature"])}
    below = measured(
        f"exact loss of A trained on it, {FREE_LOOPS} loops, over that of a* I, minus 1",
        at_most(-1e-3, "the loss is exact, so that anything beyond rounding is below"),
        {
            f"A free, n = {many}, largest of all starts": max(gain["free", many]),
            f"A symmetric, n = {many}": min(gain["symmetric", many]),
            f"A free, n = {few}": min(gain["free", few]),
        },
    )
    saddle = measured(
        f"curvature of the exact loss at a* I along skew-symmetric matrices, {FREE_LOOPS} loops",
        at_most(-1e-9, "below 0 is a saddle; exact, up to rounding"),
        {f"n = {n}": bend[n] for n in EXAMPLES},
    )
    same = measured(
        f"|exact loss of A trained on it, {FREE_LOOPS} loops, over that of a* I, minus 1|",
        at_most(1e-6, "L-BFGS stops where the loss falls by 1e-9 of itself"),
        {
            "A symmetric, largest": max(abs(g) for n in EXAMPLES for g in gain["symmetric", n]),
            f"A free, n = {many}": min(abs(g) for g in gain["free", many]),
        },
    )
    case = f"A free, n = {many}, largest of all starts"
    return [
        *against_last(same),
        below.check(case, unlike=f"A symmetric, n = {many}"),
        below.check(case, unlike=f"A free, n = {few}"),
        saddle.check(f"n = {many}", unlike=f"n = {few}"),
    ]


def judge(tables: Tables) -> Verdict:
    ends, exact = as_rows(tables["ends"], training="symmetric"), as_rows(tables["exact"])
    best = {(row["n"], row["loops"]): row for row in exact}
    counts = sorted({row["loops"] for row in exact})
    few, many = EXAMPLES
    arrival = {
        key: max(row["time"] for row in as_rows(tables["flow"], n=key[0], loops=key[1]))
        for key in best
    }

    def slowdown(n: int) -> float:
        return min(arrival[n, more] / arrival[n, fewer] for fewer, more in pairwise(counts))

    limit = measured(
        "|A - I|_F / |I|_F at the end",
        at_most(0.01, "training has converged: A on its way to I would be within a hundredth"),
        {
            "more than one loop, largest": max(e["distance"] for e in ends if e["loops"] > 1)
            / LARGE_D**0.5,
            "A = 0.95 I": 0.05,
        },
    )
    single = [e for e in ends if e["loops"] == 1]
    one = measured(
        "one loop: relative difference of tr(A)/d from",
        at_most(1e-6, "the loss is quadratic in A: L-BFGS gets to the root of its precision"),
        {
            "n/(n + d + 1), largest": max(
                abs(e["step size"] * (e["n"] + LARGE_D + 1) / e["n"] - 1) for e in single
            ),
            "n/(n + d), smallest": min(
                abs(e["step size"] * (e["n"] + LARGE_D) / e["n"] - 1) for e in single
            ),
        },
    )
    slow = measured(
        "smallest factor by which more loops slow the exact gradient flow",
        at_least(1.0, "slower means a factor above 1; the time to come within 1% of a*"),
        {f"n = {n}": slowdown(n) for n in EXAMPLES}
        | {
            f"n = {few}, fewer loops against more": 1
            / max(arrival[few, more] / arrival[few, fewer] for fewer, more in pairwise(counts))
        },
    )
    other = [
        abs(e["step size"] / best[e["n"], 5]["step size"] - 1) for e in ends if e["loops"] == 5
    ]
    stays = measured(
        "relative difference of tr(A)/d from its exact limit at the end",
        at_least(0.01, "not to converge is to end away from the limit"),
        {"one loop, largest": one["n/(n + d + 1), largest"], "five loops": max(other)},
    )
    converges = one.check("n/(n + d + 1), largest", unlike="n/(n + d), smallest")
    return Verdict(
        printed=[
            limit.check("more than one loop, largest", unlike="A = 0.95 I"),
            slow.check(f"n = {few}", unlike=f"n = {few}, fewer loops against more"),
            stays.check("one loop, largest", unlike="five loops"),
        ],
        corrected=[
            *lands_on_the_best_step(ends, tables["exact"], LARGE_D),
            converges,
            slow.check(f"n = {many}", unlike=f"n = {few}"),
            *turning(tables),
        ],
        correction=Correction(
            r"A \to I \text{ for every } L > 1,\; \text{not for } L = 1",
            r"A \to a^* I, \quad \|A - I\|_F \to (1 - a^*) \sqrt{d} > 0, \quad "
            r"a^* = \frac{n}{n + d + 1} \text{ for } L = 1",
            "At finite n the limit is not I but a shorter step. One loop is no exception: it "
            "converges as well, to n/(n + d + 1) I, and is the closest of all to I. More loops are "
            "slower where n is much larger than d, and not at n = 20. And all of this is about "
            "symmetric A. If A is free, as the model of section 3.5 allows, and n is several times "
            "d, a skew-symmetric part, which turns what is left of the error between two loops, "
            "lowers the loss, and the best multiple of I is a saddle (gatmiry2024/asymmetric).",
            Kind.SENTENCE,
            "; ".join(
                f"n = {n}: a* = {best[n, 1]['step size']:.3f} for one loop and "
                f"{best[n, counts[-1]]['step size']:.3f} for {counts[-1]}, and the flow from 0 "
                "comes within 1% of it after "
                + ", ".join(f"{arrival[n, loops]:.3g}" for loops in counts)
                for n in EXAMPLES
            )
            + f" (L = {', '.join(map(str, counts))}).",
        ),
    )


def draw(tables: Tables) -> Picture:
    table, exact, flow = tables["training"], as_rows(tables["exact"]), tables["flow"]
    flow_n, flow_loops = (np.asarray(flow[key]) for key in ("n", "loops"))
    times, distances = (np.asarray(flow[key], dtype=float) for key in ("time", "distance"))
    picture = Picture(figsize=(13, 5.8))
    panels = picture.subplots(2, 4)
    for row, n in zip(panels, EXAMPLES, strict=True):
        for best in (e for e in exact if e["n"] == n):
            loops = best["loops"]
            name, colour, label = f"n={n} L={loops}", loop_colour(loops), f"$L = {loops}$"
            plot_each(row[0], table, f"symmetric {name}", "step size", colour, label)
            plot_each(row[1], table, f"symmetric {name}", "distance", colour, label)
            plot_each(row[2], table, f"prompts {name}", "distance", colour, label)
            chosen = (flow_n == n) & (flow_loops == loops)
            row[3].plot(times[chosen], distances[chosen], color=colour, label=label)
            row[0].axhline(best["step size"], color=colour, linestyle=":", linewidth=1)
            for axes in row[1:]:
                axes.axhline(best["distance"], color=colour, linestyle=":", linewidth=1)
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
    judge=judge,
    draw=draw,
    shares="looped transformers",
)
def figure4(scale: Scale) -> Numbers:
    d = LARGE_D
    settings = [(n, loops) for n in EXAMPLES for loops in loop_counts(scale)]
    runs = {
        "symmetric": {k: [looped_transformer(d, *k, s) for s in seeds(scale)] for k in settings},
        "prompts": {
            k: [prompt_trained(d, *k, s, scale) for s in prompt_seeds(scale)] for k in settings
        },
    }
    flows = {(n, loops): ray_flow(loops, n, d) for n, loops in settings}
    free = [
        {
            "kind": "symmetric" if symmetric else "free",
            "n": n,
            "seed": seed,
            "loss": run.loss,
            "best loss": run.best.risk,
            "step size": run.step,
            "dist": run.history["dist"][-1],
        }
        for symmetric in (False, True)
        for n in EXAMPLES
        for seed in seeds(scale)
        for run in [exactly_trained(d, n, FREE_LOOPS, seed, symmetric=symmetric)]
    ]
    return Numbers(
        {
            "training": history_table(
                {
                    f"{kind} n={n} L={k}": [(run.seed, run.history) for run in group]
                    for kind, groups in runs.items()
                    for (n, k), group in groups.items()
                }
            ),
            "ends": as_table(
                run.row(kind)
                for kind, groups in runs.items()
                for group in groups.values()
                for run in group
            ),
            "exact": as_table(exact_row(loops, n, d) for n, loops in settings),
            "free": as_table(free),
            "curvature": as_table(
                {"n": n, "curvature": skew_curvature(d, n, FREE_LOOPS)} for n in EXAMPLES
            ),
            "flow": as_table(
                {"n": n, "loops": loops, "time": time, "distance": (1 - a) * d**0.5}
                for (n, loops), (times, steps) in flows.items()
                for time, a in zip(times[::20].tolist(), steps[::20].tolist(), strict=True)
            ),
        },
        f"A during training (d = {d}), a line for every start; dotted lines are the exact limits. "
        f"First two columns: symmetric A, L-BFGS, {len(seeds(scale))} starts; A ends on a* I, and "
        f"no curve goes to A = I. Third: free A, Adam on fresh prompts, {len(prompt_seeds(scale))} "
        "starts, as the paper may have done it; with many loops it ends away from the limit, "
        "because rare prompts carry the loss, because Adam keeps moving at its own pace, and "
        "because a skew-symmetric part of A lowers the loss. Fourth: gradient flow from A = 0, "
        f"exact, until 1% from the end. {LEFT_OPEN}, nor n. {CHOSEN}.",
        {"d": d, "n": ", ".join(map(str, EXAMPLES)), "seeds": len(seeds(scale))},
    )
