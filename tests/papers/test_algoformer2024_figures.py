"""Figures 2 to 5 of AlgoFormer: what is measured, compared and judged, on records made here."""

import json
import math
import re

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from innerloop import analysis
from innerloop.experiments import OBJECTIVES, Experiment, Run, Study
from innerloop.experiments.study import RECORDS
from innerloop.papers import Outcome, Scale
from innerloop.papers.algoformer2024 import trainings
from innerloop.papers.algoformer2024.trained import (
    comparing,
    costs,
    figure2,
    iterations,
    measuring,
)
from innerloop.papers.algoformer2024.trained.comparing import Curve, Errors, ratio
from innerloop.papers.plots import as_rows, where
from innerloop.papers.quantity import widening
from innerloop.report import to_mathml
from innerloop.report.plot_style import drawn
from tests.mutations.algoformer2024_figures import MUTATIONS
from tests.mutations.mutation import applied
from tests.papers.fabricated_records import FIGURES, STUDIES, exchanged, fabricate, raised
from tests.samples import seeded

READS = {
    "figure2a": ("figure2a",),
    "figure2a-d20": ("figure2a-d20",),
    "figure2b": ("figure2b",),
    "figure2c": ("figure2c",),
    "same-layers": ("figure2a", "figure2b", "figure2c"),
    "figure3": ("figure3",),
    "figure4": ("figure4",),
    "figure4-loop": ("figure4",),
    "figure5": ("figure5",),
}
"""Every figure, and the studies whose records it reads."""
TRUE = {name: Outcome.CORRECTED if name == "figure5" else Outcome.HOLDS for name in READS}
"""The verdict if every trained model is as the paper says: noise still slows no iteration."""


@pytest.fixture(scope="module")
def true_records(tmp_path_factory):
    """Records of all studies in which every statement of the paper is true."""
    folder = tmp_path_factory.mktemp("records")
    fabricate(folder, STUDIES)
    return folder


@pytest.fixture
def judged(true_records, tmp_path, monkeypatch):
    """The measurement of a figure, on true records or on those that are changed in some way."""

    def measure(name, **changed):
        folder = tmp_path if changed else true_records
        if changed:
            fabricate(folder, READS[name], **changed)
        monkeypatch.setenv(RECORDS, str(folder))
        monkeypatch.setattr(costs, "TIMED_STEPS", 1)
        return FIGURES[name].measure(Scale.SMOKE)

    return measure


@pytest.mark.parametrize("name", READS)
def test_a_figure_whose_models_are_as_the_paper_says_is_judged_so_and_drawn(name, judged):
    measurement = judged(name)
    verdict = measurement.verdict
    assert verdict.outcome == TRUE[name]
    assert all(c.separates and c.decides for c in (*verdict.printed, *verdict.corrected))
    assert "recorded on 2026-01-02" in verdict.settings["trainings"]
    assert verdict.remarks
    assert drawn(FIGURES[name].draw, measurement.tables).svg.lstrip().startswith("<?xml")
    if verdict.correction:
        assert "<math" in to_mathml(verdict.correction.corrected)


WRONG = {
    "figure2a": exchanged("algoformer", "looped"),
    "figure2a-d20": exchanged("algoformer", "standard-3-layers"),
    "figure2b": exchanged("algoformer", "standard-10-layers"),
    "figure2c": exchanged("looped", "standard-10-layers"),
    "same-layers": exchanged("algoformer", "standard-3-layers"),
    "figure3": exchanged("8-1-as-printed", "8-6-as-printed"),
    "figure4": raised("4-layers-4-heads", by=10),
    "figure4-loop": raised("2-layers-4-heads-in-the-loop", by=10),
    "figure5": raised("4-4-noise-1.0", by=3),
}


@pytest.mark.parametrize("name", READS)
def test_a_figure_of_which_one_part_is_not_so_fails(name, judged):
    assert judged(name, level=WRONG[name]).verdict.outcome == Outcome.FAILS


@pytest.mark.parametrize("name", ["figure2a", "figure3", "figure4", "figure5"])
def test_trainings_that_differ_from_seed_to_seed_leave_it_open(name, judged):
    assert judged(name, spread=0.95).verdict.outcome == Outcome.INCONCLUSIVE


