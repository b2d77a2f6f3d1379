"""Figure 4 of Gatmiry et al. (2024): to what A converges, how fast, and when it turns."""

from itertools import pairwise

import torch
from matplotlib.figure import Figure as Picture

from innerloop.papers import Check, Correction, Kind, Numbers, Scale, Tables, Verdict, figure
from innerloop.papers.gatmiry2024 import figure_parts as parts
from innerloop.papers.gatmiry2024 import training
from innerloop.papers.plots import as_rows, as_table, history_table
from innerloop.papers.quantity import at_least, at_most, checks

FEW, MANY = parts.EXAMPLES
FREE_LOOPS = 3
"""Loops of the models whose A is free and whose loss is exact."""


def free_and_symmetric(tables: Tables) -> list[Check]:
    """What becomes of A if it need not be symmetric: nothing at n = 20, a rotation at n = 100."""

    def gain(kind: str, *sizes: int) -> list[float]:
        rows = as_rows(tables["free"], kind=kind)
        return [row["loss"] / row["best loss"] - 1 for row in rows if row["n"] in sizes]

    bend = {row["n"]: row["curvature"] for row in as_rows(tables["free"])}
    name = f"exact loss of A trained on it, {FREE_LOOPS} loops, over that of a* I, minus 1"
    return [
        *checks(
            f"|{name}|",
            at_most(1e-6, "L-BFGS stops where the loss falls by 1e-9 of itself"),
            {"A symmetric, largest": max(map(abs, gain("symmetric", FEW, MANY)))},
            unlike={f"A free, n = {MANY}": min(map(abs, gain("free", MANY)))},
        ),
        *checks(
            name,
            at_most(-1e-3, "the loss is exact, so that anything beyond rounding is below"),
            {f"A free, n = {MANY}, largest of all starts": max(gain("free", MANY))},
            unlike={
                f"A symmetric, n = {MANY}": min(gain("symmetric", MANY)),
                f"A free, n = {FEW}": min(gain("free", FEW)),
            },
        ),
        *checks(
            f"curvature of the exact loss at a* I along skew matrices, {FREE_LOOPS} loops",
            at_most(-1e-9, "below 0 is a saddle; exact, up to rounding"),
            {f"n = {MANY}": bend[MANY]},
            unlike={f"n = {FEW}": bend[FEW]},
        ),
    ]


def one_loop(ends: list[dict], exact: dict) -> tuple[list[Check], list[Check]]:
    """That it does not converge, as printed, and where it does."""

    def off(k: int) -> list[float]:
        rows = [end for end in ends if end["loops"] == 1]
        return [abs(row["step size"] * (row["n"] + k) / row["n"] - 1) for row in rows]

    five = [e["step size"] / exact[e["n"], 5]["step size"] - 1 for e in ends if e["loops"] == 5]
    stays = checks(
        "relative difference of tr(A)/d from its exact limit at the end",
        at_least(0.01, "not to converge is to end away from the limit"),
        {"one loop, largest": max(off(parts.LARGE_D + 1))},
        unlike={"five loops": max(map(abs, five))},
    )
    converges = checks(
        "one loop: relative difference of tr(A)/d from",
        at_most(1e-6, "the loss is quadratic in A: L-BFGS gets to the root of its precision"),
        {"n/(n + d + 1), largest": max(off(parts.LARGE_D + 1))},
        unlike={"n/(n + d), smallest": min(off(parts.LARGE_D))},
    )
    return stays, converges


def judge(tables: Tables) -> Verdict:
    exact = parts.by_setting(tables["exact"])
    ends = as_rows(tables["ends"], training="symmetric")
    arrival = {(row["n"], row["loops"]): row["time"] for row in as_rows(tables["flow"])}
    counts = sorted({loops for _, loops in exact})
    pairs = list(pairwise(counts))
    slower = {n: [arrival[n, b] / arrival[n, a] for a, b in pairs] for n in parts.EXAMPLES}
    far = max(end["distance"] for end in ends if end["loops"] > 1) / parts.LARGE_D**0.5
    limit = checks(
        "|A - I|_F / |I|_F at the end",
        at_most(0.01, "training has converged: A on its way to I would be within a hundredth"),
        {"more than one loop, largest": far},
        unlike={"A = 0.95 I": 0.05},
    )
    slow_with_few, slow_with_many = checks(
        "smallest factor by which more loops slow the exact gradient flow",
        at_least(1.0, "slower means a factor above 1; the time to come within 1% of a*"),
        {f"n = {n}": min(slower[n]) for n in parts.EXAMPLES},
        unlike={f"n = {FEW}, fewer loops": 1 / max(slower[FEW]), f"n = {FEW}": min(slower[FEW])},
    )
    stays, converges = one_loop(ends, exact)
    lands = parts.lands_on_the_best_step(ends, tables["exact"], parts.LARGE_D)
    return Verdict(
        [*limit, slow_with_few, *stays],
        [*lands, *converges, slow_with_many, *free_and_symmetric(tables)],
        Correction(
            r"A \to I \text{ for every } L > 1,\; \text{not for } L = 1",
            r"A \to a^* I, \quad \|A - I\|_F \to (1 - a^*) \sqrt{d} > 0, \quad "
            r"a^* = \frac{n}{n + d + 1} \text{ for } L = 1",
            "At finite n the limit is a shorter step than I. One loop converges as well, to "
            "n/(n + d + 1) I, the closest of all to I. More loops are slower where n is much "
            "larger than d, and not at n = 20. All of this is about symmetric A: if A is free, as "
            "in section 3.5, and n is several times d, a skew-symmetric part lowers the loss, and "
            "the best multiple of I is a saddle (gatmiry2024/asymmetric).",
            Kind.SENTENCE,
            f"n = {FEW}: a* is {exact[FEW, 1]['step size']:.3f} for one loop and "
            f"{exact[FEW, counts[-1]]['step size']:.3f} for {counts[-1]}; the flow from 0 comes "
            f"within 1% of it after {', '.join(f'{arrival[FEW, k]:.3g}' for k in counts)} "
            f"(L = {', '.join(map(str, counts))}).",
        ),
    )


