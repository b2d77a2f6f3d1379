"""A disk without room: a sentence, what was there before, and no half-written file."""

import contextlib
import os
import resource
import subprocess
from pathlib import Path

import pytest

from innerloop import papers, reproduction
from innerloop.papers import Scale
from innerloop.runs import RunStore
from tests.hostile.helpers import TRAIN, ended, refusal, small_run

ID = "ahn2023/lemma2"


@pytest.fixture
def full(tmp_path):
    """A folder on a disk of its own that has no room left."""
    path = tmp_path / "full"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(path)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("a small disk cannot be mounted here")
    try:
        with contextlib.suppress(OSError), (path / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def small_files():
    """No file may grow beyond a kilobyte, as under a quota; for machines that mount nothing."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def left_in(path):
    return sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_file())


def measured(runs):
    """A result on disk, so that nothing has to be measured by another process."""
    reproduction.reproduce(papers.entries()[ID], Scale.SMOKE, RunStore(runs))
    return ["reproduce", ID, "--scale", "smoke", "--runs", str(runs)]


def test_a_training_says_that_its_checkpoint_cannot_be_written(folder, full, capsys):
    said = refusal(capsys, *TRAIN, "--run", full / "run")
    assert "No space left on device" in said
    assert [name for name in left_in(full) if "checkpoint" in name] == []


def test_a_report_that_has_no_room_is_said(folder, full, capsys):
    said = refusal(capsys, *measured(folder / "runs"), "--report", full / "report")
    assert "cannot write" in said
    assert "No space left on device" in said


def test_verdicts_as_json_that_have_no_room_are_said(folder, full, capsys):
    said = refusal(capsys, *measured(folder / "runs"), "--json", full / "out.json")
    assert "cannot write" in said
    assert left_in(full) == ["filler"]


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_picture_of_curves_that_has_no_room_is_said_and_not_left_in_part(
    folder, full, capsys, kind
):
    words = ["--samples", "50", "--curve", full / f"curve.{kind}"]
    assert "cannot write" in refusal(capsys, "evaluate", small_run(), *words)
    assert left_in(full) == ["filler"]


def test_a_result_that_has_no_room_is_an_error_of_its_entry(folder, full, capsys):
    code, said = ended(
        capsys, "reproduce", ID, "--scale", "smoke", "--runs", full, "--workers", "1"
    )
    assert code == 1
    assert f"error: {ID}: it could not be saved: cannot write" in said
    assert "1 error" in said
    assert "defect" not in said
    assert Path("report/index.html").is_file()


def test_under_a_quota_a_training_keeps_the_last_checkpoint_that_was_whole(
    folder, capsys, small_files
):
    said = refusal(capsys, *TRAIN, "--run", "run")
    assert "cannot write run/checkpoint.safetensors: File too large" in said
    assert left_in(Path("run")) == [".lock"]


def test_under_a_quota_a_picture_and_a_report_are_not_left_in_part(folder, capsys):
    run, words = small_run(), measured(folder / "runs")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        picture = refusal(capsys, "evaluate", run, "--samples", "50", "--curve", "curve.png")
        report = refusal(capsys, *words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "cannot write curve.png: File too large" in picture
    assert "cannot write report/index.html: File too large" in report
    assert not Path("curve.png").exists()
    assert not Path("report/index.html").exists()


def test_a_folder_that_may_not_be_written_is_refused_before_any_work(folder, capsys):
    if os.geteuid() == 0:
        place = Path("/proc/self")  # where not even root may
    else:
        place = folder / "locked"
        place.mkdir(mode=0o500)
    assert "cannot write to the folder" in refusal(capsys, *TRAIN, "--run", place / "run")
