"""The authors' two further comparisons: loss against the number of layers, and against n.

GD, preconditioned GD and GD++ are drawn with their best steps, whose losses are exact; for GD++
these are the best that a search finds. The trained transformer has weights (13) and is trained as
for Figure 3.
"""

from __future__ import annotations

from functools import cache

import torch
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import NullFormatter, ScalarFormatter
from torch import Tensor
from torch.nn.functional import pad

from innerloop import theory
from innerloop.papers.ahn2023.settings import LAYERS, SPARSE_N, D, experiment
from innerloop.papers.ahn2023.training import DEPARTURES, exact_and_sampled, trained_from
from innerloop.papers.common import DTYPE, generator
from innerloop.papers.quantity import at_least, at_most, measured
from innerloop.papers.registry import Numbers, Table, Tables, figure
from innerloop.papers.verdict import Scale, Verdict
from innerloop.tasks import LinearRegression
from innerloop.training import ControlledWishart

LINES = {
    "GD": ("#D55E00", "--", "gradient descent, best steps"),
    "preconditioned GD": ("#E69F00", "-.", r"$\Sigma^{-1}$-preconditioned, best steps"),
    "GD++": ("#000000", "-", r"GD++ with $\Sigma^{-1}$, best known"),
}


def best_plain_descent(task: LinearRegression, layers: int) -> float:
    """The least exact loss of `layers` gradient steps without preconditioner."""
    identity = torch.eye(task.d, dtype=DTYPE)

    def risk(steps: Tensor) -> Tensor:
        preconditioners = steps[:, None, None] * identity
        return theory.linear.layered_risk(
            preconditioners, task.covariance, task.n, task.prior, symmetric=True
        )

    starts = (0.3 + torch.rand(layers, generator=generator(s), dtype=DTYPE) for s in range(6))
    return min(theory.flow.descend(risk, start)[0] for start in starts)


def nearest_gd_plus_plus(n: int, steps: Tensor, transforms: Tensor) -> float:
    """The loss of the local minimum of GD++ that descent reaches from here."""
    layers = len(steps)

    def risk(vector: Tensor) -> Tensor:
        return theory.linear.ray_risk(vector[:layers], n, D, pad(vector[layers:], (0, 1)))

    return theory.flow.descend(risk, torch.cat([steps, transforms[:-1]]))[0]


@cache
def compared(layers: int, n: int, scale: Scale) -> tuple[dict[str, float], list[float]]:
    """The losses of all four, and the training loss of every start."""
    task = experiment(n, seed=0)
    searches = scale.pick(smoke=60, quick=300, paper=1000)
    best = theory.linear.transformed_optimum(layers, n, D, starts=searches, generator=generator(0))
    without = theory.linear.untied_optimum(layers, n, D)
    runs = trained_from(task, layers, 0, scale.pick(smoke=2, quick=2, paper=5))
    loss = exact_and_sampled(runs[0], scale.pick(smoke=2_000, quick=20_000, paper=100_000))
    ray = ControlledWishart(task, 1).ray(runs[0].model)
    assert ray.transforms is not None
    assert best.transforms is not None
    steps, transforms = ray.steps.detach(), ray.transforms.detach()
    row = {
        "layers": layers,
        "n": n,
        "GD": best_plain_descent(task, layers),
        "preconditioned GD": without.risk,
        "GD++": best.risk,
        "GD++ hits": best.hits,
        "trained": loss.mean,
        "four standard errors": 4 * loss.standard_error,
        "GD++ near trained": nearest_gd_plus_plus(n, steps, transforms),
        "GD++ near preconditioned GD": nearest_gd_plus_plus(
            n, without.steps, torch.zeros_like(without.steps)
        ),
        "GD++ of n + 1": nearest_gd_plus_plus(n + 1, best.steps, best.transforms),
    }
    return row, [run.loss for run in runs]


def compare(settings: list[tuple[int, int]], scale: Scale) -> dict[str, Table]:
    """One row per (layers, n), and one per start of training."""
    found = [(*setting, *compared(*setting, scale)) for setting in settings]
    starts = [(layers, n, loss) for layers, n, _, losses in found for loss in losses]
    return {
        "losses": {key: [row[key] for _, _, row, _ in found] for key in found[0][2]},
        "starts": dict(
            zip(("layers", "n", "training loss"), zip(*starts, strict=True), strict=True)
        ),
    }


