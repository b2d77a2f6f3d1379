"""Real processes, really killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from innerloop import workers
from innerloop.interrupts import interrupt_between_steps
from innerloop.workers import Lost, call_for_each

PATIENCE = 120.0
"""Seconds after which what should happen at once has not; a busy machine takes a few."""


def with_process(name):
    return name, os.getpid(), os.environ["OMP_NUM_THREADS"]


def act(folder: Path, name: str) -> str:
    """Does what the name says, after leaving a line in the file of that name."""
    with (folder / name).open("a") as file:
        file.write(f"{os.getpid()}\n")
    times = len((folder / name).read_text().splitlines())
    if name == "killed" or (name == "killed once" and times == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "sleeps":
        time.sleep(PATIENCE)
    if name == "saves":
        with interrupt_between_steps() as interrupted:
            (folder / "ready").touch()
            while not interrupted():
                time.sleep(3)  # a long step
            (folder / "saved").touch()
    return f"{name} done"


def calls(folder: Path, name: str) -> list[int]:
    """The processes that were asked for this name, in order."""
    path = folder / name
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_until(condition) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def is_running(process: int) -> bool:
    """Whether it is there, and not a dead one that nobody has asked after."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_processes_stay_and_take_groups_one_after_the_other_on_one_thread():
    found = dict(call_for_each(with_process, [["a", "b"], ["c"], ["d"]], workers=1))
    assert [found[name][0] for name in "abcd"] == list("abcd")
    assert len({process for _, process, _ in found.values()} - {os.getpid()}) == 1
    assert {threads for _, _, threads in found.values()} == {"1"}


def test_a_killed_process_costs_only_what_it_was_doing_and_that_is_tried_once_more(tmp_path):
    groups = [["killed once", "in the same group"], ["killed"], ["other"]]
    found = dict(call_for_each(partial(act, tmp_path), groups, workers=1))
    assert found == {
        "killed once": "killed once done",
        "in the same group": "in the same group done",
        "killed": Lost("was killed (signal 9)"),
        "other": "other done",
    }
    for name in ("killed once", "killed"):
        first, second = calls(tmp_path, name)
        assert first != second
    assert len(calls(tmp_path, "in the same group")) == 1


def test_closing_the_iterator_ends_the_processes(tmp_path):
    running = call_for_each(partial(act, tmp_path), [["sleeps"], ["quick"]], workers=2)
    with contextlib.closing(running):
        assert next(running) == ("quick", "quick done")
        wait_until(lambda: calls(tmp_path, "sleeps"))
    assert not is_running(calls(tmp_path, "sleeps")[0])


def test_a_process_that_is_told_to_end_may_finish_its_step_and_save(tmp_path):
    running = call_for_each(partial(act, tmp_path), [["saves"], ["quick"]], workers=2)
    with contextlib.closing(running):
        next(running)
        wait_until((tmp_path / "ready").exists)
    assert (tmp_path / "saved").exists()


class Unreadable:
    """Can be pickled, but not read again: a process that gets it ends before it begins."""

    def __call__(self, name):
        return name

    def __reduce__(self):
        return os._exit, (7,)


def test_processes_that_cannot_start_are_an_error_and_not_a_loop():
    with pytest.raises(
        ChildProcessError,
        match="3 processes ended while they started; the last ended with exit code 7",
    ):
        list(call_for_each(Unreadable(), [["a"], ["b"]], workers=2))


def test_ctrl_c_and_threads_of_this_process_are_as_before():
    before = signal.getsignal(signal.SIGINT), os.environ.get("OMP_NUM_THREADS")
    with workers._inherited(threads=2):
        assert os.environ["OMP_NUM_THREADS"] == "2"
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert (signal.getsignal(signal.SIGINT), os.environ.get("OMP_NUM_THREADS")) == before


def test_processes_end_when_the_one_that_started_them_is_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        "import sys\n"
        "from functools import partial\n"
        "from pathlib import Path\n"
        "from innerloop.workers import call_for_each\n"
        "from tests.test_workers import act\n"
        "if __name__ == '__main__':\n"
        "    list(call_for_each(partial(act, Path(sys.argv[1])), [['sleeps']], workers=1))\n"
    )
    path = os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, sys.path)])
    parent = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)], env={**os.environ, "PYTHONPATH": path}
    )
    try:
        wait_until(lambda: calls(tmp_path, "sleeps"))
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: not is_running(calls(tmp_path, "sleeps")[0]))
