"""Experiments and the runs that they leave on disk."""

import csv
import json
from dataclasses import replace

import pytest
import torch

from innerloop.experiments import TABLES, Experiment, Run, Spec
from innerloop.locks import FolderLocked, folder_lock
from innerloop.training import CheckpointError, checkpoints
from tests.samples import seeded

GD = Experiment("gd:layers=2", "linear:d=3,n=6", "exact", steps=20)
SAMPLED = Experiment("gd:layers=1", "linear:d=2,n=4", "prompts:batch=20", steps=20)
ENCODER = Experiment(
    "encoder:layers=1,heads=2,width=8,hidden=8",
    "dictionary:tokens=6,shown=3,d=3,features=2",
    "prompts:batch=20",
    "adamw",
    "warm-up:over=5",
    steps=20,
)
EVERY = {"gd": GD, "sampled": SAMPLED, "encoder": ENCODER}
every_experiment = pytest.mark.parametrize("experiment", EVERY.values(), ids=EVERY)


class Stop(Exception):
    """Ends a training from its `watch`, as a machine that goes down would."""


def stop_at(step):
    def watch(now, loss):
        if now == step:
            raise Stop

    return watch


def started(experiment, folder, step):
    with pytest.raises(Stop):
        experiment.run(folder, watch=stop_at(step))


def predictions(run):
    with torch.no_grad():
        return run.model(run.task.sample(5, generator=seeded(3)))


@every_experiment
def test_a_run_that_is_opened_again_predicts_the_same(experiment, tmp_path):
    made = experiment.run(tmp_path)
    for path in (tmp_path, str(tmp_path), tmp_path / "checkpoint.safetensors"):
        found = Run.open(path)
        assert found.experiment == experiment
        assert found.step == experiment.steps
        assert found.folder == tmp_path
        assert found.history.columns == made.history.columns
        assert torch.equal(predictions(found), predictions(made))
        assert not found.model.training


@every_experiment
def test_training_changed_the_weights_and_the_seed_is_what_they_began_at(experiment, tmp_path):
    start, _, _ = experiment.build()
    again, _, _ = experiment.build()
    made = experiment.run(tmp_path)
    for before, same, after in zip(*(m.parameters() for m in (start, again, made.model)), strict=True):  # fmt: skip  # noqa: E501
        assert torch.equal(before, same)
        assert not torch.equal(before, after)
    other, _, _ = replace(experiment, seed=1).build()
    assert any(
        not torch.equal(a, b) for a, b in zip(start.parameters(), other.parameters(), strict=True)
    )


@every_experiment
def test_a_run_that_was_stopped_goes_on_to_the_same_bytes(experiment, tmp_path):
    experiment.run(tmp_path / "whole")
    started(experiment, tmp_path / "stopped", 13)
    assert 0 < Run.open(tmp_path / "stopped").step < 13
    experiment.run(tmp_path / "stopped")
    for name in ("checkpoint.safetensors", "experiment.json", "history.csv"):
        one, other = (tmp_path / folder / name for folder in ("whole", "stopped"))
        assert one.read_bytes() == other.read_bytes(), name


def test_a_finished_run_is_found_and_not_trained_again(tmp_path):
    made = GD.run(tmp_path)
    steps = []
    found = GD.run(tmp_path, watch=lambda step, loss: steps.append(step))
    assert steps == []
    assert torch.equal(predictions(found), predictions(made))


def test_equal_experiments_share_a_run_however_they_are_written(tmp_path):
    words = Experiment("gd:std=0.05,layers=2", "linear:n=6,d=3", "exact", steps=20, clip=10)
    specs = Experiment.from_json(json.loads(json.dumps(GD.as_json())))
    assert words == specs == GD
    made = GD.run(tmp_path)
    for same in (words, specs):
        assert torch.equal(predictions(same.run(tmp_path)), predictions(made))