def test_a_model_that_is_larger_and_not_better_is_no_exception(judged):
    better = raised("4-layers-16-heads", by=0.01)
    assert judged("figure4", level=better).verdict.outcome == Outcome.FAILS
    assert judged("figure4-loop", level=better).verdict.outcome == Outcome.HOLDS


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.what)
def test_every_mutation_is_noticed_where_the_paper_is_right(mutation, judged):
    for id in mutation.ids:
        name = id.split("/")[1]
        with applied(mutation.target, mutation.wrong):
            assert judged(name).verdict.outcome != TRUE[name], id


def test_every_figure_is_here():
    assert set(READS) == set(FIGURES)


def test_every_figure_has_a_mutation():
    moved = {id for mutation in MUTATIONS for id in mutation.ids}
    assert moved == {f"algoformer2024/{name}" for name in READS}


def test_a_figure_without_its_records_says_what_they_would_take(tmp_path, monkeypatch):
    monkeypatch.setattr("innerloop.experiments.study.SHIPPED", tmp_path)
    for name, needed in READS.items():
        assert FIGURES[name].study.name.endswith(needed[0])
        verdict = FIGURES[name].measure(Scale.QUICK).verdict
        assert verdict.outcome == Outcome.INCONCLUSIVE
        assert re.search(r"have no record; .* in about .* core-hours", verdict.missing)


def test_a_figure_that_reads_several_studies_changes_with_the_records_of_each(judged, tmp_path):
    judged("same-layers", spread=0.02)
    before = FIGURES["same-layers"].study.digest()
    (tmp_path / "algoformer2024" / "figure2b" / "looped-seed0.json").unlink()
    assert FIGURES["same-layers"].study.digest() != before


# How two groups of trainings are compared.


def test_the_standard_error_of_a_ratio_is_that_of_many_repetitions():
    """Seeds and prompts drawn anew: the ratios scatter as one of them says."""
    source = np.random.default_rng(0)

    def group(level, prompts, spread, seeds):
        of_seeds = np.exp(spread * source.standard_normal((seeds, 1)))
        noise = 1 + 0.1 * source.standard_normal((seeds, prompts.size))
        return Errors(level * of_seeds * prompts * noise, spread)

    ratios, errors = [], []
    for _ in range(2000):
        prompts = np.exp(0.3 * source.standard_normal(16))
        estimate = ratio(group(0.2, prompts, 0.1, 3), group(0.4, prompts, 0.1, 3))
        ratios.append(estimate.mean)
        errors.append(estimate.standard_error)
    assert np.mean(ratios) == pytest.approx(0.5, rel=0.02)
    assert np.std(ratios) == pytest.approx(np.mean(errors), rel=0.1)


def test_prompts_that_are_hard_for_both_leave_a_ratio_exact():
    prompts = np.exp(np.random.default_rng(1).standard_normal((1, 16)))
    estimate = ratio(Errors(0.3 * prompts), Errors(0.6 * prompts))
    assert estimate.mean == pytest.approx(0.5)
    assert estimate.standard_error < 1e-12


def test_a_model_that_varies_more_than_the_others_counts_with_its_own_spread():
    rows = [
        {"model": model, "seed": seed, "learner": "model", "block": b, "last": level * factor}
        for model, spread in (*((f"calm {i}", 0.01) for i in range(6)), ("wild", 0.5))
        for seed, factor in enumerate((1 - spread, 1, 1 + spread))
        for b, level in enumerate((0.9, 1.1))
    ]
    tables = {"blocks": {key: [row[key] for row in rows] for key in rows[0]}}
    pooled = comparing.seed_spread(tables, "last")
    assert pooled == pytest.approx(widening(14) * math.sqrt((6 * 0.01**2 + 0.5**2) / 7))
    calm, wild = (
        comparing.errors(tables, model, "last", spread=pooled).spread
        for model in ("calm 0", "wild")
    )
    assert (calm, wild) == (pytest.approx(pooled), pytest.approx(0.5))


def test_loops_that_grow_cost_less_at_first():
    at_once = trainings.small("algoformer:loops=8", trainings.REPRESENTATION, steps=1000)
    grown = trainings.small(
        "algoformer:loops=8",
        trainings.REPRESENTATION,
        steps=1000,
        curriculum="grow:dims=3,loops=2,every=500",
    )
    halves = [
        trainings.small("algoformer:loops=8", trainings.REPRESENTATION, loops, window, steps=500)
        for loops, window in ((2, 2), (4, 4))
    ]
    spent = costs.training_flops(grown)
    assert spent == sum(map(costs.training_flops, halves)) < costs.training_flops(at_once)


