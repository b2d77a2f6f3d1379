import os
import subprocess
import sys

import pytest

from innerloop import runs
from innerloop.runs import (
    OutputError,
    RunStore,
    code_version,
    read_json,
    writable_folder,
    write_atomic,
)


def test_the_code_version_is_the_same_in_another_process():
    command = "from innerloop.runs import code_version; print(code_version())"
    other = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == code_version()
    assert len(code_version()) == 12


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A small package in place of innerloop, whose files a test may change."""
    for name in ("models", "report", "cli", "benchmarks"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "code.py").write_text("x = 1")
    (tmp_path / "runs.py").write_text("y = 1")
    monkeypatch.setattr(runs, "__file__", str(tmp_path / "runs.py"))
    return tmp_path


@pytest.mark.parametrize("name", ["runs.py", "models/code.py"])
def test_the_code_version_changes_with_the_code_that_numbers_come_from(package, name):
    before = code_version.__wrapped__()
    assert code_version.__wrapped__() == before
    (package / name).write_text("x = 2")
    assert code_version.__wrapped__() != before


def test_the_code_version_changes_when_a_file_is_renamed_or_added(package):
    before = code_version.__wrapped__()
    (package / "models" / "code.py").rename(package / "models" / "other.py")
    renamed = code_version.__wrapped__()
    (package / "models" / "more.py").write_text("")
    assert len({before, renamed, code_version.__wrapped__()}) == 3


@pytest.mark.parametrize(
    "name", ["report/code.py", "cli/code.py", "benchmarks/code.py", "notes.txt"]
)
def test_the_code_version_ignores_what_only_shows_numbers(package, name):
    before = code_version.__wrapped__()
    (package / name).write_text("x = 2")
    assert code_version.__wrapped__() == before


def test_the_code_version_changes_with_torch(package, monkeypatch):
    before = code_version.__wrapped__()
    monkeypatch.setattr("torch.__version__", "0.0.1")
    assert code_version.__wrapped__() != before


def test_the_same_config_has_the_same_folder(tmp_path):
    store = RunStore(tmp_path)
    one, other = {"id": "a/b", "scale": "smoke", "n": 3}, {"n": 3, "scale": "smoke", "id": "a/b"}
    assert store.folder(one) == store.folder(other)
    assert store.folder(one).parent == tmp_path
    assert store.folder(one).name.startswith("a-b-")


def test_another_config_has_another_folder(tmp_path):
    store = RunStore(tmp_path)
    configs = [
        {"id": "a/b"},
        {"id": "a/b", "scale": "smoke"},
        {"id": "a/b", "scale": "quick"},
        {"id": "a/b", "scale": "smoke", "n": 3},
        {"id": "a/b", "scale": "smoke", "n": "3"},
        {"id": "a-b"},
        {"scale": "smoke"},
    ]
    assert len({store.folder(config) for config in configs}) == len(configs)


def test_other_code_has_the_same_folder(tmp_path, monkeypatch):
    store, config = RunStore(tmp_path), {"id": "train-gd"}
    before = store.folder(config)
    monkeypatch.setattr(runs, "code_version", lambda: "another")
    assert store.folder(config) == before


def test_asking_for_a_folder_makes_none(tmp_path):
    RunStore(tmp_path / "runs").folder({"id": "a"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["text, µ and Σ", b"\x00\xff bytes", "", b""])
def test_what_was_written_is_read(tmp_path, content):
    path = tmp_path / "new" / "folder" / "file"
    write_atomic(path, content)
    expected = content.encode() if isinstance(content, str) else content
    assert path.read_bytes() == expected
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_written_file_can_be_read_by_others(tmp_path):
    write_atomic(tmp_path / "file", "x")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("step", ["os.fsync", "os.chmod", "os.replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, step, error):
    path = tmp_path / "file"
    write_atomic(path, "old")

    def fail(*_):
        raise error

    monkeypatch.setattr(step, fail)
    with pytest.raises(type(error)) as raised:
        write_atomic(path, "new")
    if isinstance(error, OSError):
        assert isinstance(raised.value, OutputError)
        assert str(raised.value) == f"cannot write {path}: disk full"
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_the_old_file_is_replaced_only_when_the_new_one_is_on_disk(tmp_path, monkeypatch):
    events = []
    real_sync, real_replace = os.fsync, os.replace
    monkeypatch.setattr("os.fsync", lambda f: (events.append("sync"), real_sync(f))[1])
    monkeypatch.setattr(
        "os.replace", lambda a, b: (events.append("replace"), real_replace(a, b))[1]
    )
    write_atomic(tmp_path / "file", "x")
    assert events[:2] == ["sync", "replace"]


def test_a_folder_is_made_and_left_empty(tmp_path):
    path = tmp_path / "a" / "b"
    assert writable_folder(path) == path
    assert path.is_dir()
    assert list(path.iterdir()) == []
    assert writable_folder(path) == path


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OutputError, match=f"cannot write to the folder {path}: .+"):
            writable_folder(path)
    with pytest.raises(OutputError, match="cannot write to the folder"):
        write_atomic(tmp_path / "file" / "below" / "result", "x")
    assert (tmp_path / "file").read_text() == "x"


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere; run as a user")
def test_a_read_only_folder_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="cannot write to the folder"):
        writable_folder(tmp_path)


def test_json_is_read(tmp_path):
    (tmp_path / "file").write_text('{"a": [1, 2.5, null]}')
    assert read_json(tmp_path / "file") == {"a": [1, 2.5, None]}


def test_json_that_is_not_there_is_nothing(tmp_path):
    assert read_json(tmp_path / "file") is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"a": [1, 2',
        b"\xff\xfe\x00\x01",
        b"not json",
        b"[" * 100_000 + b"]" * 100_000,
        b"9" * 5000,
    ],
    ids=["empty", "cut", "bytes", "text", "nested", "digits"],
)
def test_json_that_was_not_written_whole_is_nothing(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    assert read_json(tmp_path / "file") is None


def test_json_is_read_from_regular_files_alone(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")  # would be waited for
    assert read_json(tmp_path / "folder") is None
    assert read_json(tmp_path / "pipe") is None
    assert read_json(tmp_path / "folder" / "below" / "nothing") is None