OTHERS = {
    "model": "gd:layers=1",
    "task": "linear:d=3,n=7",
    "objective": "wishart",
    "optimizer": "adam:lr=0.02",
    "schedule": "constant",
    "steps": 21,
    "clip": None,
    "seed": 1,
    "curriculum": "grow:dims=1",
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_experiment_is_refused_in_the_folder_of_a_run(name, tmp_path):
    GD.run(tmp_path)
    before = (tmp_path / "checkpoint.safetensors").read_bytes()
    other = replace(GD, **{name: OTHERS[name]})
    assert other != GD
    sentence = rf"belongs to another run \(it differs in {name}\); choose another folder"
    with pytest.raises(CheckpointError, match=sentence):
        other.run(tmp_path)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before


def test_every_field_of_an_experiment_makes_it_another():
    assert OTHERS.keys() == GD.as_json().keys()


@every_experiment
def test_the_folder_says_what_was_trained_and_how_it_went(experiment, tmp_path):
    made = experiment.run(tmp_path, metrics={"first": lambda model: next(model.parameters()).sum()})
    record = json.loads((tmp_path / "experiment.json").read_text())
    assert Experiment.from_json(record) == experiment
    assert record["task"]["options"]["dtype"] == "float64"  # defaults are written out
    with (tmp_path / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(experiment.steps + 1))
    # In full precision: the text is the number.
    assert [float(row["loss"]) for row in rows] == made.history["loss"]
    assert [float(row["first"]) for row in rows] == made.history["first"]
    assert made.history["loss"][-1] < made.history["loss"][0]


def test_a_long_run_has_about_a_hundred_rows_of_history(tmp_path):
    made = replace(GD, steps=450).run(tmp_path)
    assert 90 <= len(made.history["step"]) <= 120
    assert made.history["step"][-1] == 450


def test_going_on_under_other_versions_is_said_in_a_sentence_and_done(tmp_path, monkeypatch):
    whole = SAMPLED.run(tmp_path / "whole")
    started(SAMPLED, tmp_path / "stopped", 13)
    monkeypatch.setattr(checkpoints, "versions_now", lambda: {"innerloop": "9.9", "torch": "3.0"})
    said = []
    made = SAMPLED.run(tmp_path / "stopped", notify=said.append)
    assert len(said) == 1
    assert "was written with innerloop" in said[0]
    assert "this is innerloop 9.9, torch 3.0. Going on" in said[0]
    assert torch.equal(predictions(made), predictions(whole))


def test_going_on_under_the_same_versions_says_nothing(tmp_path):
    said = []
    started(SAMPLED, tmp_path, 13)
    SAMPLED.run(tmp_path, notify=said.append)
    assert said == []


@every_experiment
def test_single_precision_is_one_option_of_the_task(experiment, tmp_path):
    single = replace(
        experiment, task=experiment.task.with_options({"dtype": "float32"}, TABLES["task"])
    )
    made = single.run(tmp_path / "single")
    assert {p.dtype for p in made.model.parameters()} == {torch.float32}
    assert predictions(made).dtype == torch.float32
    assert torch.equal(predictions(Run.open(tmp_path / "single")), predictions(made))
    double = experiment.run(tmp_path / "double")
    # The same start and the same data in both; twenty steps do not amplify rounding.
    assert made.history["loss"][0] == pytest.approx(double.history["loss"][0], rel=0.5)
    assert made.history["loss"][-1] < made.history["loss"][0]


def test_exact_losses_in_single_precision_are_those_in_double(tmp_path):
    single = replace(GD, task="linear:d=3,n=6,dtype=float32").run(tmp_path / "single")
    double = GD.run(tmp_path / "double")
    assert single.history["loss"] == pytest.approx(double.history["loss"], rel=1e-5)


def test_a_device_can_be_named_and_is_the_cpu_otherwise(tmp_path):
    plain = SAMPLED.run(tmp_path / "plain")
    named = SAMPLED.run(tmp_path / "named", device="cpu")
    given = SAMPLED.run(tmp_path / "given", device=torch.device("cpu"))
    assert torch.equal(predictions(plain), predictions(named))
    assert torch.equal(predictions(plain), predictions(given))
    assert Run.open(tmp_path / "plain", device="cpu").task.covariance.device.type == "cpu"


@pytest.mark.parametrize("device", ["nowhere", "meta"])
def test_a_device_that_does_not_compute_is_refused_with_a_sentence(device, tmp_path):
    GD.run(tmp_path / "mine")
    sentence = f"device must be one that this machine computes on, such as cpu, got '{device}'"
    with pytest.raises(ValueError, match=sentence):
        GD.run(tmp_path / "other", device=device)
    with pytest.raises(ValueError, match=sentence):
        Run.open(tmp_path / "mine", device=device)
    assert not (tmp_path / "other").exists()


def test_a_folder_that_is_in_use_is_refused(tmp_path):
    with (
        folder_lock(tmp_path / "mine"),
        pytest.raises(FolderLocked, match="is in use by process"),
    ):
        GD.run(tmp_path / "mine")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
        ({"steps": True}, "steps must be a whole number of at least 1, got True"),
        ({"clip": 0.0}, "clip must be positive and finite, or None, got 0.0"),
        ({"clip": float("nan")}, "clip must be positive and finite, or None, got nan"),
        ({"clip": float("inf")}, "clip must be positive and finite, or None, got inf"),
        ({"seed": -1}, "seed must be .*, got -1"),
        ({"seed": 2**63}, "seed must be .*, got 9223372036854775808"),
        ({"model": "gdd"}, "no model is called 'gdd'; did you mean gd"),
        ({"task": "linear:e=1"}, "task linear has no option 'e'"),
        ({"model": Spec.parse("algorithm", "gd", TABLES["algorithm"])}, "a model is asked for"),
    ],
)
def test_an_experiment_that_cannot_be_is_refused(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        replace(GD, **change)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda record: [], "an experiment has the entries"),
        (lambda record: {}, "an experiment has the entries"),
        (lambda record: {**record, "extra": 1}, "an experiment has the entries .* got .*'extra'"),
        (lambda record: {**record, "model": "gd"}, "a model must be an object with a name"),
        (lambda record: {**record, "clip": "big"}, "clip must be positive and finite, or None"),
        (lambda record: {**record, "steps": "20"}, "steps must be a whole number"),
        (lambda record: {**record, "seed": 1.5}, "seed must be"),
    ],
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_json_that_is_no_experiment_is_refused(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        Experiment.from_json(change(GD.as_json()))


def test_a_checkpoint_that_names_no_experiment_is_refused(tmp_path):
    model, _, generator = GD.build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    made = checkpoints.Checkpoint(tmp_path / "checkpoint.safetensors", config={"what": "else"})
    made.save(1, model, optimizer, generator, checkpoints.History())
    with pytest.raises(CheckpointError, match="does not say which experiment it belongs to"):
        Run.open(tmp_path)


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="there is no checkpoint at"):
        Run.open(tmp_path)


