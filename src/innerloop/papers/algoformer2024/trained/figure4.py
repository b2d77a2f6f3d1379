"""Figure 4: more layers and heads, of all three parts of AlgoFormer or of its loop alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from innerloop.analysis import Estimate
from innerloop.experiments import Study
from innerloop.papers.algoformer2024 import trainings
from innerloop.papers.algoformer2024.trained.comparing import (
    LOWER,
    NOT_LOWER,
    Errors,
    errors,
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
)
from innerloop.papers.algoformer2024.trained.measuring import MODEL, UNTRAINED, measured
from innerloop.papers.plots import where
from innerloop.papers.quantity import checks
from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Scale, Verdict

STUDY = Study("algoformer2024/figure4", trainings.figure4, measured, seconds_per_step)
LOOP_ALONE = "-in-the-loop"
HARD = (4, 16)
"""Layers and heads of the exception."""
COLOURS = {1: ORANGE, 4: BLUE, 8: PINK, 16: GREEN}
"""Of the numbers of heads."""
Size = tuple[int, int]
"""Layers and heads."""


def sizes(tables: Tables, ending: str) -> dict[Size, str]:
    """The trainings of one arrangement, by layers and heads; one layer belongs to both."""
    found = {}
    for name in map(str, dict.fromkeys(tables["costs"]["model"])):
        layers, _, heads, _, *rest = name.split("-")
        where_is = "-" + "-".join(rest) if rest else ""
        if where_is == ending or int(layers) == 1:
            found[int(layers), int(heads)] = name
    return dict(sorted(found.items()))


def neighbours(every: dict[Size, str]) -> list[tuple[Size, Size]]:
    """Sizes that differ in layers or in heads alone, one step apart; the exception is none."""
    usual = [size for size in every if size != HARD]
    pairs: list[tuple[Size, Size]] = []
    for fixed in (0, 1):
        for value in sorted({size[fixed] for size in usual}):
            pairs += pairwise(sorted(size for size in usual if size[fixed] == value))
    return pairs


def of(tables: Tables, name: str, learner: str = MODEL) -> Errors:
    """After all examples; sizes that were trained once vary between seeds as the others do."""
    spread = 0.0 if learner == UNTRAINED else seed_spread(tables, "last")
    return errors(tables, name, "last", learner=learner, spread=spread)


def judge(tables: Tables, ending: str) -> Verdict:
    every = sizes(tables, ending)
    found = {size: of(tables, name) for size, name in every.items()}
    before = {size: of(tables, name, UNTRAINED) for size, name in every.items()}
    smaller = max(size for size in every if size[0] == HARD[0] and size != HARD)
    pairs = neighbours(every)

    def over(a: Size, b: Size) -> Estimate:
        return ratio(found[a], found[b])

    trend = checks(
        "log of the error over that of a smaller model",
        LOWER,
        {f"{called(b)} over {called(a)}": over(b, a) for a, b in pairs},
        unlike={f"untrained over {called(a)}": ratio(before[a], found[a]) for a, _ in pairs},
        measure=logarithm,
    )
    exception = checks(
        "log of the error over that of a smaller model, the exception",
        NOT_LOWER,
        {f"{called(HARD)} over {called(smaller)}": over(HARD, smaller)},
        unlike={f"{called(HARD)} over untrained": ratio(found[HARD], before[HARD])},
        measure=logarithm,
    )
    best = min(found, key=lambda size: found[size].mean)
    words = f"The lowest error is that of {called(best)}, {found[best].mean:.3g}."
    return Verdict([*trend, *exception], remarks=[words])


def called(size: Size) -> str:
    return (
        f"{size[0]} layer{'s' if size[0] > 1 else ''}, {size[1]} head{'s' if size[1] > 1 else ''}"
    )


def judge_all_parts(tables: Tables) -> Verdict:
    return judge(tables, "")


def judge_loop(tables: Tables) -> Verdict:
    return judge(tables, LOOP_ALONE)


def draw(tables: Tables) -> Picture:
    picture = Picture(figsize=(9.4, 6.8))
    (left, right), below = picture.subplots(2, 2, sharey="row")
    panel(left, tables, "", "layers of all three parts")
    panel(right, tables, LOOP_ALONE, "layers of the loop alone")
    left.set_ylabel(r"error after all examples / E$\,y^2$")
    left.legend(fontsize=8)
    for axes, ending in zip(below, ("", LOOP_ALONE), strict=True):
        colours = {name: COLOURS[heads] for (_, heads), name in sizes(tables, ending).items()}
        convergence(axes, tables, colours)
    below[0].set_ylabel(TRAINING_LOSS)
    return picture


def panel(axes: Axes, tables: Tables, ending: str, words: str) -> None:
    every = sizes(tables, ending)
    for heads in sorted({size[1] for size in every}):
        chosen = [size for size in every if size[1] == heads]
        means = [of(tables, every[size]).values.mean(1) for size in chosen]
        x = [size[0] for size in chosen]
        colour, label = COLOURS[heads], f"{heads} head{'s' if heads > 1 else ''}"
        axes.plot(x, [seeds.mean() for seeds in means], "-", color=colour, label=label)
        for layers, seeds in zip(x, means, strict=True):
            axes.plot([layers] * len(seeds), seeds, "o", markersize=4, color=colour)
    logarithmic(axes, title=words, xlabel="layers")
    counts = sorted({size[0] for size in every})
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()


def numbers(scale: Scale) -> Numbers:
    results = STUDY.results(scale)
    tables = together(results, "blocks", "costs", "training")
    seeds = where(tables["costs"])["seed"]
    caption = (
        "The error after all examples of AlgoFormers with more layers and heads, on regression "
        "with representation; every dot is a training, with up to "
        f"{len(np.unique(seeds))} seeds. Heads share the width, so that their number leaves the "
        "parameters as they are; all three parts have as many. Below: the training losses."
    )
    return Numbers(tables, caption, {"task": trainings.REPRESENTATION})


@figure(
    "algoformer2024/figure4",
    "More heads and more layers in the pre-, looped and post-transformers lead to lower errors; 4 "
    "layers with 16 heads are suboptimal",
    source="Figure 4 and its caption, section 5.3",
    judge=judge_all_parts,
    draw=draw,
    study=STUDY,
)
def figure4(scale: Scale) -> Numbers:
    return numbers(scale)


@figure(
    "algoformer2024/figure4-loop",
    "More layers in the looped transformer, and more heads, here of all parts, lead to lower "
    "errors; 4 layers with 16 heads are suboptimal",
    source="Figure 4 as the text of section 5.3 has it",
    judge=judge_loop,
    draw=draw,
    study=STUDY,
)
def figure4_loop(scale: Scale) -> Numbers:
    return numbers(scale)