def test_noisy_trainings_stand_beside_ridge_on_true_features():
    rows = [
        {"model": "algoformer-noise-0.1", "seed": 0, "learner": learner, "block": b, "last": value}
        for learner, values in (("model", (0.3, 0.5)), ("feature-ridge", (0.1, 0.3)))
        for b, value in enumerate(values)
    ]
    tables = {
        "blocks": {key: [row[key] for row in rows] for key in rows[0]},
        "costs": {"model": ["algoformer", "algoformer-noise-0.1"]},
    }
    (sentence,) = figure2.with_noise(tables)
    assert "With noise 0.1 of the labels" in sentence
    assert "has 0.4 ± 0.1 after all examples, 2 ±" in sentence


def test_a_curve_falls_if_it_does_so_by_more_than_chance():
    falling = Curve(np.array([[1.0, 0.5, 0.2], [1.1, 0.5, 0.3]]), np.full(3, 0.01))
    down = falling.fall(0, -1)
    assert (down.mean, down.samples) == (pytest.approx(0.8), 2)
    # Of two seeds' falls 0.8 and 0.8 the deviation is 0: what is left is that of prompts.
    assert down.standard_error == pytest.approx(0.01 * 2**0.5, rel=1e-4)
    assert falling.largest_rise < -4
    assert falling.backwards.largest_rise > 4
    flat = Curve(np.array([[1.0, 1.004, 0.998]]), np.full(3, 0.01))
    assert abs(flat.fall(0, -1).mean) < 4 * flat.fall(0, -1).standard_error
    assert flat.largest_rise < 4


def test_a_slow_rise_is_seen_where_no_single_step_shows_it():
    slow = Curve(np.linspace(1.0, 1.2, 41)[None], np.full(41, 0.01))
    step = slow.fall(0, 1)
    assert -step.mean < step.standard_error
    assert slow.largest_rise == pytest.approx(0.2 / (0.01 * 2**0.5), rel=1e-4)
    assert slow.backwards.largest_rise < 0


# What is measured of a model.


@pytest.fixture
def few_prompts(monkeypatch):
    monkeypatch.setattr(measuring, "PROMPTS", 32)
    monkeypatch.setattr(measuring, "CHUNK", 16)
    monkeypatch.setattr(analysis.loops, "POWER_STEPS", 10)


def tiny(model, task, loops=3, window=2, *, heads=2, seed=0, truncate=True, steps=2):
    kind = trainings._objective(model, loops, window, truncate=truncate)
    return Experiment(f"{model},width=8,heads={heads}", task, kind, "muon", steps=steps, seed=seed)


def trained(folder, model, task, **settings):
    return tiny(model, task, **settings).run(folder)


@pytest.mark.parametrize("panel", trainings.TASKS)
def test_errors_are_those_of_the_library_on_the_same_prompts(panel, tmp_path, few_prompts):
    run = trained(tmp_path, "algoformer:loops=3", trainings.TASKS[panel])
    tables = measuring.measured(run)
    curve = analysis.learning_curve(
        run.model, run.task, samples=32, generator=seeded(measuring.SEED), chunk=16
    )
    unit = tables["costs"]["E target^2"][0]
    steps = run.task.layers if panel == "figure2c" else 1
    means = np.array([e.mean for e in curve]).reshape(-1, steps).mean(1) / unit
    own = where(tables["curve"], learner="model")
    np.testing.assert_allclose(own["mean"], means, rtol=1e-5)
    zero = where(tables["blocks"], learner="zero")
    assert zero["averaged"].mean() == pytest.approx(1, abs=1e-6)
    blocks = where(tables["blocks"], learner="model")
    assert blocks["last"].mean() == pytest.approx(means[-1], rel=1e-5)
    loops = dict(zip(tables["loops"]["loops"], tables["loops"]["mean"], strict=True))
    assert loops[3] == pytest.approx(means[-1], rel=1e-4)
    assert max(loops) == 30
    assert 0 < tables["jacobian"]["median"][0] < 10
    assert len(json.dumps(tables)) < 20_000
    assert {"zero", "feature-ridge"} <= set(tables["curve"]["learner"])
    assert {"untrained", "model, 10 T loops"} <= set(tables["blocks"]["learner"])


def test_the_representation_has_its_spectrum_beside_it(tmp_path, few_prompts):
    values = {}
    for weights in ("orthogonal", "random"):
        task = trainings.TASKS["figure2a"] + f",weights={weights}"
        task += ",slope=0.1" if weights == "random" else ""
        run = trained(tmp_path / weights, "gpt2:layers=1", task)
        tables = measuring.measured(run)
        assert "loops" not in tables
        values[weights] = tables["spectrum"]["eigenvalue"]
    assert values["orthogonal"][0] < 2 * values["orthogonal"][-1]
    assert values["random"][0] > 4 * values["random"][1]


