"""Figure 3: AlgoFormers trained with other T and dT, looped ten times as long as that."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from innerloop.experiments import Study
from innerloop.papers.algoformer2024 import trainings
from innerloop.papers.algoformer2024.trained.comparing import (
    LOWER,
    Errors,
    errors,
    in_words,
    logarithm,
    ratio,
    seed_spread,
    together,
)
from innerloop.papers.algoformer2024.trained.costs import seconds_per_step
from innerloop.papers.algoformer2024.trained.drawing import (
    BLUE,
    GREEN,
    ORANGE,
    PINK,
    TRAINING_LOSS,
    convergence,
    logarithmic,
    one,
    seeds_band,
    trained_loops,
)
from innerloop.papers.algoformer2024.trained.measuring import (
    LOOPED_LONGER,
    MODEL,
    UNTRAINED,
    measured,
)
from innerloop.papers.plots import where
from innerloop.papers.quantity import at_least, at_most, checks
from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Check, Scale, Verdict

STUDY = Study("algoformer2024/figure3", trainings.figure3, measured, seconds_per_step)
STABLE = at_most(0.0, "the statement: stable is at least no worse than predicting 0")
MORE = at_least(1.0, "the statement: larger (T, dT) cost more")
COLOURS = (ORANGE, BLUE, GREEN, PINK)
KINDS = {"as-printed": "as printed, z to f(z)", "injected": "with injection, z to f(z + h)"}
"""Of the loop; at scale `paper` all have injection, and their names no ending."""


def kind_of(model: str) -> str:
    """Whether the loop is the one of Eq. 2 or has the input at every loop."""
    ending = "-".join(model.split("-")[2:])
    return ending if ending in KINDS else "injected"


def windows(tables: Tables, kind: str) -> dict[tuple[int, int], str]:
    """(T, dT) of the trainings of one kind, and their names."""
    names = [str(m) for m in dict.fromkeys(tables["costs"]["model"]) if kind_of(str(m)) == kind]
    return {(int(name.split("-")[0]), int(name.split("-")[1])): name for name in names}


def comparisons(tables: Tables, kind: str) -> list[Check]:
    """The statements of section 5.3 on the trainings of one kind."""
    names = windows(tables, kind)
    longest = max(loops for loops, _ in names)
    narrow, *_, wide = sorted(window for window in names if window[0] == longest)
    # With the widest window of every T, that T alone makes the difference.
    by_loops = [*sorted(window for window in names if window[0] < longest), wide]
    at_end = {k: of(tables, name) for k, name in names.items()}
    before = {k: of(tables, name, UNTRAINED) for k, name in names.items()}
    far = {k: of(tables, names[k], LOOPED_LONGER) for k in (narrow, wide)}
    spent = {k: where(tables["costs"], model=v)["training FLOPs"][0] for k, v in names.items()}
    pairs = list(pairwise(by_loops))
    few = by_loops[0]
    return [
        *checks(
            "log of the error after 10 T loops over another's",
            LOWER,
            {f"{called(wide)} over {called(narrow)}": ratio(far[wide], far[narrow])},
            # After 10 T loops a narrow window may be worse than no training.
            unlike={
                f"untrained over {called(narrow)}, after T": ratio(before[narrow], at_end[narrow])
            },
            measure=logarithm,
        ),
        *checks(
            "log of the error after 10 T loops",
            STABLE,
            {called(wide): far[wide].estimate},
            unlike={"untrained, after T": before[wide].estimate},
            measure=logarithm,
        ),
        *checks(
            "log of the error after T loops over another's",
            LOWER,
            {f"{called(b)} over {called(a)}": ratio(at_end[b], at_end[a]) for a, b in pairs},
            unlike={f"untrained over {called(a)}": ratio(before[a], at_end[a]) for a, _ in pairs},
            measure=logarithm,
        ),
        *checks(
            "training FLOPs over another's",
            MORE,
            {f"{called(wide)} over {called(few)}": spent[wide] / spent[few]},
            unlike={f"{called(few)} over {called(wide)}": spent[few] / spent[wide]},
        ),
    ]


def of(tables: Tables, name: str, learner: str = MODEL) -> Errors:
    """Errors after all examples, which vary between seeds at least as those of all models do."""
    spread = 0.0 if learner == UNTRAINED else seed_spread(tables, "last", learner=learner)
    return errors(tables, name, "last", learner=learner, spread=spread)


def called(window: tuple[int, int]) -> str:
    return f"(T, dT) = ({window[0]}, {window[1]})"


def judge(tables: Tables) -> Verdict:
    """The loop of Eq. 2 where it was trained; what injection changes is in words."""
    kinds = [kind for kind in KINDS if windows(tables, kind)]
    words = [beyond(tables, kind) for kind in kinds]
    if len(kinds) > 1:
        for check in comparisons(tables, kinds[1]):
            words.append(f"{KINDS[kinds[1]]}: {check.name} is {check.measured:.3g}.")
    return Verdict(comparisons(tables, kinds[0]), remarks=words)


def beyond(tables: Tables, kind: str) -> str:
    """Errors at T and 10 T, and whether a loop contracts, for every training of a kind."""
    parts = []
    for window, name in sorted(windows(tables, kind).items()):
        end, far = (of(tables, name, learner).estimate for learner in (MODEL, LOOPED_LONGER))
        radius = float(where(tables["jacobian"], model=name)["median"].mean())
        parts.append(
            f"{called(window)}: {in_words(end)} after T loops, {in_words(far)} after 10 T, "
            f"spectral radius {radius:.2f}"
        )
    return f"{KINDS[kind]}: {'; '.join(parts)}."


def draw(tables: Tables) -> Picture:
    kinds = [kind for kind in KINDS if windows(tables, kind)]
    picture = Picture(figsize=(5.2 * len(kinds) + 0.4, 6.6))
    grid = picture.subplots(2, len(kinds), squeeze=False)
    for axes, below, kind in zip(*grid, kinds, strict=True):
        panel(axes, tables, kind)
        names = [name for _, name in sorted(windows(tables, kind).items())]
        convergence(below, tables, dict(zip(names, COLOURS, strict=False)))
    grid[0, 0].set_ylabel(r"error after all examples / E$\,y^2$")
    grid[1, 0].set_ylabel(TRAINING_LOSS)
    handles = picture.axes[0].get_legend_handles_labels()
    picture.legend(*handles, loc="outside lower center", ncols=3, fontsize=8)
    return picture


def panel(axes: Axes, tables: Tables, kind: str) -> None:
    for (window, name), colour in zip(sorted(windows(tables, kind).items()), COLOURS, strict=False):
        rows = where(tables["loops"], model=name)
        counts = np.unique(rows["loops"])
        values = rows["mean"].astype(float).reshape(-1, len(counts))
        seeds_band(axes, counts, values, colour, called(window))
        trained_loops(axes, window[0], colour)
    one(axes)
    logarithmic(axes, title=KINDS[kind], xlabel="loops")


@figure(
    "algoformer2024/figure3",
    "A larger dT enhances stable long-term inference; T determines the capacity; larger (T, dT) "
    "increase the capacity and the computational cost",
    source="Figure 3, section 5.3",
    judge=judge,
    draw=draw,
    study=STUDY,
)
def figure3(scale: Scale) -> Numbers:
    tables = together(STUDY.results(scale), "blocks", "costs", "loops", "jacobian", "training")
    caption = (
        "The error after all examples of AlgoFormers on regression with representation, looped up "
        "to ten times as long as they were trained for (dotted lines: T). Lines are means over "
        "seeds, bands reach from the lowest to the highest. Left: Eq. 2 as printed, with the "
        "gradient through all loops, and T = 8 grown from two loops, two more every 400 steps: "
        "with all of them from the first step, two trainings of three stayed at an error of 0.9 or "
        "more. Right: with the output of the pre-transformer added at every loop, and the gradient "
        "through the window alone. Below: the training losses."
    )
    return Numbers(tables, caption, {"task": trainings.REPRESENTATION})
