"""Records of AlgoFormer's trainings with errors made up, so that what is judged is known.

Every experiment is the study's own, and tables are made by the functions that measure a model; only
the numbers in them are drawn here, by default so that every statement of the paper is true.
"""

from importlib import import_module

import torch

from innerloop.experiments import Record
from innerloop.papers import entries, registry
from innerloop.papers.algoformer2024.trained import costs
from innerloop.papers.algoformer2024.trained.iterations import BEST
from innerloop.papers.algoformer2024.trained.measuring import (
    LOOPED_LONGER,
    MODEL,
    UNTRAINED,
    block_table,
    curve_table,
    loop_counts,
    loop_table,
)
from innerloop.papers.plots import as_table
from tests.samples import normal

PROMPTS, COUNTS = 320, 6
WITH_WEIGHTS = {"siblings"}
"""Figures that ask the trained models themselves; tables do not do."""


def figures():
    """The figures of trained models by name, whether or not the paper registers them yet.

    The registry is left as the paper has it: other tests compare it with the paper's index.
    """
    registered = dict(entries())
    for module in ("figure2", "same_layers", "figure3", "figure4", "figure5"):
        import_module(f"innerloop.papers.algoformer2024.trained.{module}")
    every = dict(registry._ENTRIES)
    for id in every.keys() - registered.keys():
        del registry._ENTRIES[id]
    return {
        id.split("/")[1]: entry
        for id, entry in every.items()
        if ".trained." in entry.function.__module__ and id.split("/")[1] not in WITH_WEIGHTS
    }


FIGURES = figures()
STUDIES = {entry.study.name.split("/")[1]: entry.study for entry in FIGURES.values()}
UNIT = 3.0


def true_level(panel, name):
    """The error after T loops and after 10 T, such that the paper is right."""
    model = name.partition("-seed")[0]
    if panel.startswith("figure2"):
        standard = {"standard-3-layers": 0.1, "standard-10-layers": 0.08}
        level = {"algoformer": 0.02, "looped": 0.4, "looped-3-layers": 0.3, **standard}
        return level.get(model, 0.05), 0.5
    if panel == "figure3":
        loops, window = (int(part) for part in model.split("-")[:2])
        return 0.4 / loops, 0.8 / loops if window > 1 else 3.0
    if panel == "figure4":
        layers, _, heads, *_ = model.split("-")
        return {("4", "16"): 0.5}.get((layers, heads), 0.4 / (int(layers) * int(heads))), 0.5
    noise = float(model.split("-")[-1])
    return (0.01, 0.02) if noise == 0 else (0.6 * ls_error(noise), 0.7 * ls_error(noise))


def ls_error(noise):
    return max(noise**2 * 3 / 8 / UNIT, 1e-30)


def fabricate(folder, panels, level=true_level, spread=0.01):
    """Writes the records of these studies."""
    for panel in panels:
        study = STUDIES[panel]
        for name, experiment in study.experiments("quick").items():
            tables = tables_of(panel, name, experiment, level(panel, name), spread)
            steps = list(range(0, 3001, 150))
            history = {"step": steps, "loss": [UNIT / (1 + 0.01 * step) for step in steps]}
            Record(
                f"{study.name}/{name}",
                experiment,
                history,
                tables,
                "2026-01-02",
                "a machine",
                600.0,
            ).save(folder)


def tables_of(panel, name, experiment, level, spread):
    """What `measured` would give, with errors that fall from 1 to the level."""
    counts = loop_counts(experiment.objective.options.get("loops", 1))
    # A factor for every prompt, the same for all models; and one for the seed.
    prompts = (0.3 * normal(PROMPTS, seed=5) - 0.045).exp()
    own = 1 + spread * (experiment.seed - 1)

    def errors(last, factor=1.0):
        return prompts[:, None] * factor * last ** torch.linspace(0, 1, COUNTS).double()

    flat = errors(1.0)
    learners = {
        MODEL: errors(level[0], own),
        UNTRAINED: 1.3 * flat,
        "zero": flat,
        LOOPED_LONGER: errors(level[1], own),
    }
    spent = {"parameters": 1000, "layers": 10, "tokens": 10**6, "E target^2": UNIT}
    tables = {"costs": as_table([spent | {"training FLOPs": costs.training_flops(experiment)}])}
    if experiment.task.name == "representation":
        tables["spectrum"] = {"index": [1, 2, 3], "eigenvalue": [0.9, 0.7, 0.5]}
        learners["feature-ridge"] = errors(1e-3)
    if panel == "figure5":
        noise = experiment.task.options["noise_std"]
        limit = ls_error(noise)
        others = ("ols", "ridge", *BEST.values())
        learners |= {other: errors(limit * (0.9 if other == "ridge" else 1)) for other in others}
        tables["iterates"] = as_table(
            {"algorithm": name, "iteration": k, "mean": limit + left(k), "error": 0.01 * limit}
            for name, left in (("gd", lambda k: 0.8**k), ("newton", lambda k: 0.98 ** (2**k)))
            for k in counts
        )
    if experiment.model.name != "gpt2":
        shares = torch.tensor([min(1, k / (counts[-1] // 10)) for k in counts]).double()
        path = level[0] ** shares  # falls until T, and stays
        path[-1] = level[1]
        tables["loops"] = loop_table(counts, path[:, None, None] * prompts[None, :, None])
        tables["jacobian"] = {"lowest tenth": [0.7], "median": [0.8], "highest tenth": [0.9]}
    return {**tables, "curve": curve_table(learners), "blocks": block_table(learners)}


def exchanged(one, other):
    """True levels but for two models, which have each other's."""

    def level(panel, name):
        model = name.partition("-seed")[0]
        swapped = {one: other, other: one}.get(model, model)
        return true_level(panel, name.replace(model, swapped, 1))

    return level


def raised(*models, by):
    """True levels but for these models, whose errors are larger by a factor."""

    def level(panel, name):
        end, far = true_level(panel, name)
        factor = by if name.partition("-seed")[0] in models else 1.0
        return end * factor, far * factor

    return level