@pytest.mark.parametrize(
    ("model", "loops", "window", "truncate"),
    [
        ("gpt2:layers=2", 0, 0, True),
        ("looped-transformer:loops=4", 4, 3, True),
        ("algoformer:loops=4", 4, 2, True),
        ("algoformer:loops=4,layers=2,around=1", 4, 2, True),
        ("algoformer:loops=4,inject=false", 4, 2, False),
    ],
)
def test_the_operations_of_a_step_are_those_that_are_counted(model, loops, window, truncate):
    kind = trainings._objective(model, loops, window, truncate=truncate)
    task = trainings.REPRESENTATION
    experiment = Experiment(f"{model},width=64,heads=2", task, kind, steps=7)
    built, task, generator = experiment.build()
    objective = experiment.objective.build(OBJECTIVES, task)
    counter = FlopCounterMode(display=False)
    with counter, sdpa_kernel(SDPBackend.MATH):  # whose products are counted
        objective.loss(built, objective.sample(generator)).backward()
    # Read-in, read-out and the gradients that nothing needs, of the first layer's input, are not
    # counted alike; all else is products of matrices.
    assert costs.training_flops(experiment) / 7 == pytest.approx(
        counter.get_total_flops(), rel=0.04
    )


def test_noise_leaves_the_way_of_an_iteration_as_it_is_and_moves_its_end():
    rows = as_rows(iterations.contraction_table(4, 9, [0.3, 2.0]))
    assert len(rows) == 4
    for row in rows:
        assert row["slower"] <= row["change"] < 1e-10
        assert row["one step behind"] > 0.01
    (row,) = as_rows(iterations.limit_table(3, 12, 0.5, 20_000))
    assert row["exact"] == 0.25 * 3 / 8
    assert abs(row["mean"] - row["exact"]) < 4 * row["error"]


def test_algorithms_stand_beside_the_loops_of_a_model(tmp_path, few_prompts):
    run = trained(tmp_path, "algoformer:loops=3", "linear:d=3,n=12,noise_std=1.0,dtype=float32")
    tables = iterations.measured_with_iterates(run)
    loops, iterates = tables["loops"], tables["iterates"]
    for name in ("gd", "newton"):
        assert list(where(iterates, algorithm=name)["iteration"]) == list(loops["loops"])
    ends = {k: where(iterates, algorithm=k)["mean"][-1] for k in ("gd", "newton")}
    squares = where(tables["blocks"], learner="ols")["last"].mean()
    ridge = where(tables["blocks"], learner="ridge")["last"].mean()
    assert ends["newton"] == pytest.approx(squares, rel=1e-6)
    assert ridge < squares
    best = where(tables["blocks"], learner="best iterate of gd")["last"].mean()
    assert best <= min(ends["gd"], squares) + 1e-12


# From trainings to a figure.


def in_this_process(jobs):
    for job in jobs:
        job.train()
        yield job.name, ""


def test_a_figure_is_filled_from_trainings_as_they_finish(tmp_path, monkeypatch, few_prompts):
    monkeypatch.setenv(RECORDS, str(tmp_path / "records"))
    monkeypatch.setattr(trainings, "small", tiny)
    monkeypatch.setattr(trainings, "SEEDS", (0,))
    monkeypatch.setattr(trainings, "LOOPS", 3)
    study = STUDIES["figure2c"]
    folders = (tmp_path / "trainings", tmp_path / "records")
    first, *_ = study.jobs("quick", folders[0])
    first.train()
    # An engine that trains nothing: what is finished is recorded, and no more.
    outcomes = list(study.retrain("quick", *folders, engine=lambda jobs: ()))
    assert [o.name for o in outcomes] == [first.name] == ["algoformer-seed0"]
    assert "4 of 5 trainings" in FIGURES["figure2c"].measure(Scale.QUICK).verdict.missing
    assert len(list(study.retrain("quick", *folders, engine=in_this_process))) == 5
    measurement = FIGURES["figure2c"].measure(Scale.QUICK)
    # Two steps teach nothing.
    assert measurement.verdict.outcome in (Outcome.INCONCLUSIVE, Outcome.FAILS)
    assert drawn(FIGURES["figure2c"].draw, measurement.tables).svg
    weights = sorted(path.name for path in folders[1].rglob("*.safetensors"))
    assert len(weights) == 5
    assert set(study.results("quick")) == set(trainings.figure2("figure2c", "quick"))


