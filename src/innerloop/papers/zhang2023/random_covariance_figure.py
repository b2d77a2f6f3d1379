"""Linear layers where every prompt has its own covariance: the exact lines behind Figure 1.

The paper's Figure 1 shows GPT-2 models and, of linear attention, only the limit M, N to infinity.
Here is the linear layer itself at the figure's own lengths, exact, with sampled prompts as points.
Errors are divided by d, so that predicting 0 has the error c.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import FuncFormatter, NullFormatter
from scipy.special import roots_laguerre
from torch import Tensor

from innerloop import theory
from innerloop.algorithms import LeastSquares
from innerloop.analysis import Estimate
from innerloop.papers.common import ALGEBRA, DTYPE, SAMPLING, WHY_SAMPLING, generator
from innerloop.papers.registry import FigureData, Table, figure
from innerloop.papers.verdict import Check, Scale, Verdict
from innerloop.papers.zhang2023.random_covariance_limit import diagonal_prompts
from innerloop.prompt import Prompt
from innerloop.tasks import Exponential
from innerloop.theory.linear import CovarianceLaw

D = 20
TRAIN = (40, 70, 100)
SAMPLED = (5, 10, 20, 40, 70, 100)
TRAININGS = ("fixed", "random")
"""Covariance I in every training prompt, or diag of Exponential(1) drawn anew."""
TESTS = {
    "I": ("fixed", 1.0),
    "Exponential(1)": ("random", 1.0),
    "4 Exponential(1)": ("random", 4.0),
    "9 Exponential(1)": ("random", 9.0),
}
"""Kind and scale of the covariances in test prompts: the four panels of Figure 1."""
COLOURS = {"fixed": "#d55e00", "random": "#0072b2"}
STYLES = {40: ":", 70: "--", 100: "-"}
Row = dict[str, float | int | str]


@cache
def law(kind: str, scale: float = 1.0, d: int = D) -> CovarianceLaw:
    ones = torch.full((d,), scale, dtype=DTYPE)
    if kind == "fixed":
        return CovarianceLaw.fixed(torch.diag(ones))
    return CovarianceLaw.exponential(ones)


@cache
def trained_layer(kind: str, train: float, d: int = D) -> Tensor:
    """The preconditioner that training on `train` examples ends at, a multiple of I."""
    return theory.flow.SingleLayerFlow(law(kind, d=d), train).product


def error(kind: str, train: float, tested: CovarianceLaw, test: float) -> float:
    """The exact error per dimension of a layer trained on `train` examples."""
    layer = trained_layer(kind, train, tested.d)
    return theory.linear.random_covariance_risk(layer, tested, test).item() / tested.d


def sampled_rows(name: str, samples: int, seed: int) -> tuple[list[Row], list[Row]]:
    """Errors per dimension of every layer, and of least squares, on the same prompts.

    A layer's squared error is averaged over the query and the weights of every sampled context,
    sum_ij l_i (I - a S)_ij^2, whose tails are lighter than those of plain squared errors.
    """
    kind, scale = TESTS[name]
    source, tested = generator(seed), law(kind, scale)
    spectrum = scale * (
        torch.ones(samples, D, dtype=DTYPE) if kind == "fixed" else Exponential(D)(samples, source)
    )
    prompt, _ = diagonal_prompts(spectrum, max(SAMPLED), generator=source)
    few = Prompt(prompt.x[:500], prompt.y[:500], prompt.x_query[:500], prompt.y_query[:500])
    layers: list[Row] = []
    solved: list[Row] = []
    for length in SAMPLED:
        seen = prompt.prefix(length)
        m = torch.einsum("bnd,bn->bd", seen.x, seen.y) / length
        s = seen.x.mT @ seen.x / length
        for training, train in product(TRAININGS, TRAIN):
            step = trained_layer(training, train)[0, 0].item()
            off = step * (prompt.x_query[:, 0] * m).sum(-1) - prompt.y_query[:, 0]
            left = torch.eye(D, dtype=DTYPE) - step * s
            plain = Estimate.of(off**2 / D)
            given = Estimate.of((spectrum.unsqueeze(-1) * left**2).sum((-2, -1)) / D)
            exact = error(training, train, tested, length)
            layers.append(
                {
                    "test": name,
                    "training": training,
                    "train": train,
                    "length": length,
                    "error": given.mean,
                    "standard error": given.standard_error,
                    "exact": exact,
                    "z": given.z(exact),
                    "z of plain squared errors": plain.z(exact),
                    "z of an endless prompt": given.z(error(training, train, tested, math.inf)),
                }
            )
        if length < D:  # from M = d on least squares is exact
            off = (LeastSquares()(few.prefix(length)) - few.y_query)[:, 0]
            estimate = Estimate.of(off**2 / D)
            numbers = {"error": estimate.mean, "standard error": estimate.standard_error}
            solved.append({"test": name, "length": length, **numbers})
    return layers, solved


def columns(rows: Iterable[Row]) -> dict[str, list[float | int | str]]:
    table: dict[str, list[float | int | str]] = {}
    for row in rows:
        for key, value in row.items():
            table.setdefault(key, []).append(value)
    return table


def draw(tables: Mapping[str, Table]) -> Picture:
    picture = Picture(figsize=(10.5, 6))
    first, *panels, last = picture.subplots(2, 3).flat
    _limits(first, tables["limits"])
    for axes, name in zip(panels, TESTS, strict=True):
        _against_length(axes, tables, name)
    handles, labels = panels[1].get_legend_handles_labels()
    last.axis("off")
    last.legend(handles, labels, loc="center", fontsize=8)
    return picture


def _limits(axes: Axes, table: Table) -> None:
    for kind in TRAININGS:
        label = f"trained on {kind}, limit"
        axes.plot(table["c"], table[kind], color=COLOURS[kind], linewidth=2.2, label=label)
        for train in TRAIN:
            values = table[f"{kind}, N = M = {train}"]
            axes.plot(table["c"], values, STYLES[train], color=COLOURS[kind], linewidth=0.9)
    axes.plot(table["c"], table["c"], color="#555555", linestyle="--", label="predicting 0")
    axes.set(xscale="log", yscale="log", title="against the scale of the covariance")
    axes.set(xlabel="scale c of the covariance", ylabel="error / d")
    axes.set_xticks([0.25, 1, 4, 9])
    _plain(axes)
    axes.legend(fontsize=7.5)


def _against_length(axes: Axes, tables: Mapping[str, Table], name: str) -> None:
    lines, layers, solved = (
        {column: np.asarray(values) for column, values in tables[key].items()}
        for key in ("lines", "layers", "least_squares")
    )

    def points(table: dict[str, np.ndarray], chosen: np.ndarray, **style: Any) -> None:
        x, y, spread = (table[key][chosen] for key in ("length", "error", "standard error"))
        axes.errorbar(x, y, yerr=2 * spread, markersize=3.5, linewidth=1, **style)

    for training, train in product(TRAININGS, TRAIN):
        of_layer = (lines["test"] == name) & (lines["training"] == training)
        chosen = of_layer & (lines["train"] == train)
        label = f"trained on {training}, N = {train}"
        colour, style = COLOURS[training], STYLES[train]
        x, y = lines["length"][chosen], lines["error"][chosen]
        axes.plot(x, y, style, color=colour, linewidth=1.4, label=label)
        chosen = (layers["test"] == name) & (layers["training"] == training)
        chosen &= layers["train"] == train
        points(layers, chosen, color=colour, fmt="o")
    label = "least squares, sampled; 0 from M = d on"
    points(solved, solved["test"] == name, color="#009e73", fmt="s", label=label)
    zero = TESTS[name][1]
    axes.axhline(zero, color="#555555", linestyle="--", linewidth=1, label="predicting 0")
    axes.set(xscale="log", yscale="log", xlabel="test length M", ylabel="error / d")
    axes.set_title(f"tested on {name}")
    axes.set_xticks([1, 5, 20, 100])
    _plain(axes)


def _plain(axes: Axes) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def average_over_covariances(kind: str, train: int, name: str, test: int, d: int) -> float:
    """The error from the exact risk at every covariance, averaged by Gauss-Laguerre quadrature.

    The risk has degree 3 in every variance, which two nodes integrate exactly.
    """
    tested, scale = TESTS[name]
    nodes, weights = (torch.as_tensor(v) for v in roots_laguerre(2))
    if tested == "fixed":
        nodes, weights = torch.ones(1, dtype=DTYPE), torch.ones(1, dtype=DTYPE)
    b = torch.zeros(d + 1, dtype=DTYPE)
    b[-1] = 1
    a = torch.cat([trained_layer(kind, train, d), torch.zeros(1, d, dtype=DTYPE)])
    spectra = torch.cartesian_prod(*[scale * nodes] * d).view(-1, d)
    masses = torch.cartesian_prod(*[weights] * d).view(-1, d).prod(-1)
    risks = [theory.linear.single_layer_risk(b, a, torch.diag(s), test).item() for s in spectra]
    return sum(m * r for m, r in zip(masses.tolist(), risks, strict=True)) / d


@figure(
    "zhang2023/random-covariance",
    "Training on random covariances does not let the linear layer adapt to the covariance of a "
    "prompt: even in the limit it errs by a third, and at larger scales more than predicting 0",
    source="section 4.3 and the linear layer of Figure 1",
    draw=draw,
)
def under_random_covariances(scale: Scale) -> FigureData:
    samples = scale.pick(smoke=1_000, quick=4_096, paper=16_384)
    sampled = [sampled_rows(name, samples, seed) for seed, name in enumerate(TESTS)]
    layers = columns(row for rows, _ in sampled for row in rows)
    grid = np.unique(np.geomspace(1, 130, 40).round().astype(int)).tolist()
    lines = columns(
        {
            "test": name,
            "training": training,
            "train": train,
            "length": length,
            "error": error(training, train, law(*TESTS[name]), length),
        }
        for name, training, train, length in product(TESTS, TRAININGS, TRAIN, grid)
    )

    def limit(training: str, c: float) -> float:
        return error(training, math.inf, law("random", c), math.inf)

    scales = np.geomspace(0.2, 10, 60).tolist()
    limits = {"c": scales} | {kind: [limit(kind, c) for c in scales] for kind in TRAININGS}
    limits |= {
        f"{kind}, N = M = {n}": [error(kind, n, law("random", c), n) for c in scales]
        for kind, n in product(TRAININGS, TRAIN)
    }
    small, length = 3, 10
    gaps, control = [], []
    for (name, (kind, c)), training, train in product(TESTS.items(), TRAININGS, TRAIN):
        averaged = average_over_covariances(training, train, name, length, small)
        gaps.append(abs(error(training, train, law(kind, c, small), length) / averaged - 1))
        if kind == "random":
            mean = law("fixed", c, small)
            control.append(abs(error(training, train, mean, length) / averaged - 1))

    def largest(column: str) -> float:
        return max(abs(float(value)) for value in layers[column])

    verdict = Verdict(
        [
            Check(
                "largest relative difference between the exact lines and the risk at fixed "
                "covariance averaged by quadrature, d = 3, M = 10",
                max(gaps),
                1e-11,
                min(control),
                ALGEBRA,
                "the mean covariance in place of the random one",
            ),
            Check(
                f"largest |z| of the lines on {samples} sampled contexts per panel, query and "
                "weights integrated out",
                largest("z"),
                SAMPLING,
                largest("z of an endless prompt"),
                WHY_SAMPLING,
                "the lines for M infinite",
            ),
            Check(
                "smallest error relative to predicting 0 at scales 4 and 9, trained on random "
                "covariances, limit M, N to infinity",
                min(limit("random", c) / c for c in (4.0, 9.0)),
                1.0,
                limit("random", 1.0),
                "worse than predicting 0 means a ratio above 1",
                "the same layer at scale 1",
                at_least=True,
            ),
        ],
        settings={
            "d": D,
            "N": ", ".join(map(str, TRAIN)),
            "seeds": "0 to 3",
            "limits per dimension at c = 1, 4, 9": "; ".join(
                f"trained on {kind}: " + ", ".join(f"{limit(kind, c):.4g}" for c in (1.0, 4.0, 9.0))
                for kind in TRAININGS
            ),
            "the limits as polynomials": "2/3 c^3 - 4/3 c^2 + c trained on random, "
            "6 c^3 - 4 c^2 + c trained on fixed, c for predicting 0: the layers are worse "
            "than that above c = 2 and c = 2/3",
            "trained on random, tested on I, limit": round(
                error("random", math.inf, law("fixed"), math.inf), 6
            ),
            "largest |z| of plain squared errors": f"{largest('z of plain squared errors'):.2f}; "
            "not judged, as rare prompts carry the mean",
        },
    )
    caption = (
        "Error per dimension of linear layers trained on the fixed covariance I (orange) or on "
        "covariances diag(Exponential(1)) drawn anew for every prompt (blue). First panel: "
        "against the scale c of the test covariances, in the limit M, N to infinity (thick) and at "
        "N = M = 40, 70, 100 (thin, styled as in the others). Others: against the "
        f"test length, d = {D}, for the training lengths of Figure 1. Lines are exact; points are "
        "sampled contexts with two standard errors. Least squares is 0 from M = d on."
    )
    tables = {
        "limits": limits,
        "lines": lines,
        "layers": layers,
        "least_squares": columns(row for _, rows in sampled for row in rows),
    }
    return FigureData(tables, caption, verdict)