def draw(tables: Tables) -> Picture:
    kinds = ("symmetric", "symmetric", "prompts", "flow")
    keys = ("step size", *["distance"] * 3)
    picture = parts.drawn(tables, (13, 5.8), *zip(kinds, keys, keys, strict=True))
    for i, n in enumerate(parts.EXAMPLES):
        step, symmetric, prompts, flow = row = picture.axes[4 * i : 4 * i + 4]
        step.axhline(1, color="black", linewidth=0.8)
        step.set(title=f"$n = {n}$: tr$(A)/d$", ylim=(-0.05, 1.1), xlim=(0, 30))
        symmetric.set(title=r"$\|A - I\|_F$, symmetric $A$", xlim=(0, 30))
        prompts.set(title=r"$\|A - I\|_F$, Adam on prompts", xlabel="Adam step")
        flow.set(title=r"$\|A - I\|_F$, gradient flow", xscale="log", xlabel="time")
        flow.set_xlim(1e-2, None)
        for axes in row[:2]:
            axes.set_xlabel("L-BFGS iteration")
        for axes in row[1:]:
            axes.set_ylim(0, None)
    return picture


def trained_exactly(n: int, seed: int, *, symmetrised: bool) -> training.Row:
    """Where A ends on the exact loss, free or symmetric, and how that bends at a* I."""
    run = training.exactly_trained(parts.LARGE_D, n, FREE_LOOPS, seed, symmetrised=symmetrised)
    bend = training.skew_curvature(parts.LARGE_D, n, FREE_LOOPS)
    own = {"kind": "symmetric" if symmetrised else "free", "n": n, "seed": seed}
    return {**own, "loss": run.history["loss"][-1], "best loss": run.best.risk, "curvature": bend}


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
    d, settings = parts.LARGE_D, parts.settings(scale)
    seeds, prompt_seeds = parts.starts(scale)
    runs = [("symmetric", training.looped_transformer(d, *k, s)) for k in settings for s in seeds]
    prompts = [training.prompt_trained(d, *k, s, scale) for k in settings for s in prompt_seeds]
    runs += [("prompts", run) for run in prompts]
    histories: dict[str, list] = {}
    for kind, run in runs:
        name = f"{kind} n={run.task.n} L={run.model.loops}"
        histories.setdefault(name, []).append((run.seed, run.history))
    return Numbers(
        {
            "training": history_table(histories),
            "ends": as_table(run.row(kind) for kind, run in runs),
            "exact": as_table(parts.exact_row(loops, n, d) for n, loops in settings),
            "free": as_table(
                trained_exactly(n, seed, symmetrised=symmetrised)
                for symmetrised in (False, True)
                for n in parts.EXAMPLES
                for seed in seeds
            ),
            "flow": as_table(
                {"n": n, "loops": loops, "time": time, "distance": (1 - a) * d**0.5}
                for n, loops in settings
                for time, a in torch.stack(training.ray_flow(loops, n, d))[:, ::20].T.tolist()
            ),
        },
        f"A during training (d = {d}), mean and range over all starts; dotted: the exact limits. "
        f"First two columns: symmetric A, L-BFGS, {len(seeds)} starts, which end on a* I. Third: "
        f"free A, Adam on fresh prompts, {len(prompt_seeds)} starts, as the paper may have done "
        "it; with many loops it ends away from the limit: rare prompts carry the loss, and a "
        "skew-symmetric part of A lowers it. Fourth: gradient flow from A = 0, exact, until 1% "
        f"from the end. {parts.PROCEDURE}",
        {"d": d, "n": parts.EXAMPLES},
    )