# The paper's own settings.

SAME_AT_EVERY_SCALE = "figure2a-d20"
PRESETS = {
    f"{panel}/{name}": (study, experiment)
    for panel, study in STUDIES.items()
    if panel != SAME_AT_EVERY_SCALE
    for name, experiment in study.experiments("paper").items()
}


def test_the_papers_own_settings_are_as_printed():
    options = [experiment.model.options for _, experiment in PRESETS.values()]
    assert {o["width"] for o in options} == {256}
    assert {str(e.optimizer) for _, e in PRESETS.values()} == {"adam:lr=0.0001"}
    assert {e.steps for _, e in PRESETS.values()} == {500_000}
    tasks = [e.task.options for _, e in PRESETS.values()]
    assert {(o["d"], o["n"]) for o in tasks} == {(20, 40)}
    standard = PRESETS["figure2a/standard"][1].model.options
    assert standard["layers"] == 12
    algoformer = PRESETS["figure2b/algoformer"][1]
    assert (algoformer.objective.options["loops"], algoformer.objective.options["window"]) == (
        20,
        15,
    )


@pytest.mark.parametrize("panel", [p for p in STUDIES if p != SAME_AT_EVERY_SCALE])
def test_what_the_papers_own_settings_would_cost_is_said_beforehand(panel):
    study: Study = STUDIES[panel]
    assert 100 < study.cost("paper") < 1e6
    assert study.cost("quick") < 10


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_every_paper_preset_starts_and_takes_three_steps(name, tmp_path):
    """With two prompts in a batch for 64: the residuals of 15 loops of four layers would not fit
    into the memory of a small machine."""
    _, experiment = PRESETS[name]
    settings = experiment.as_json()
    settings["steps"] = 3
    settings["objective"]["options"]["batch"] = 2
    run = Experiment.from_json(settings).run(tmp_path)
    assert run.history["step"][-1] == 3
    assert all(map(math.isfinite, run.history["loss"]))
    assert Run.open(tmp_path).step == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", READS)
def test_every_figure_can_be_filled_from_real_trainings(name, tmp_path, monkeypatch, few_prompts):
    monkeypatch.setenv(RECORDS, str(tmp_path / "records"))
    monkeypatch.setattr(trainings, "small", lambda *a, **k: tiny_of_width_16(*a, **k))
    for panel in READS[name]:
        study = STUDIES[panel]
        list(study.retrain("quick", tmp_path, tmp_path / "records", engine=in_this_process))
    measurement = FIGURES[name].measure(Scale.QUICK)
    assert measurement.verdict.printed
    assert drawn(FIGURES[name].draw, measurement.tables).svg


def tiny_of_width_16(model, task, loops=8, window=6, *, heads=4, seed=0, truncate=True, **large):
    """Sixteen heads need a width of 16; what else a training has is too large."""
    kind = trainings._objective(model, loops, window, truncate=truncate)
    return Experiment(f"{model},width=16,heads={heads}", task, kind, "muon", steps=2, seed=seed)


def test_the_weights_that_ship_are_those_of_one_seed_and_of_figure_5():
    shipped = {
        f"{panel}/{name}"
        for panel, study in STUDIES.items()
        for scale in ("quick", "paper")
        for name in study.experiments(scale)
        if study.with_weights(name)
    }
    seeds = {f"{panel}/{a}-seed0" for panel in trainings.TASKS for a in trainings.ARCHITECTURES}
    own = {f"figure5/{name}" for name in trainings.figure5("quick") if name.endswith("seed0")}
    own |= {f"figure5/{name}" for name in trainings.figure5("paper")}
    large = {f"{SAME_AT_EVERY_SCALE}/{name}" for name in trainings.figure2a_d20("quick")}
    assert shipped == seeds | own | large


def test_loops_of_a_model_do_not_depend_on_how_prompts_are_chunked(tmp_path, few_prompts):
    run = trained(tmp_path, "algoformer:loops=3", trainings.REPRESENTATION)
    sample = measuring.Sample.of(run.task)
    whole = measuring.Sample([_joined(sample.batches)], 1)
    model = measuring.inner_model(run)
    one, other = (s.errors_after_loops(model, [1, 5]) for s in (sample, whole))
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def _joined(prompts):
    parts = {
        k: torch.cat([getattr(p, k) for p in prompts]) for k in ("x", "y", "x_query", "y_query")
    }
    return type(prompts[0])(**parts)