def draw(tables: Tables, x: str, label: str) -> Picture:
    table, starts = tables["losses"], tables["starts"]
    picture = Picture(figsize=(6, 3.8))
    axes = picture.subplots()
    for name, (colour, style, text) in LINES.items():
        axes.plot(table[x], table[name], style, color=colour, label=text)
    axes.plot(starts[x], starts["training loss"], "_", ms=18, color="#56B4E9", label="every start")
    axes.plot(table[x], table["trained"], "o", color="#0072B2", label="trained transformer")
    axes.set(xlabel=label, ylabel=r"expected loss ($E\,y^2 = 5$)", yscale="log")
    if x == "n":
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_xticks([float(v) for v in table[x]])
    axes.legend(fontsize=8)
    return picture


def judge(tables: Tables) -> Verdict:
    """Between the lines of GD++ and of preconditioned GD, and at a GD++ of its own."""
    table = {key: torch.tensor(column, dtype=DTYPE) for key, column in tables["losses"].items()}
    deep = table["layers"] > 1  # with one layer GD++ is preconditioned GD
    trained, best, without = table["trained"], table["GD++"], table["preconditioned GD"]

    def place(losses: Tensor) -> Tensor:
        """On the log axis: 0 on the line of GD++, 1 on that of preconditioned GD."""
        return ((losses / best).log() / (without / best).log())[deep].max()

    between = measured(
        "highest place between the best GD++ (0) and preconditioned GD (1), on the log axis",
        at_most(0.5, "it follows the line that it is nearer to"),
        {"trained": place(trained), "gradient descent": place(table["GD"])},
    )
    own = measured(
        "largest relative difference from the nearest local minimum of GD++",
        at_most(1e-4, "the last round of training changes the loss by less than a millionth"),
        {
            "trained": (
                (trained / table["GD++ near trained"] - 1).abs()
                + table["four standard errors"] / trained
            ).max(),
            "preconditioned GD": (without / table["GD++ near preconditioned GD"] - 1)[deep].min(),
        },
    )
    below = measured(
        "loss relative to the best GD++, smallest",
        at_least(1 - 1e-4, "below 1 the line would not be the best; 1e-4 as above"),
        {
            "trained": (trained / best).min(),
            "GD++ with one more example": (table["GD++ of n + 1"] / best).max(),
        },
    )
    return Verdict(
        [
            between.check("trained", unlike="gradient descent"),
            own.check("trained", unlike="preconditioned GD"),
            below.check("trained", unlike="GD++ with one more example"),
        ],
        settings={
            "d": D,
            "Sigma": "as in Figure 1, seed 0",
            "trained / best GD++": [round(v, 4) for v in (trained / best).tolist()],
            "starts of the search that end at the best GD++": [int(v) for v in table["GD++ hits"]],
        },
        remarks=[
            "Training ends at a GD++, and where its ratio to the best is above 1, at one that is a "
            "local minimum: the ray has several from two layers on.",
            "The line of GD++ is the best of a search from many starts; a lower one may exist.",
        ],
    )


CAPTION = (
    "Lines are exact, that of GD++ the best of a search; points are trained transformers, whose "
    f"loss is exact on the ray and sampled off it, and dashes the ends of every start. {DEPARTURES}"
)


@figure(
    "ahn2023/layers",
    "More layers: the trained transformer is a GD++ and follows the best one, far below gradient "
    "descent",
    source="the authors' code, loss against layers",
    judge=judge,
    draw=lambda tables: draw(tables, "layers", "layers"),
    ours="measured",
    shares="further transformers",
)
def against_layers(scale: Scale) -> Numbers:
    depths = scale.pick(smoke=[1, 2], quick=[1, 2, 3], paper=[1, 2, 3, 4])
    tables = compare([(layers, SPARSE_N) for layers in depths], scale)
    return Numbers(tables, f"Expected loss against layers, n = {SPARSE_N}. {CAPTION}")


@figure(
    "ahn2023/context-length",
    "More examples: the trained transformer is a GD++ and follows the best one, far below gradient "
    "descent",
    source="the authors' code, loss against n",
    judge=judge,
    draw=lambda tables: draw(tables, "n", "examples in the prompt, n"),
    ours="measured",
    shares="further transformers",
)
def against_context_length(scale: Scale) -> Numbers:
    lengths = scale.pick(smoke=[20], quick=[5, 10, 20, 40], paper=[5, 8, 10, 15, 20, 30, 40, 80])
    layers = scale.pick(smoke=2, quick=LAYERS, paper=LAYERS)
    tables = compare([(layers, n) for n in lengths], scale)
    return Numbers(tables, f"Expected loss against n, {layers} layers. {CAPTION}")
