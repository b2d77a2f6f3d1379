"""Figure 3 of Gatmiry et al. (2024): looping a trained model longer than it was trained for.

Means are exact in distribution, and out of it for a few loops; beyond, an exact lower bound stands
for them. With f(t) = (1 - a t)^{2L}, convex,

    loss >= E tr f(S) = sum_i E f(S)_ii >= sum_i E f(S_ii),      S_ii = s_i chi^2_n / n,

by |M|_F^2 >= tr M^2 and Jensen's inequality for the spectral measure of e_i.
"""

import itertools
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure as Picture
from torch import Tensor

from innerloop import theory
from innerloop.analysis import Estimate
from innerloop.models import LinearAttention
from innerloop.papers import Check, Correction, Kind, Numbers, Scale, Tables, Verdict, figure
from innerloop.papers.common import DTYPE, generator, identity
from innerloop.papers.gatmiry2024 import figure_parts as parts
from innerloop.papers.gatmiry2024.training import Row, Trained, looped_transformer
from innerloop.papers.plots import as_rows, as_table
from innerloop.papers.quantity import at_least, at_most, checks
from innerloop.tasks import LinearRegression

TRAINED_LOOPS, TEST_LOOPS = (2, 5), 18
SHIFTED_VARIANCES = torch.arange(11, 30, 2, dtype=DTYPE) / 20
HOME, AWAY = WHERE = ("in distribution", "other covariance")
MEAN, BOUND = "exact mean", "exact lower bound of the mean"
BATCH_MEAN, UPPER, MEDIAN = "mean of a test batch", "99% quantile", "median"


def shifted_task(n: int) -> LinearRegression:
    return LinearRegression.with_inverse_prior(torch.diag(SHIFTED_VARIANCES), n)


def shifted_means(step: float, n: int, most: int) -> list[float]:
    """The exact loss out of distribution after 1, ..., `most` loops."""
    task, a = shifted_task(n), step * identity(parts.LARGE_D)
    loss = partial(theory.linear.tied_risk, a, task.covariance, n, task.prior, symmetric=True)
    return [loss(loops=loops).item() for loops in range(1, most + 1)]


def shifted_lower_bound(step: float, n: int, loops: int) -> Float[Tensor, " counts"]:
    """sum_i E (1 - a s_i chi^2_n / n)^{2L} for L = 1, ..., `loops`; see the module's docstring."""
    chi_squared = theory.wishart.mean_spectrum(n, 1, 2 * loops)
    powers = 2 * torch.arange(1, loops + 1, dtype=DTYPE)[:, None, None]
    left = 1 - step * SHIFTED_VARIANCES[:, None] * chi_squared.nodes
    return chi_squared(left.abs() ** powers).sum(-1)


@torch.no_grad()
def squared_errors(run: Trained, task: LinearRegression, samples: int) -> Float[Tensor, "loops b"]:
    """On the same fresh prompts after 1, 2, ..., loops."""
    prompt = task.sample(samples, generator=generator(1))
    models = (LinearAttention(run.model.weights, k) for k in range(1, TEST_LOOPS + 1))
    return torch.stack([(model(prompt) - prompt.y_query).square()[:, 0] for model in models])


def measured_curves(run: Trained, samples: int, exact_loops: int) -> tuple[list[Row], list[Row]]:
    """Every line of the figure for one model; its step, and the shares of prompts that improve."""
    n, d, trained = run.task.n, run.task.d, run.model.loops
    own: Row = {"n": n, "trained": trained, "seed": run.seed}
    rare = theory.linear.expanding_probability(run.step, n, d)
    step: Row = {"step": run.step, "loss": run.ray_loss, "probability": rare}
    lines = {
        (HOME, MEAN): theory.linear.loop_risks(run.step, TEST_LOOPS, n, d)[1:].tolist(),
        (AWAY, MEAN): shifted_means(run.step, n, exact_loops),
        (AWAY, BOUND): shifted_lower_bound(run.step, n, TEST_LOOPS).tolist(),
    }
    models: list[Row] = []
    for where, task in zip(WHERE, (run.task, shifted_task(n)), strict=True):
        errors = squared_errors(run, task, samples)
        median, upper = errors.quantile(torch.tensor([0.5, 0.99], dtype=DTYPE), dim=1).tolist()
        lines |= {(where, BATCH_MEAN): errors.mean(1).tolist()}
        lines |= {(where, UPPER): upper, (where, MEDIAN): median}
        before, after = errors[trained - 1], errors[-1]
        better, worse = (Estimate.of(v.double()) for v in (after < before, after > before))
        share = {"improved": better.mean, "error": better.standard_error, "worsened": worse.mean}
        models.append({"where": where, **own, **step, **share})
    rows: list[Row] = [
        {"where": where, **own, "line": line, "loops": loops, "value": value}
        for (where, line), values in lines.items()
        for loops, value in enumerate(values, start=1)
    ]
    return rows, models


