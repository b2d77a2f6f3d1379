"""Figures 3 and 4, and what section 6.1 reads off them: training three layers of weights (13)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from matplotlib.figure import Figure as Picture
from torch import Tensor
from torch.nn.functional import pad

from innerloop import theory
from innerloop.analysis import Estimate
from innerloop.models import AHN
from innerloop.papers.ahn2023.figures1_2 import BLUE, GREY, RED
from innerloop.papers.ahn2023.settings import LAYERS, TRANSFORMED_N, D, experiment
from innerloop.papers.ahn2023.training import (
    ARRIVED,
    DEPARTURES,
    LIMIT,
    Trained,
    exact_and_sampled,
    matches_theory,
    reference_distances,
    transformed_transformers,
)
from innerloop.papers.common import DTYPE, generator, square_root
from innerloop.papers.plots import heatmaps, history_table, matrix_table, plot_runs
from innerloop.papers.quantity import Quantity, at_least, at_most, measured
from innerloop.papers.registry import Numbers, Table, Tables, claim, figure
from innerloop.papers.verdict import Correction, Kind, Scale, Verdict

NAMES = ["B 0", "B 1", "A 0", "A 1", "A 2"]


def draw_figure3(tables: Tables) -> Picture:
    table, optimum = tables["training"], float(tables["reference"]["best known"][0])
    picture = Picture(figsize=(10, 5.2))
    top, bottom = picture.subplots(2, 3)
    for layer, axes in enumerate(top[:2]):
        plot_runs(axes, table, "fresh samples", f"transforms {layer}", BLUE, "$B$")
        axes.set_title(f"({'ab'[layer]}) $B_{layer}$")
    plot_runs(top[2], table, "fresh samples", "loss", GREY, "training loss")
    top[2].axhline(optimum, color="black", linewidth=0.8, label=f"best known {optimum:.5f}")
    every = [float(v) for v in tables["starts"]["training loss"]]
    end = max(int(step) for step in table["step"])
    top[2].plot([end] * len(every), every, "_", color=RED, label="end of every start")
    top[2].set(title="(c) training loss", yscale="log")
    for layer, axes in enumerate(bottom):
        white = r"$\Sigma^{1/2} A \Sigma^{1/2}$"
        plot_runs(axes, table, "fresh samples", f"white {layer}", BLUE, white)
        plot_runs(axes, table, "fresh samples", f"plain {layer}", RED, "$A$")
        axes.set_title(f"({'def'[layer]}) $A_{layer}$")
        axes.set_xlabel("L-BFGS iteration")
    for axes in (*top[:2], *bottom):
        axes.set_ylim(0, 1.02)
    top[0].set_ylabel("Dist to multiples of I")
    bottom[0].set_ylabel("Dist to multiples of I")
    for axes in (top[0], top[2], bottom[0]):
        axes.legend(fontsize=7)
    return picture


def judge_figure3(tables: Tables) -> Verdict:
    ends = tables["ends"]
    reference = {key: float(values[0]) for key, values in tables["reference"].items()}
    best = reference["best known"]
    losses = [float(v) for v in ends["loss"]]
    certain = [loss + 4 * float(e) for loss, e in zip(losses, ends["standard error"], strict=True)]
    left = measured(
        "final loss relative to the loss of zero weights",
        LIMIT,
        {"trained": max(losses) / D, "zero weights": 1.0},
    )
    gaps = measured(
        "largest relative gap of the final loss, its sampled part four standard errors up, from "
        "the best known loss of the ray",
        at_most(1e-4, "the last round of training changes the loss by less than a millionth"),
        {
            "trained": max(abs(loss / best - 1) for loss in certain),
            "the second local minimum of the ray": reference["second"] / best - 1,
        },
    )
    matched = matches_theory(tables, "fresh samples")
    return Verdict(
        printed=[*matched, left.check("trained", unlike="zero weights")],
        corrected=[
            *matched,
            gaps.check("trained", unlike="the second local minimum of the ray"),
        ],
        correction=Correction(
            r"f(A, B) \to 0",
            rf"f(A, B) \to {best:.5f} > 0",
            "With 10 examples three layers cannot solve the regression, with transforms either. "
            f"The best point of the ray known, where {reference['hits']:.0f} of "
            f"{reference['starts']:.0f} starts of a search on the exact loss end, has the loss "
            f"{best:.5f}, {best / D:.2%} of E y^2 = 5; training ends there.",
            Kind.SENTENCE,
            f"Every seed ends at a loss of {min(losses):.5f} to {max(losses):.5f}.",
        ),
        settings={"layers": LAYERS, "d": D, "n": TRANSFORMED_N},
    )


@figure(
    "ahn2023/figure3",
    "With covariate transforms, training finds A proportional to the inverse covariance and B to "
    "the identity, and the loss converges to 0",
    source="Figure 3, section 6.1",
    judge=judge_figure3,
    draw=draw_figure3,
    shares="trained transformers",
)
def figure3(scale: Scale) -> Numbers:
    starts = transformed_transformers(scale)
    kept = [runs[0] for runs in starts]
    searches = scale.pick(smoke=60, quick=300, paper=1000)
    best = theory.linear.transformed_optimum(
        LAYERS, TRANSFORMED_N, D, starts=searches, generator=generator(0)
    )
    losses = [
        exact_and_sampled(run, scale.pick(smoke=2_000, quick=20_000, paper=100_000)) for run in kept
    ]
    tables: dict[str, Table] = {
        "training": history_table({"fresh samples": [(run.seed, run.history) for run in kept]}),
        "starts": {
            "seed": [run.seed for runs in starts for run in runs],
            "training loss": [run.loss for runs in starts for run in runs],
        },
        "ends": {
            "seed": [run.seed for run in kept],
            "loss": [loss.mean for loss in losses],
            "standard error": [loss.standard_error for loss in losses],
        },
        "reference": {
            "best known": [best.risk],
            "second": [ray_minimum([1.003, 1.278, 11.111, 0.154, 1.086])[0]],
            "hits": [best.hits],
            "starts": [searches],
            **{key: [value] for key, value in reference_distances(TRANSFORMED_N).items()},
        },
    }
    caption = (
        "Distances of the learned matrices from multiples of the identity and the training loss "
        f"while the third layer is trained, mean and range over {len(kept)} seeds, the better of "
        f"{len(starts[0])} starts each; where every start ended is marked. The loss jumps where "
        f"the first fresh sample shows how far the opening one was overfitted. {DEPARTURES}"
    )
    return Numbers(tables, caption, {"seeds": f"0 to {len(kept) - 1}, each with its own Sigma"})


def ray_minimum(start: list[float]) -> tuple[float, Tensor]:
    """The local minimum of the ray near these steps and transforms, n = 10: its loss and place."""

    def risk(vector: Tensor) -> Tensor:
        transforms = pad(vector[LAYERS:], (0, 1))
        return theory.linear.ray_risk(vector[:LAYERS], TRANSFORMED_N, D, transforms)

    return theory.flow.descend(risk, torch.tensor(start, dtype=DTYPE))


def growth(norms: list[float]) -> float:
    """The smallest ratio of successive norms."""
    return min(after / before for before, after in pairwise(norms))


def judge_figure4(tables: Tables) -> Verdict:
    layers, other = tables["layers"], tables["minimum"]
    seeds = np.unique(np.asarray(layers["seed"]))
    norms = {
        seed: [float(v) for s, v in zip(layers["seed"], layers["norm"], strict=True) if s == seed]
        for seed in seeds
    }
    increasing = measured(
        "smallest ratio of the norms of successive A_i",
        at_least(1.0, "increasing means above 1"),
        {
            "trained": min(growth(values) for values in norms.values()),
            "the third local minimum of the ray": growth([float(v) for v in other["steps"]]),
        },
    ).check("trained", unlike="the third local minimum of the ray")
    updates = measured(
        "what the stated update of the covariates leaves of the true one, largest of any layer",
        ARRIVED,
        {
            name: max(float(v) for v in layers[name])
            for name in ("-c X X^T X, best c", "-|ab| X X^T Sigma^-1 X", "no update")
        },
    )
    printed, corrected, control = updates
    return Verdict(
        printed=[increasing, updates.check(printed, unlike=control)],
        corrected=[increasing, updates.check(corrected, unlike=printed)],
        correction=Correction(
            r"X_{k+1} \approx X_k (I - |a_k b_k| M X_k^\top X_k)",
            r"X_{k+1} \approx X_k (I - \tfrac{1}{n} |a_k b_k| M X_k^\top \Sigma^{-1} X_k)",
            "A_k is a multiple of Sigma^-1, not of I. The sign is as printed: the covariates "
            "shrink.",
            Kind.MISPRINT,
            f"With the best factor for every layer, the printed update misses "
            f"{updates[printed]:.0%} of the true one.",
        ),
        remarks=["The text refers to Figures 3a and 4b where it means 3a and 3b."],
    )


@figure(
    "ahn2023/figure4",
    "With covariate transforms the preconditioners grow from layer to layer, and a layer multiplies"
    " the covariates by nearly I - |a_k b_k| X^T X",
    source="Figure 4, section 6.1",
    judge=judge_figure4,
    draw=lambda tables: heatmaps(tables["matrices"], NAMES),
    shares="trained transformers",
)
def figure4(scale: Scale) -> Numbers:
    trained = [runs[0] for runs in transformed_transformers(scale)]
    run = trained[0]
    matrices = dict(zip(NAMES, [*run.transforms, *run.white_preconditioners], strict=True))
    layers: dict[str, list[float]] = {}
    for run in trained:
        norms = torch.linalg.matrix_norm(run.white_preconditioners).tolist()
        left = [*updates_left(run), {}]
        for layer, norm in enumerate(norms):
            row = {"seed": run.seed, "layer": layer, "norm": norm}
            row |= left[layer] or dict.fromkeys(left[0], 0.0)  # the last update changes nothing
            for key, value in row.items():
                layers.setdefault(key, []).append(value)
    _, place = ray_minimum([1.105, 0.931, 10.93, 0.123, 1.47])
    caption = (
        "Learned matrices of seed 0 of Figure 3; the preconditioners are whitened. Norms and "
        f"updates of all seeds are in the table, and judged. {DEPARTURES}"
    )
    tables: dict[str, Table] = {
        "matrices": matrix_table(matrices),
        "layers": layers,
        "minimum": {"steps": place[:LAYERS].tolist()},
    }
    return Numbers(tables, caption)


@torch.no_grad()
def updates_left(run: Trained) -> list[dict[str, float]]:
    """Of every layer but the last: how far stated updates of X are from that of the paper's layer.

    On fresh prompts, as a share of the true update.
    """
    prompt = run.task.sample(200, generator=generator(700 + run.seed))
    p, q = AHN.weights_to(*run.model.weights.matrices(), n=run.task.n)
    z, inverse = prompt.token_matrix(), run.task.covariance.inverse()
    steps = run.white_preconditioners.diagonal(dim1=-2, dim2=-1).mean(-1)
    transforms = run.transforms.diagonal(dim1=-2, dim2=-1).mean(-1)
    rows = []
    for layer, transform in enumerate(transforms):
        after = AHN.layers(p[layer : layer + 1], q[layer : layer + 1], z)
        x, change = z[:, :-1], (after - z)[:, :-1]
        gram = x[:, :, :-1] @ x[:, :, :-1].mT / run.task.n
        printed = -gram @ x
        factor = (printed * change).sum() / printed.square().sum()
        corrected = -(steps[layer] * transform).abs() * gram @ inverse @ x
        rows.append(
            {
                name: ((change - stated).norm() / change.norm()).item()
                for name, stated in (
                    ("-c X X^T X, best c", factor * printed),
                    ("-|ab| X X^T Sigma^-1 X", corrected),
                    ("no update", 0 * change),
                )
            }
        )
        z = after
    return rows


def spectra(n: int, steps: Tensor, transforms: Tensor, draws: int) -> list[Tensor]:
    """Eigenvalues of the Gram matrices of X_0, X_1, .. as layers of the ray make them.

    The layers multiply Sigma^-1/2 X, whose Gram matrix has the eigenvalues g of W/n at first, and
    g (1 - a b g)^2 after a layer.
    """
    wishart = theory.wishart.sample_wishart(draws, n, D, generator=generator(0), dtype=DTYPE) / n
    g, vectors = torch.linalg.eigh(wishart)
    root = square_root(experiment(n, seed=0).covariance)
    found = []
    for a, b in zip(steps.tolist(), transforms.tolist(), strict=True):
        found.append(torch.linalg.eigvalsh(root @ (vectors * g[:, None]) @ vectors.mT @ root))
        g = g * (1 - a * b * g) ** 2
    return found


@claim(
    "ahn2023/section6.1-trend",
    "The steps grow more with transforms than without, as each X_k is better conditioned than the "
    "one before it",
    source="Section 6.1, second observation; section 6, after Theorem 5",
)
def trend(scale: Scale) -> Verdict:
    best = theory.linear.transformed_optimum(
        *(LAYERS, TRANSFORMED_N, D),
        starts=scale.pick(smoke=60, quick=300, paper=1000),
        generator=generator(0),
    )
    assert best.transforms is not None
    draws = scale.pick(smoke=4_000, quick=40_000, paper=400_000)
    x = spectra(TRANSFORMED_N, best.steps, best.transforms, draws)
    numbers, largest = [g[:, -1] / g[:, 0] for g in x], [g[:, -1] for g in x]

    def less(pair: tuple[Tensor, Tensor]) -> Estimate:
        return Estimate.of((pair[0] < pair[1]).to(DTYPE))

    most = at_least(0.5, "it is so in most prompts")
    pairs = {"X_1 than X_0": (1, 0), "X_2 than X_1": (2, 1), "X_0 than X_1": (0, 1)}
    better, smaller = (
        Quantity(name, less, most).of({k: (of[i], of[j]) for k, (i, j) in pairs.items()})
        for name, of in (
            ("share of prompts with a smaller condition number", numbers),
            ("share of prompts with a smaller largest eigenvalue", largest),
        )
    )
    sparse = theory.linear.untied_optimum(LAYERS, TRANSFORMED_N, D).steps
    ratio = (sparse[-1] / sparse[0]).item()
    grow = measured(
        "last step over first, as a multiple of the same without transforms",
        at_least(1.0, "more than without"),
        {
            "with transforms": (best.steps[-1] / best.steps[0]).item() / ratio,
            "one step, looped": 1 / ratio,
        },
    ).check("with transforms", unlike="one step, looped")
    medians = ", ".join(f"{v.median().item():.1f}" for v in numbers)
    eigenvalues = ", ".join(f"{v.median().item():.2f}" for v in largest)
    return Verdict(
        printed=[grow, *(better.check(k, unlike="X_0 than X_1") for k in list(pairs)[:2])],
        corrected=[
            grow,
            better.check("X_1 than X_0", unlike="X_0 than X_1"),
            *(smaller.check(k, unlike="X_0 than X_1") for k in list(pairs)[:2]),
        ],
        correction=Correction(
            r"\kappa(X_2 X_2^\top) < \kappa(X_1 X_1^\top)",
            r"\lambda_{\max}(X_2 X_2^\top) < \lambda_{\max}(X_1 X_1^\top)",
            "At the best known point of the ray the first transform makes the Gram matrix better "
            "conditioned and the second one worse. What both do is to make it smaller, and that "
            "is what the growing steps make up for.",
            Kind.SENTENCE,
            f"n = 10: median condition numbers {medians} of X_0, X_1, X_2, and largest eigenvalues "
            f"{eigenvalues}.",
        ),
        settings={
            "d": D,
            "n": TRANSFORMED_N,
            "prompts": draws,
            "a": [round(v, 4) for v in best.steps.tolist()],
            "b": [round(v, 4) for v in best.transforms[:-1].tolist()],
        },
        remarks=["Whether that point is the global minimum is not proved: see Figure 3."],
    )
