"""Figure 5: AlgoFormer beside gradient descent and Newton's method, on linear regression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from innerloop.analysis import Estimate
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
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    TRAINING_LOSS,
    convergence,
    errors_band,
    logarithmic,
    one,
)
from innerloop.papers.algoformer2024.trained.iterations import (
    ALGORITHMS_BESIDE,
    BEST,
    contraction_table,
    limit_table,
    measured_with_iterates,
)
from innerloop.papers.algoformer2024.trained.measuring import MODEL, UNTRAINED
from innerloop.papers.plots import as_rows, where
from innerloop.papers.quantity import ROUNDING, SAMPLING, at_least, at_most, checks
from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Check, Correction, Kind, Scale, Verdict

STUDY = Study(
    "algoformer2024/figure5",
    trainings.figure5,
    measured_with_iterates,
    seconds_per_step,
    with_weights=lambda name: "-seed" not in name or name.endswith("-seed0"),
)
PRECISION = at_most(
    1e-20, "squared rounding of float64, 1e-32, times squared condition numbers of up to 1e6"
)
LATER = at_least(0.0, "the statement: later Newton's method has the lower error")
SLOWER = at_least(1e-10, "the statement: slower, by more than rounding")
LITTLE = 0.01
"""Of E y^2: what is left to gain near the end, in words."""
COLOURS = (BLUE, PINK)
NAMES = {"gd": ("gradient descent", ORANGE), "newton": ("Newton's method", GREEN)}


@dataclass(frozen=True)
class Case:
    """What was trained, with one seed or several."""

    name: str
    loops: int
    window: int
    noise: float

    @classmethod
    def of(cls, name: str) -> Case:
        loops, window, _, noise = name.split("-")
        return cls(name, int(loops), int(window), float(noise))

    @property
    def called(self) -> str:
        return f"(T, dT) = ({self.loops}, {self.window})"


def cases(tables: Tables) -> list[Case]:
    return [Case.of(str(name)) for name in dict.fromkeys(tables["costs"]["model"])]


def path(tables: Tables, case: Case, learner: str) -> dict[int, Estimate]:
    """Errors after every number of loops, or of iterations."""
    if learner == MODEL:
        rows, index, spread = (
            where(tables["loops"], model=case.name),
            "loops",
            spread_of(tables, case),
        )
    else:
        rows = where(tables["iterates"], model=case.name, algorithm=learner)
        index, spread = "iteration", 0.0
    found = {}
    for k in np.unique(rows[index]):
        means, prompts = (rows[name][rows[index] == k].astype(float) for name in ("mean", "error"))
        mean = means.mean()
        own = means.std(ddof=1) if spread and len(means) > 1 else 0.0
        of_seeds = max(own, spread * mean) / math.sqrt(len(means))
        # Every seed answered the same prompts: theirs is an error that more seeds do not lower.
        found[int(k)] = Estimate(float(mean), math.hypot(prompts.mean(), of_seeds), len(means))
    return found


def spread_of(tables: Tables, case: Case) -> float:
    """Between seeds, relative, of all models with the noise of this one."""
    alike = [other.name for other in cases(tables) if other.noise == case.noise]
    return seed_spread(tables, "last", alike)


def over(a: Estimate, b: Estimate) -> Estimate:
    """The ratio of two errors, as if they were of different prompts."""
    least = np.finfo(float).tiny
    value = a.mean / max(b.mean, least)
    parts = (e.standard_error / max(e.mean, least) for e in (a, b))
    return Estimate(value, value * math.hypot(*parts), 0)


def ahead(tables: Tables, case: Case) -> dict[int, Estimate]:
    """AlgoFormer's error over the lower one of both algorithms, after as many iterations."""
    own = path(tables, case, MODEL)
    others = [path(tables, case, name) for name in ALGORITHMS_BESIDE]
    return {k: over(own[k], min((o[k] for o in others), key=lambda e: e.mean)) for k in own}