def test_an_experiment_that_diverges_says_so_and_keeps_its_last_good_state(tmp_path):
    wild = replace(SAMPLED, optimizer="sgd:lr=1e30", clip=None, schedule="constant")
    with pytest.raises(FloatingPointError, match="a smaller learning rate or clipping may help"):
        wild.run(tmp_path)


@pytest.mark.parametrize(
    ("inject", "truncate", "window", "told"),
    [
        (False, True, 2, True),
        (False, False, 2, False),
        (False, True, 4, False),
        (True, True, 2, False),
    ],
)
def test_a_gradient_that_does_not_reach_the_first_layers_is_told(
    inject, truncate, window, told, tmp_path
):
    said = []
    made = Experiment(
        f"algoformer:loops=4,width=8,heads=2,inject={str(inject).lower()}",
        "linear:d=2,n=3,dtype=float32",
        f"window:batch=2,loops=4,window={window},truncate={str(truncate).lower()}",
        "adam",
        steps=1,
    ).run(tmp_path, notify=said.append)
    assert any("truncate=false lets it through" in sentence for sentence in said) == told
    start = made.experiment.build()[0].state_dict()
    changed = {
        name
        for name, weight in made.model.state_dict().items()
        if "before" in name and not torch.equal(weight, start[name])
    }
    assert bool(changed) != told
