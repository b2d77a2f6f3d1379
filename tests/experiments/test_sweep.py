"""Sweeps: finished trainings are never repeated, and one that fails stands beside the others."""

import math

import pytest
import torch

from innerloop.experiments import Experiment, Progress, jobs_of, processes, sweep


def small(seed=0, lr=0.01, steps=6):
    return Experiment(
        "gd:layers=1", "linear:d=2,n=4", "prompts:batch=4", f"adam:lr={lr}", steps=steps, seed=seed
    )


def in_this_process(begun):
    """An engine of the user's own: it is given jobs, and need not know what they are."""

    def engine(jobs):
        for job in jobs:
            begun.append(job.name)
            job.train()
            yield job.name, ""

    return engine


def test_a_sweep_leaves_what_each_experiment_alone_would(tmp_path):
    experiments = {f"seed {s}": small(s) for s in range(3)}
    runs = {o.name: o.run for o in sweep(experiments, tmp_path / "all", engine=processes(2))}
    assert set(runs) == set(experiments)
    for name, experiment in experiments.items():
        alone = experiment.run(tmp_path / "alone" / name)
        for one, other in zip(runs[name].model.parameters(), alone.model.parameters(), strict=True):
            assert torch.equal(one, other)


def test_what_is_finished_is_not_trained_again(tmp_path):
    experiments = {"a": small(0), "b": small(1)}
    begun = []
    engine = in_this_process(begun)
    assert [o.name for o in sweep(experiments, tmp_path, engine=engine)] == ["a", "b"]
    more = {**experiments, "c": small(2), "b": small(1, steps=9)}
    assert sorted(o.name for o in sweep(more, tmp_path, engine=engine)) == ["a", "b", "c"]
    assert begun == ["a", "b", "b", "c"]  # "b" asks for more steps now


def test_a_sweep_that_was_interrupted_goes_on(tmp_path):
    experiments = {"a": small(0), "b": small(1)}
    interrupted = sweep(experiments, tmp_path, engine=in_this_process([]))
    next(interrupted)
    interrupted.close()
    begun = []
    assert len(list(sweep(experiments, tmp_path, engine=in_this_process(begun)))) == 2
    assert begun == ["b"]


def test_a_training_that_fails_is_reported_beside_the_others(tmp_path):
    experiments = {"good": small(0), "bad": small(0, lr=1e300)}
    outcomes = {o.name: o for o in sweep(experiments, tmp_path, engine=processes(1))}
    assert outcomes["good"].error == ""
    assert outcomes["bad"].run is None
    assert "not finite" in outcomes["bad"].error or "became" in outcomes["bad"].error


def test_a_device_goes_with_the_engine(tmp_path):
    (outcome,) = sweep({"a": small(0)}, tmp_path, engine=processes(1, device="meta:7"))
    assert "meta" in outcome.error


def test_progress_can_be_read_by_anyone_while_a_training_runs(tmp_path):
    (job,) = jobs_of({"a": small(steps=20)}, tmp_path)
    assert (job.progress().step, job.finished) == (0, False)
    job.train()
    progress = job.progress()
    assert progress.step == progress.steps == 20
    assert progress.seconds > 0
    assert job.finished
    (job.folder / "progress.json").write_text("[]")
    assert job.progress().step == 0


def test_the_time_left_follows_from_the_speed():
    assert Progress(25, 100, 0.1, 5.0, 5.0).seconds_left == 15
    assert math.isnan(Progress(0, 100, 0.1, 0.0, 0.0).seconds_left)


def test_a_folder_is_called_by_all_that_an_experiment_is(tmp_path):
    jobs = jobs_of({"a/b": small(0), "a b": small(1)}, tmp_path)
    assert [job.folder.name.split("-")[:2] for job in jobs] == [["a", "b"]] * 2
    assert jobs[0].folder != jobs[1].folder
    assert small(0).key == small(0).key != small(1).key


def test_a_training_is_known_by_what_was_chosen_and_not_by_defaults():
    """An option that is added to the catalogue later leaves every training where it is."""
    short = Experiment("gd", "linear:d=2", steps=5)
    assert short.chosen["model"] == {"name": "gd", "options": {}}
    assert short.chosen["task"] == {"name": "linear", "options": {"d": 2}}
    assert Experiment.from_json(short.chosen) == short
    assert Experiment("gd:layers=3", "linear:d=2,n=20", steps=5).key == short.key


@pytest.mark.parametrize("settings", [{"workers": 0}, {"threads": 0}])
def test_an_engine_needs_workers(settings):
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        processes(**settings)