def lines_of(tables: Tables, where: str, line: str) -> dict[tuple[int, int, int], np.ndarray]:
    """What is drawn of every model (n, loops in training, seed), loop by loop."""
    found: dict[tuple[int, int, int], list[float]] = {}
    for row in as_rows(tables["loops"], where=where, line=line):
        found.setdefault((row["n"], row["trained"], row["seed"]), []).append(row["value"])
    return {model: np.array(values) for model, values in found.items()}


def means_are_exact(tables: Tables) -> list[Check]:
    """Against the model's own loss, and away from home against the loss of one loop by hand."""
    home, away = (lines_of(tables, where, MEAN) for where in WHERE)
    trace, square = SHIFTED_VARIANCES.sum().item(), SHIFTED_VARIANCES.square().sum().item()

    def off(k: int) -> float:
        gaps = []
        for row in as_rows(tables["models"], where=HOME):
            model, a = (row["n"], row["trained"], row["seed"]), row["step"]
            by_hand = parts.LARGE_D - 2 * a * trace + a**2 * (1 + k / row["n"]) * square
            gaps += [home[model][row["trained"] - 1] / row["loss"], away[model][0] / by_hand]
        return max(abs(ratio - 1) for ratio in gaps)

    return checks(
        "largest relative difference of the exact means from the model's loss, and for one loop "
        "under the other covariance from d - 2a tr S + a^2 (1 + k/n) tr S^2",
        at_most(1e-6, "the trained u, of about 1e-5, adds its square"),
        {"k = d + 1": parts.LARGE_D + 1},
        unlike={"k = d": parts.LARGE_D},
        measure=off,
    )


def prompts_improve_and_means_grow(tables: Tables) -> list[Check]:
    """At home the exact mean has grown; away, its lower bound is above an earlier exact mean."""
    models = as_rows(tables["models"])
    share = min(models, key=lambda row: row["improved"])
    means, medians = (lines_of(tables, HOME, line).values() for line in (MEAN, MEDIAN))
    away, bound, median = (lines_of(tables, AWAY, line) for line in (MEAN, BOUND, MEDIAN))
    least = {model: values.min() for model, values in away.items()}
    return [
        *checks(
            f"share of prompts with a smaller error after {TEST_LOOPS} loops than as trained",
            at_least(0.5, "most prompts are more than half of them"),
            {"smallest of all settings": Estimate(share["improved"], share["error"], 1)},
            unlike={"a larger error": max(row["worsened"] for row in models)},
        ),
        *checks(
            f"after {TEST_LOOPS} loops over the minimum",
            at_least(1 + 1e-9, "growing after a minimum means above 1, beyond rounding"),
            {"exact mean, smallest": min(values[-1] / values.min() for values in means)},
            unlike={"median, largest": max(values[-1] / values.min() for values in medians)},
        ),
        *checks(
            f"other covariance: exact lower bound of the mean after {TEST_LOOPS} loops over",
            at_least(1.0, "above 1, the mean has grown, whatever it does in between"),
            {"the least exact mean, smallest": min(bound[m][-1] / v for m, v in least.items())},
            unlike={"the median, largest": max(median[m][-1] / v for m, v in least.items())},
        ),
    ]


