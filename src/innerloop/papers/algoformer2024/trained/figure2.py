"""Figure 2: standard, looped and AlgoFormer transformers on three tasks, over seeds."""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure as Picture

from innerloop.experiments import Study
from innerloop.papers.algoformer2024 import trainings
from innerloop.papers.algoformer2024.trained.comparing import (
    LOWER,
    errors,
    falls,
    in_words,
    logarithm,
    ratio,
    seed_spread,
    together,
)
from innerloop.papers.algoformer2024.trained.costs import seconds_per_step, with_seconds
from innerloop.papers.algoformer2024.trained.drawing import (
    NAMES,
    curves,
    loops,
    shown,
    training,
)
from innerloop.papers.algoformer2024.trained.measuring import UNTRAINED, measured
from innerloop.papers.plots import where
from innerloop.papers.quantity import checks
from innerloop.papers.registry import Numbers, Tables, figure
from innerloop.papers.verdict import Check, Scale, Verdict

AVERAGES = {"averaged": "averaged over the numbers of examples", "last": "after all examples"}
"""What is compared of two curves."""
RANDOM = "-random-weights"
"""The ending of trainings on a representation with random weights, one of each."""
DEEP = {"quick": f"standard-{trainings.LOOPS + 2}-layers", "paper": "standard"}
"""The standard transformer of the figure: as the paper's, with more parameters than AlgoFormer."""


def study(panel: str) -> Study:
    return Study(
        f"algoformer2024/{panel}",
        partial(trainings.figure2, panel),
        measured,
        seconds_per_step,
        with_weights=lambda name: name.endswith("-seed0"),
    )


STUDIES = {panel: study(panel) for panel in trainings.TASKS}
D20 = Study(
    "algoformer2024/figure2a-d20",
    trainings.figure2a_d20,
    measured,
    seconds_per_step,
    with_weights=lambda name: True,
)


def deep_standard(tables: Tables) -> str:
    """The name of the deep standard transformer among these trainings."""
    (name,) = (name for name in DEEP.values() if name in tables["costs"]["model"])
    return name


def compared(tables: Tables, model: str, rivals: list[str]) -> list[Check]:
    """That the model's error is below each rival's: averaged over the curve, and at its end."""
    found: list[Check] = []
    for column, words in AVERAGES.items():
        spread = seed_spread(tables, column)
        own = errors(tables, model, column, spread=spread)
        before = errors(tables, model, column, learner=UNTRAINED)
        others = {name: errors(tables, name, column, spread=spread) for name in rivals}
        found += checks(
            f"log of the error over another's, {words}",
            LOWER,
            {f"{NAMES[model]} over {NAMES[k]}": ratio(own, other) for k, other in others.items()},
            unlike={f"untrained over {NAMES[k]}": ratio(before, v) for k, v in others.items()},
            measure=logarithm,
        )
    return found


def judge(tables: Tables) -> Verdict:
    """Falling curves, and AlgoFormer below the deep standard and the looped transformer."""
    standard = deep_standard(tables)
    three = {name: NAMES[name] for name in ("algoformer", "looped", standard)}
    printed = [*falls(tables, three), *compared(tables, "algoformer", [standard, "looped"])]
    words = [*remarks(tables), *representations(tables), *with_noise(tables)]
    return Verdict(printed, remarks=words)


def judge_two(tables: Tables) -> Verdict:
    """Falling curves, and AlgoFormer below a standard transformer with as many parameters."""
    rival = "standard-3-layers"
    two = {name: NAMES[name] for name in ("algoformer", rival)}
    return Verdict(
        [*falls(tables, two), *compared(tables, "algoformer", [rival])], remarks=remarks(tables)
    )


def judge_chain(tables: Tables) -> Verdict:
    """The same, and the standard transformer below the looped one as well."""
    both = judge(tables)
    standard = compared(tables, deep_standard(tables), ["looped"])
    return Verdict([*both.printed, *standard], remarks=both.remarks)


def remarks(tables: Tables) -> list[str]:
    """AlgoFormer against every other architecture, and what each of them was given."""
    costs, sentences = tables["costs"], []
    own = where(costs, model="algoformer")
    rivals = [name for name in dict.fromkeys(costs["model"]) if name in NAMES]
    for rival in rivals:
        if rival == "algoformer":
            continue
        theirs = where(costs, model=rival)
        parts = []
        for column, words in AVERAGES.items():
            spread = seed_spread(tables, column)
            pair = [errors(tables, name, column, spread=spread) for name in ("algoformer", rival)]
            parts.append(f"{in_words(ratio(pair[0], pair[1]))} {words}")
        shares = {
            what: own[what].astype(float).mean() / theirs[what].astype(float).mean()
            for what in ("parameters", "training FLOPs", "seconds")
        }
        sentences.append(
            f"AlgoFormer's error over that of {NAMES[rival]}: {', '.join(parts)}; with "
            f"{shares['parameters']:.2g} times its parameters, {shares['training FLOPs']:.2g} "
            f"times its training FLOPs and {shares['seconds']:.2g} times its time on one core, "
            "on as many tokens."
        )
    return sentences