def without_noise(tables: Tables) -> list[Check]:
    """Ahead at first, behind Newton's method in the end, which is then exact."""
    chosen = [case for case in cases(tables) if case.noise == 0]
    ratios = {case: ahead(tables, case) for case in chosen}
    newton, own = ({c: path(tables, c, name) for c in chosen} for name in ("newton", MODEL))
    last = {case: max(own[case]) for case in chosen}
    first = {
        case: min((r for k, r in of.items() if k <= case.loops), key=lambda r: r.mean)
        for case, of in ratios.items()
    }
    return [
        *checks(
            "log of AlgoFormer's error over the lower of both algorithms', at its best within T "
            "loops",
            LOWER,
            {case.called: first[case] for case in chosen},
            unlike={f"{c.called}, after {last[c]} loops": ratios[c][last[c]] for c in chosen},
            measure=logarithm,
        ),
        *checks(
            "error of Newton's method after 10 T iterations",
            PRECISION,
            {f"beside {case.called}": newton[case][last[case]] for case in chosen},
            unlike={f"AlgoFormer, {c.called}": own[c][last[c]] for c in chosen},
        ),
        *checks(
            "log of the error after 10 T iterations over another's",
            LATER,
            {f"{c.called} over Newton": over(own[c][last[c]], newton[c][last[c]]) for c in chosen},
            unlike={
                f"Newton over {c.called}": over(newton[c][last[c]], own[c][last[c]]) for c in chosen
            },
            measure=logarithm,
        ),
    ]


def better_with_noise(tables: Tables) -> list[Check]:
    """Below the error that both algorithms end with."""
    chosen = [case for case in cases(tables) if case.noise > 0]
    limit = {case: errors(tables, case.name, "last", learner="ols") for case in chosen}
    return checks(
        "log of AlgoFormer's error after T loops over that of least squares, where both algorithms "
        "end",
        LOWER,
        {f"{c.called}, noise {c.noise:g}": ratio(of(tables, c), limit[c]) for c in chosen},
        unlike={
            f"untrained, {c.called}, noise {c.noise:g}": ratio(of(tables, c, UNTRAINED), limit[c])
            for c in chosen
        },
        measure=logarithm,
    )


def of(tables: Tables, case: Case, learner: str = MODEL) -> Errors:
    spread = spread_of(tables, case) if learner == MODEL else 0.0
    return errors(tables, case.name, "last", learner=learner, spread=spread)


def slower(tables: Tables) -> list[Check]:
    rows = as_rows(tables["contraction"])
    return checks(
        "largest increase by noise of the share of an eigendirection that is left to go",
        SLOWER,
        {_which(row): row["slower"] for row in rows},
        unlike={"without noise, against itself": 0.0},
    )


def not_slower(tables: Tables) -> list[Check]:
    rows, (limit,) = as_rows(tables["contraction"]), as_rows(tables["limit"])

    def z(exact: str) -> float:
        return abs(limit["mean"] - limit[exact]) / limit["error"]

    return [
        *checks(
            "largest change by noise of the share of an eigendirection that is left to go",
            ROUNDING,
            {_which(row): row["change"] for row in rows},
            unlike={f"{_which(row)}, one step behind": row["one step behind"] for row in rows},
        ),
        *checks(
            "|z| of the error of least squares against sigma^2 d / (n - d - 1)",
            SAMPLING,
            {f"noise {limit['noise']:g}": z("exact")},
            unlike={"n - d for n - d - 1": z("with n - d")},
        ),
    ]


def _which(row: dict[str, float]) -> str:
    return f"{NAMES[str(row['algorithm'])][0]}, noise {row['noise']:g}"


def judge(tables: Tables) -> Verdict:
    always = [*without_noise(tables), *better_with_noise(tables)]
    return Verdict(
        [*always, *slower(tables)],
        [*always, *not_slower(tables)],
        Correction(
            r"\text{with more noise, gradient descent and Newton's method converge slowly}",
            r"w_{\mathrm{ls}} - w_k = p_k(S)\,w_{\mathrm{ls}},\qquad "
            r"\mathbb{E}\,\langle w_{\mathrm{ls}} - w, x\rangle^2 = \frac{\sigma^2 d}{n - d - 1}",
            "The matrix by which an iteration shrinks what is left to go is made of the covariates "
            "alone: labels do not enter it, and so does no noise. What rises with the noise is the "
            "error of least squares, where both end; as it is higher, they are near it sooner.",
            Kind.SENTENCE,
            "One covariate, one step: w_1 = eta s w_ls whatever the labels are.",
        ),
        remarks=[*near_the_limit(tables), *beside(tables)],
    )


def near_the_limit(tables: Tables) -> list[str]:
    """How many iterations it takes until there is little left to gain."""
    sentences = []
    for name in ALGORITHMS_BESIDE:
        parts = {}
        longest = max(case.loops for case in cases(tables))
        for case in (case for case in cases(tables) if case.loops == longest):
            steps = path(tables, case, name)
            end = steps[max(steps)].mean
            parts[case.noise] = min(k for k, e in steps.items() if e.mean <= end + LITTLE)
        words = ", ".join(f"{k} with noise {noise:g}" for noise, k in parts.items())
        sentences.append(
            f"Iterations of {NAMES[name][0]} to within {LITTLE:g} E y^2 of its last error: {words}."
        )
    return sentences


