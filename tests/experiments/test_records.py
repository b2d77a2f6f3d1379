"""Records and studies: long trainings as they ship, found at once and made anew on demand."""

import json
from dataclasses import replace

import pytest
import torch

from innerloop.experiments import Experiment, MissingRecords, Record, Study
from innerloop.experiments.records import SHIPPED, names
from innerloop.experiments.study import RECORDS


def small(seed=0, steps=6):
    return Experiment(
        "gpt2:layers=1,width=8,heads=2",
        "linear:d=2,n=4,dtype=float32",
        "positions:batch=4",
        steps=steps,
        seed=seed,
    )


def weights_norm(run):
    return {"norm": {"norm": [sum(p.norm().item() for p in run.model.parameters())]}}


def in_this_process(jobs):
    for job in jobs:
        job.train()
        yield job.name, ""


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setenv(RECORDS, str(tmp_path / "records"))
    return Study(
        "toy/figure",
        lambda scale: (
            {"a": small(0), "b": small(1)} if scale == "quick" else {"c": small(2, 10**6)}
        ),
        weights_norm,
        seconds_per_step=lambda experiment: 0.36,
        with_weights=lambda name: name == "a",
    )


def retrained(study, tmp_path):
    folders = (tmp_path / "trainings", tmp_path / "records")
    return list(study.retrain("quick", *folders, engine=in_this_process))


def test_a_study_finds_its_results_after_it_was_trained(study, tmp_path):
    with pytest.raises(MissingRecords, match="2 of 2 trainings at scale quick have no record"):
        study.results("quick")
    before = study.digest()
    outcomes = retrained(study, tmp_path)
    assert [o.name for o in outcomes] == ["a", "b"]
    results = study.results("quick")
    assert list(results) == ["a", "b"]
    for outcome in outcomes:
        exact = weights_norm(outcome.run)["norm"]["norm"][0]
        record = results[outcome.name]
        assert record.tables["norm"]["norm"][0] == pytest.approx(exact, rel=1e-5)
        assert record.history["step"][-1] == 6
        assert record.seconds > 0
    assert study.digest() != before
    said = study.recorded("quick")
    assert said.startswith(f"2 trainings recorded on {results['a'].recorded}, ")
    assert said.endswith(results["a"].machine)


def test_a_record_of_another_experiment_is_no_result(study, tmp_path):
    retrained(study, tmp_path)
    file = tmp_path / "records" / "toy" / "figure" / "b.json"
    content = json.loads(file.read_text())
    content["experiment"]["seed"] = 7
    file.write_text(json.dumps(content))
    with pytest.raises(MissingRecords, match="1 of 2 trainings"):
        study.results("quick")


def test_a_study_that_is_read_beside_another_counts_in_its_digest(study, tmp_path):
    alone = replace(study, name="toy/alone")
    reading = replace(alone, beside=(study,))
    before = alone.digest(), reading.digest()
    retrained(study, tmp_path)
    assert alone.digest() == before[0]
    assert reading.digest() != before[1]


def test_an_engine_that_trains_nothing_leaves_records_of_what_is_finished(study, tmp_path):
    folders = (tmp_path / "trainings", tmp_path / "records")
    assert list(study.retrain("quick", *folders, engine=lambda jobs: ())) == []
    study.jobs("quick", folders[0])[1].train()
    (outcome,) = study.retrain("quick", *folders, engine=lambda jobs: ())
    assert outcome.name == "b"
    assert names(folders[1]) == ["toy/figure/b"]


def test_an_experiment_of_two_studies_is_trained_once(study, tmp_path):
    folders = (tmp_path / "trainings", tmp_path / "records")
    study.jobs("quick", folders[0])[1].train()
    other = replace(study, name="toy/other")
    (outcome,) = other.retrain("quick", *folders, engine=lambda jobs: ())
    assert outcome.name == "b"
    assert outcome.run.folder.parent == folders[0] / "toy" / "other"
    assert names(folders[1]) == ["toy/other/b"]


def test_what_a_study_would_take_is_said_beforehand(study):
    assert study.cost("paper") == pytest.approx(100)
    with pytest.raises(MissingRecords, match="in about 100 core-hours"):
        study.results("paper")


def test_weights_ship_in_half_precision_where_they_are_wanted(study, tmp_path):
    a, b = retrained(study, tmp_path)
    record = Record.open("toy/figure/a", tmp_path / "records")
    prompt = record.task().sample(5, generator=torch.Generator().manual_seed(0))
    assert record.has_weights
    torch.testing.assert_close(record.model()(prompt), a.run.model(prompt), rtol=0.02, atol=0.02)
    assert not torch.equal(record.model()(prompt), b.run.model(prompt))
    size = (tmp_path / "records" / "toy" / "figure" / "a.safetensors").stat().st_size
    assert size < 3 * sum(p.numel() for p in a.run.model.parameters()) + 4000
    with pytest.raises(ValueError, match="ships its tables and no weights"):
        Record.open("toy/figure/b", tmp_path / "records").model()


def test_a_record_that_is_not_there_is_refused_with_the_nearest(study, tmp_path):
    retrained(study, tmp_path)
    with pytest.raises(ValueError, match="no record 'toy/figure/aa'; the nearest are toy/figure/a"):
        Record.open("toy/figure/aa", tmp_path / "records")


@pytest.mark.parametrize("name", names())
def test_every_record_that_ships_is_whole(name):
    record = Record.open(name)
    assert record.experiment.steps == record.history["step"][-1]
    assert record.tables
    assert len((SHIPPED / f"{name}.json").read_bytes()) < 100_000
    if record.has_weights:
        record.model()


def test_names_with_numbers_are_ordered_by_size(tmp_path):
    for steps in (25, 1600, 200):
        (tmp_path / f"along-{steps}.json").touch()
    assert names(tmp_path) == ["along-25", "along-200", "along-1600"]