def representations(tables: Tables) -> list[str]:
    """How many dimensions the regression has, and what changes where they are fewer."""
    if "spectrum" not in tables:
        return []
    sentences = []
    for ending, kind in (("", "orthogonal"), (RANDOM, "random")):
        models = shown(tables, ending)
        if models:
            rows = where(tables["spectrum"], model=models[0] + ending, seed=0)
            values = ", ".join(f"{value:.2g}" for value in rows["eigenvalue"].astype(float))
            ends = ", ".join(
                f"{errors(tables, name + ending, 'last').mean:.3g} ({NAMES[name]})"
                for name in models
            )
            sentences.append(
                f"Eigenvalues of E phi phi^T with {kind} weights: {values}; errors after all "
                f"examples: {ends}."
            )
    return sentences


def with_noise(tables: Tables) -> list[str]:
    """AlgoFormer beside ridge on the true features, which knows the noise, one training each."""
    sentences = []
    for model in dict.fromkeys(tables["costs"]["model"]):
        name, found, noise = str(model).partition("-noise-")
        if found:
            own = errors(tables, str(model), "last")
            best = errors(tables, str(model), "last", learner="feature-ridge")
            sentences.append(
                f"With noise {noise} of the labels: {NAMES[name]} has {in_words(own.estimate)} "
                f"after all examples, {in_words(ratio(own, best))} times ridge on true features."
            )
    return sentences


def draw(tables: Tables) -> Picture:
    with_random = bool(shown(tables, RANDOM))
    picture = Picture(figsize=(8.6, 6.8) if with_random else (11.0, 3.9))
    grid = picture.subplots(*((2, 2) if with_random else (1, 3)))
    first, *others = grid.flat
    curves(first, tables)
    if with_random:
        curves(others[0], tables, RANDOM)
        others[0].set_title("the same, random weights in phi")
    loops(others[-2], tables)
    training(others[-1], tables)
    first.set_title("error")
    others[-2].set_title("looped longer")
    others[-1].set_title("training")
    handles = first.get_legend_handles_labels()
    picture.legend(*handles, loc="outside lower center", ncols=4, fontsize=8)
    return picture


def numbers(study: Study, scale: Scale) -> Numbers:
    results = study.results(scale)
    seeds = len({record.experiment.seed for record in results.values()})
    task = next(iter(results.values())).experiment.task
    caption = (
        f"Errors on fresh prompts of {task}, divided by E |target|^2: against the number of "
        "examples (bands: lowest and highest of "
        f"{seeds} seeds), against the number of loops after all examples, and the training loss "
        "against the floating-point operations spent. The dotted line is T."
    )
    settings = {"task": task, "seeds": seeds, "T": trainings.LOOPS, "dT": trainings.WINDOW}
    tables = together(results)
    tables["costs"] = with_seconds(tables["costs"], results)
    return Numbers(tables, caption, settings)


@figure(
    "algoformer2024/figure2a",
    "Regression with representation: the error falls with the number of samples, and AlgoFormer "
    "outperforms both the standard and the vanilla looped transformer",
    source="Figure 2 (a), section 5.2",
    judge=judge,
    draw=draw,
    study=STUDIES["figure2a"],
)
def figure2a(scale: Scale) -> Numbers:
    return numbers(STUDIES["figure2a"], scale)


@figure(
    "algoformer2024/figure2a-d20",
    "Regression with representation at d = 20 and 40 examples, one training each: the error falls, "
    "and AlgoFormer outperforms a standard transformer with as many parameters",
    source="Figure 2 (a), section 5.2",
    judge=judge_two,
    draw=draw,
    study=D20,
)
def figure2a_d20(scale: Scale) -> Numbers:
    return numbers(D20, scale)


@figure(
    "algoformer2024/figure2b",
    "AR(q) with representation: the error falls with the number of samples, and AlgoFormer "
    "outperforms both the standard and the vanilla looped transformer",
    source="Figure 2 (b), section 5.2",
    judge=judge,
    draw=draw,
    study=STUDIES["figure2b"],
)
def figure2b(scale: Scale) -> Numbers:
    return numbers(STUDIES["figure2b"], scale)


@figure(
    "algoformer2024/figure2c",
    "CoT with MLPs: the error falls with the number of samples, AlgoFormer outperforms both "
    "others, and AlgoFormer and the standard transformer significantly surpass the looped one",
    source="Figure 2 (c), section 5.2",
    judge=judge_chain,
    draw=draw,
    study=STUDIES["figure2c"],
)
def figure2c(scale: Scale) -> Numbers:
    return numbers(STUDIES["figure2c"], scale)
