"""What is inside the records that ship: asked once, kept, shown in the report, or not there."""

import json

import pytest

from innerloop.experiments import Experiment, Record
from innerloop.reproduction import inside_all
from innerloop.runs import RunStore


@pytest.fixture
def records(tmp_path):
    """One record with weights, and one with its tables alone."""
    experiment = Experiment(
        "gd:layers=1", "linear:d=2,n=6,noise_std=0.3", "exact", steps=2, schedule="constant"
    )
    run = experiment.run(tmp_path / "run")
    root = tmp_path / "records"
    Record.of("toy/with", run, {}, 60.0).save(root, weights_of=run.model)
    Record.of("toy/without", run, {}, 60.0).save(root)
    return root


def test_a_record_with_weights_is_asked_once_and_then_found(records, tmp_path):
    store = RunStore(tmp_path / "runs")
    assert inside_all(records, store) == []
    asked = []
    (found,) = inside_all(records, store, workers=1, watch=asked.append)
    assert found.name == "toy/with"
    assert found.model.startswith("gd:layers=1")
    assert "free-step: identical to rounding" in found.answer  # one layer is one step
    assert "on the task and on every shift" in found.on_shifts
    assert found.nearest == "free-step"
    assert found.shares["error"] == pytest.approx([1, 1, 1])
    assert asked[-1] == "what is inside toy/with, 1 of 1"
    assert inside_all(records, store) == [found]


def test_where_no_candidate_is_near_shifts_have_nothing_to_tell_apart(tmp_path):
    untrained = Experiment(
        "gpt2:layers=1,width=16,heads=2", "linear:d=2,n=6,dtype=float32", "positions", steps=1
    )
    run = untrained.run(tmp_path / "run")
    Record.of("toy/untrained", run, {}, 60.0).save(tmp_path / "records", weights_of=run.model)
    (found,) = inside_all(tmp_path / "records", RunStore(tmp_path / "runs"), workers=1)
    assert found.answer.startswith("none of these")
    assert found.on_shifts == ""


def test_an_answer_that_was_changed_on_disk_is_none(records, tmp_path):
    store = RunStore(tmp_path / "runs")
    inside_all(records, store, workers=1)
    (file,) = store.root.rglob("inside.json")
    content = json.loads(file.read_text())
    content["result"]["answer"] = "ols"
    file.write_text(json.dumps(content))
    assert inside_all(records, store) == []


def test_without_records_there_is_nothing_inside(tmp_path):
    assert inside_all(tmp_path, RunStore(tmp_path / "runs"), workers=1) == []