def beside(tables: Tables) -> list[str]:
    """AlgoFormer against all that a reader would try, at every noise."""
    sentences = []
    for case in cases(tables):
        others = ("ols", "ridge", *BEST.values()) if case.noise else tuple(BEST.values())
        own = of(tables, case)
        ratios = {
            other: ratio(own, errors(tables, case.name, "last", learner=other)) for other in others
        }
        words = ", ".join(f"{in_words(value)} ({name})" for name, value in ratios.items())
        sentences.append(
            f"{case.called}, noise {case.noise:g}: error {in_words(own.estimate)} after T loops"
            + (f", over that of others: {words}." if case.noise else ".")
        )
    return sentences


def draw(tables: Tables) -> Picture:
    noises = list(dict.fromkeys(case.noise for case in cases(tables)))
    picture = Picture(figsize=(11.0, 6.8))
    grid = picture.subplots(2, len(noises))
    for axes, below, noise in zip(*grid, noises, strict=True):
        chosen = [case for case in cases(tables) if case.noise == noise]
        panel(axes, tables, chosen)
        names = (case.name for case in chosen)
        convergence(below, tables, dict(zip(names, COLOURS, strict=False)))
        if noise == 0:
            axes.set_ylim(bottom=1e-8)
        logarithmic(axes, title=f"noise {noise:g}", xlabel="loops or iterations")
    grid[0, 0].set_ylabel(r"error after all examples / E$\,y^2$")
    grid[1, 0].set_ylabel(TRAINING_LOSS)
    handles = grid[0, -1].get_legend_handles_labels()
    picture.legend(*handles, loc="outside lower center", ncols=6, fontsize=8)
    return picture


def panel(axes: Axes, tables: Tables, chosen: Sequence[Case]) -> None:
    for case, colour in zip(chosen, COLOURS, strict=False):
        band(axes, path(tables, case, MODEL), colour, f"AlgoFormer {case.called}")
    longest = max(chosen, key=lambda case: case.loops)
    for name, (label, colour) in NAMES.items():
        band(axes, path(tables, longest, name), colour, label)
    for learner, label, colour in (("ols", "least squares", BLACK), ("ridge", "ridge", GREY)):
        if learner in where(tables["blocks"], model=longest.name)["learner"]:
            level = errors(tables, longest.name, "last", learner=learner).mean
            if level > PRECISION.bound:
                axes.axhline(level, color=colour, linestyle="--", linewidth=1.2, label=label)
    one(axes)


def band(axes: Axes, steps: dict[int, Estimate], colour: str, label: str) -> None:
    means, deviations = zip(*((e.mean, e.standard_error) for e in steps.values()), strict=True)
    errors_band(axes, np.array(list(steps)), np.array(means), np.array(deviations), colour, label)


@figure(
    "algoformer2024/figure5",
    "Without noise AlgoFormer outperforms Newton's method and gradient descent in the beginning, "
    "and Newton's method later reaches machine precision, AlgoFormer not; with increasing noise "
    "both algorithms converge slowly, and AlgoFormer exhibits better performance",
    source="Figure 5, section 5.4",
    judge=judge,
    draw=draw,
    study=STUDY,
)
def figure5(scale: Scale) -> Numbers:
    results = STUDY.results(scale)
    options = next(iter(results.values())).experiment.task.options
    d, n = options["d"], options["n"]
    noises = sorted({record.experiment.task.options["noise_std"] for record in results.values()})
    samples = scale.pick(smoke=40_000, quick=100_000, paper=200_000)
    tables = {
        **together(results, "blocks", "costs", "loops", "iterates", "training"),
        "contraction": contraction_table(d, n, noises[1:]),
        "limit": limit_table(d, n, noises[-1], samples),
    }
    caption = (
        f"The error after all examples of AlgoFormers on linear regression, d = {d}, n = {n}, "
        "after so many loops, beside gradient descent with the longest safe step of each prompt "
        "and Newton's method (Eq. 4, alpha = 1 / |S S^T|) after so many iterations. Bands are two "
        "standard errors, of prompts and for AlgoFormer of seeds. The query's label has no noise. "
        "Below: the training losses, whose labels have it."
    )
    return Numbers(tables, caption, {"d": d, "n": n, "prompts of the limit": samples})
