"""A trained AlgoFormer beside its compiled siblings, loop by loop on the same prompts: our own.

Theorems 3.1 and 4.1 say that a loop can be a step of gradient descent or of Newton's method, and
section 3 calls the looped part "responsible for iterative algorithms". Whether training finds such
steps is not asked in the paper. A model that did would, after k loops, be near an iterate; one that
solves the problem another way is nearer to where the iterates end.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.image import AxesImage
from torch import Tensor

from innerloop.algorithms import LeastSquares
from innerloop.analysis import Estimate, draw_loop_distances
from innerloop.experiments import Record
from innerloop.experiments.compiled_models import compiled_gd, compiled_newton
from innerloop.papers.algoformer2024.trained.drawing import (
    BLUE,
    GREEN,
    ORANGE,
    errors_band,
    logarithmic,
)
from innerloop.papers.algoformer2024.trained.figure5 import STUDY, over
from innerloop.papers.common import generator
from innerloop.papers.plots import as_table, where
from innerloop.papers.quantity import at_most, checks
from innerloop.papers.registry import Numbers, Table, Tables, figure
from innerloop.papers.verdict import Scale, Verdict
from innerloop.prompt import Prompt
from innerloop.tasks import Task, moved

RECORD = {"quick": "8-6-noise-0.0-seed0", "paper": "20-15-noise-0.0"}
TRAINED, LIMIT = "trained", "least squares"
SIBLINGS = {"compiled gradient descent": ORANGE, "compiled Newton": GREEN}
SHORTER = "step 10% shorter"
NEARER = at_most(
    1.0, "the statement: nearer to the end than to any iterate. The standard error is of prompts"
)


def siblings(task: Task, loops: int) -> dict[str, Any]:
    """Compiled for as many loops; and near misses of both, with steps that are 10% shorter."""
    found = {}
    for name, model, option in zip(
        SIBLINGS, (compiled_gd, compiled_newton), ("step_size", "alpha"), strict=True
    ):
        explicit: Any = model.construction(task, loops=loops).explicit
        step = explicit.alpha if option == "alpha" else explicit.preconditioners[0]
        for words, share in ((name, 1.0), (f"{name}, {SHORTER}", 0.9)):
            found[words] = model(task, generator(0), loops=loops, **{option: share * step})
    return found


@torch.no_grad()
def answers(record: Record, prompts: Prompt, loops: int) -> dict[str, Tensor]:
    """After every loop, [loops, prompts]; of least squares once."""
    counts = range(1, loops + 1)
    single: Any = record.model()
    said = {TRAINED: single.after_loops(prompts.to(dtype=torch.float32), counts).double()}
    for name, model in siblings(moved(record.task(), dtype=torch.float64), loops).items():
        said[name] = model.after_loops(prompts, counts)
    return {k: v[..., 0] for k, v in said.items()} | {LIMIT: LeastSquares()(prompts)[None, :, 0]}


def distance_table(said: dict[str, Tensor], unit: float) -> Table:
    """Mean square differences of predictions over E y^2, with their standard errors over prompts:
    of every learner after every loop from every sibling after every loop, and from the end."""
    rows = []
    for name, own in said.items():
        for other in (*SIBLINGS, LIMIT):
            for k, mine in enumerate(own, 1):
                for j, theirs in enumerate(said[other], 1):
                    estimate = Estimate.of((mine - theirs).square() / unit)
                    rows.append(
                        {"learner": name, "loops": k, "beside": other, "their loops": j,
                         "mean": estimate.mean, "error": estimate.standard_error}
                    )  # fmt: skip
    return as_table(rows)


def nearest(tables: Tables, learner: str, loops: int, beside: str) -> Estimate:
    """The distance from the nearest iterate of another."""
    rows = where(tables["distances"], learner=learner, loops=loops, beside=beside)
    best = int(rows["mean"].argmin())
    return Estimate(float(rows["mean"][best]), float(rows["error"][best]), 0)


def judge(tables: Tables) -> Verdict:
    loops = int(max(tables["distances"]["loops"]))

    def to_the_end(learner: str, k: int, sibling: str) -> Estimate:
        return over(nearest(tables, learner, k, LIMIT), nearest(tables, learner, k, sibling))

    return Verdict(
        [
            check
            for name in SIBLINGS
            for check in checks(
                f"squared distance from least squares over that from the nearest iterate of {name}",
                NEARER,
                {f"trained, {k} loops": to_the_end(TRAINED, k, name) for k in range(1, loops + 1)},
                unlike={
                    f"{name}, {SHORTER}, {k} loops": to_the_end(f"{name}, {SHORTER}", k, name)
                    for k in (1, loops)
                },
            )
        ],
        remarks=[_in_words(tables, loops)],
    )


def _in_words(tables: Tables, loops: int) -> str:
    def far(learner: str, k: int) -> str:
        return f"{math.sqrt(nearest(tables, learner, k, LIMIT).mean):.2g}"

    parts = [f"{name} {far(name, 1)} and {far(name, loops)}" for name in (TRAINED, *SIBLINGS)]
    return (
        "Distance of predictions from those of least squares, of the root mean square label, after "
        f"1 and after {loops} loops: {'; '.join(parts)}."
    )


def draw(tables: Tables) -> Picture:
    picture = Picture(figsize=(11.0, 3.7))
    first, *maps = picture.subplots(1, 3)
    for name, colour in {TRAINED: BLUE, **SIBLINGS}.items():
        rows = where(tables["distances"], learner=name, beside=LIMIT)
        means, deviations = rows["mean"].astype(float), rows["error"].astype(float)
        errors_band(first, rows["loops"], means, deviations, colour, name)
    logarithmic(first, title="distance from least squares", xlabel="loops")
    first.set_ylabel(r"mean square / E$\,y^2$")
    handles = first.get_legend_handles_labels()
    picture.legend(*handles, loc="outside lower center", ncols=3, fontsize=8)
    for axes, name in zip(maps, SIBLINGS, strict=True):
        shown = distance_map(axes, tables, name)
        picture.colorbar(shown, ax=axes, label=r"mean square difference / E$\,y^2$")
    return picture


def distance_map(axes: Axes, tables: Tables, sibling: str) -> AxesImage:
    """Distances of the trained model from a sibling, with the nearest of its loops marked."""
    rows = where(tables["distances"], learner=TRAINED, beside=sibling)
    values = rows["mean"].astype(float).reshape(max(rows["loops"]), -1)
    shown = draw_loop_distances(axes, torch.from_numpy(values))
    axes.set(title=f"from {sibling}", xlabel="its loops", ylabel="loops of the trained one")
    return shown


@figure(
    "algoformer2024/siblings",
    "A trained AlgoFormer does not run the algorithms that its layers can be compiled to: from its "
    "first loop on it is nearer to least squares than to any iterate of theirs; one training",
    source="our own: section 3, Theorems 3.1 and 4.1 beside the training of Figure 5",
    judge=judge,
    draw=draw,
    study=STUDY,
)
def trained_and_compiled(scale: Scale) -> Numbers:
    record = STUDY.results(scale)[RECORD["paper" if scale is Scale.PAPER else "quick"]]
    task = moved(record.task(), dtype=torch.float64)
    loops = record.experiment.model.options["loops"]
    count = scale.pick(smoke=500, quick=2000, paper=2000)
    prompts = task.sample(count, generator=generator(1))
    unit = float(task.d)
    caption = (
        f"A trained AlgoFormer (T = {loops}) and two of as many loops whose weights were compiled, "
        f"on the same {count:,} prompts, d = {task.d}, n = {task.n}, without noise. Left: how far "
        "predictions are from those of least squares. Maps: how far the trained model is after so "
        "many loops from a sibling after so many; dots mark the nearest. A model that ran the "
        "sibling's algorithm would have dark cells along a diagonal."
    )
    return Numbers(
        {"distances": distance_table(answers(record, prompts, loops), unit)},
        caption,
        {"d": task.d, "n": task.n, "T": loops, "prompts": count},
    )