def judge(tables: Tables) -> Verdict:
    means = lines_of(tables, HOME, MEAN)
    growth = [mean[-1] / mean.min() for mean in means.values()]
    (model, mean), row = next(iter(means.items())), as_rows(tables["models"])[0]
    return Verdict(
        checks(
            f"mean after {TEST_LOOPS} loops over its minimum",
            at_most(1.0, "a loss that keeps falling is lowest at the last loop"),
            {"exact, largest": max(growth)},
            unlike={"exact, smallest": min(growth)},
        ),
        means_are_exact(tables) + prompts_improve_and_means_grow(tables),
        Correction(
            r"L' \to \infty \text{ loops: } \mathbf{E}(\hat y_q - y_q)^2 \text{ keeps decreasing}",
            r"\mathbf{E}(\hat y_q - y_q)^2 = \mathbf{E}\,\mathrm{tr}\,(I - a W/n)^{2L'}"
            r"\to \infty, \quad \mathrm{median}(\hat y_q - y_q)^2 \to 0",
            "On a prompt the error goes to 0 if a times the largest eigenvalue of the sample "
            "covariance W/n is below 2, as on most, and grows exponentially if it is above. W/n "
            "has no largest value, so there are such prompts (gatmiry2024/expanding), and in the "
            "end they carry the mean. With n = 100 most test batches hold none of them.",
            Kind.SENTENCE,
            f"d = {parts.LARGE_D}, n = {row['n']}, trained with {row['trained']} loops: an "
            f"expanding prompt has probability {row['probability']:.1e}; the mean is least, "
            f"{mean.min():.2g}, at {mean.argmin() + 1} loops and {mean[-1]:.2g} at {TEST_LOOPS}, "
            f"where the median is {lines_of(tables, HOME, MEDIAN)[model][-1]:.1g}.",
        ),
    )


def draw(tables: Tables) -> Picture:
    picture = Picture(figsize=(13, 6))
    panels = picture.subplots(2, 4)
    styles = {
        MEAN: ("-", parts.BLUE, 2.2),
        BOUND: (":", parts.BLUE, 1.4),
        BATCH_MEAN: ("--", parts.RED, 1.4),
        UPPER: ("-", parts.GREY, 0.9),
        MEDIAN: ("-", parts.GREEN, 2.2),
    }
    order = itertools.product(parts.EXAMPLES, WHERE, TRAINED_LOOPS)
    shown = dict(zip(order, panels.flat, strict=True))
    for (n, where, trained), axes in shown.items():
        axes.axvline(trained, color="black", linewidth=0.7, linestyle=":")
        axes.set(yscale="log", title=f"{where}\n$n = {n}$, trained with {trained} loops")
    for where in WHERE:
        for line, (style, colour, width) in styles.items():
            for (n, trained, seed), values in lines_of(tables, where, line).items():
                axes, label = shown[n, where, trained], None if seed else line
                loops = range(1, len(values) + 1)
                axes.plot(loops, values, style, color=colour, linewidth=width, label=label)
    for axes in panels[1]:
        axes.set_xlabel("loops at test time")
    for axes in panels[:, 0]:
        axes.set_ylabel("squared error")
    handles, labels = panels[0][2].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=5)
    return picture


@figure(
    "gatmiry2024/figure3",
    "Models trained with 2 or 5 loops keep improving when looped longer, in distribution and out "
    "of it",
    source="Figure 3, section 5.3",
    judge=judge,
    draw=draw,
    shares="looped transformers",
)
def figure3(scale: Scale) -> Numbers:
    d, samples = parts.LARGE_D, scale.pick(smoke=2_000, quick=10_000, paper=100_000)
    exact_loops = scale.pick(smoke=4, quick=5, paper=5)
    starts = range(scale.pick(smoke=2, quick=3, paper=5))
    settings = itertools.product(parts.EXAMPLES, TRAINED_LOOPS, starts)
    found = [measured_curves(looped_transformer(d, *s), samples, exact_loops) for s in settings]
    return Numbers(
        {
            "loops": as_table(row for rows, _ in found for row in rows),
            "models": as_table(row for _, models in found for row in models),
        },
        "The median keeps falling, the mean does not. Squared error of trained models "
        f"({len(starts)} starts, which fall on each other) looped up to {TEST_LOOPS} times, on "
        "data as in training and with another covariance. Green: median. Blue: the exact mean "
        f"(out of distribution up to {exact_loops} loops; dotted, an exact lower bound). Red: the "
        f"mean of a test batch of {samples} prompts, which misses the growth until it holds a "
        "prompt on which the loop expands. Black dotted: the loops of training. "
        f"{parts.PROCEDURE} The other covariance, not named in the paper, has the variances 0.55, "
        "0.65, ..., 1.45, and w ~ N(0, its inverse).",
        {"d": d, "n": parts.EXAMPLES, "test prompts": samples},
    )
