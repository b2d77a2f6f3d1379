import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context

import pytest

from innerloop.locks import FolderLocked, folder_lock

HOLD = """
import sys, time
from innerloop.locks import folder_lock
with folder_lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_holder_is_refused_and_told_who_the_first_is(holder, tmp_path):
    sentence = rf"the folder {tmp_path} is in use by process {holder.pid} on \S+ since 2\d\d\d-"
    with pytest.raises(FolderLocked, match=sentence), folder_lock(tmp_path):
        pytest.fail("two processes held one folder")


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_the_lock_of_a_process_that_died_is_no_obstacle(holder, tmp_path, end):
    holder.send_signal(end)
    holder.wait()
    assert "process" in (tmp_path / ".lock").read_text()
    with folder_lock(tmp_path):
        assert str(os.getpid()) in (tmp_path / ".lock").read_text()


def test_a_file_left_by_somebody_else_is_no_obstacle(tmp_path):
    (tmp_path / ".lock").write_bytes(b"\xff\x00 process 1 on a machine that burned down" * 100)
    with folder_lock(tmp_path):
        assert str(os.getpid()) in (tmp_path / ".lock").read_text()


def test_a_holder_that_has_not_said_who_it_is_is_another_process(tmp_path):
    with folder_lock(tmp_path):
        (tmp_path / ".lock").write_bytes(b"\x1b[31m")
        with pytest.raises(FolderLocked, match="in use by another process"), folder_lock(tmp_path):
            pass


def test_the_folder_is_free_again_afterwards_and_after_an_error(tmp_path):
    with folder_lock(tmp_path / "run"):
        pass
    with pytest.raises(ZeroDivisionError), folder_lock(tmp_path / "run"):
        raise ZeroDivisionError
    with folder_lock(str(tmp_path / "run")):
        pass


def test_of_many_threads_one_holds_the_folder(tmp_path):
    everyone, done = threading.Barrier(8), threading.Barrier(8)

    def attempt(_):
        everyone.wait()
        try:
            with folder_lock(tmp_path):
                done.wait()
                return True
        except FolderLocked:
            done.wait()
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(8))) == 1


def test_a_child_that_outlives_the_holder_does_not_keep_the_folder(tmp_path):
    with folder_lock(tmp_path):
        child = get_context("spawn").Process(target=signal.pause)
        child.start()
    try:
        with folder_lock(tmp_path):
            pass
    finally:
        child.kill()
        child.join()


def test_a_folder_that_cannot_be_made_or_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderLocked, match=r"cannot write to the folder .*file.*: "):
        folder_lock(tmp_path / "file").__enter__()
    (tmp_path / "run" / ".lock").mkdir(parents=True)
    with pytest.raises(FolderLocked, match=r"cannot write to the folder .*run: Is a directory"):
        folder_lock(tmp_path / "run").__enter__()


def test_a_file_system_without_locks_is_refused(tmp_path, monkeypatch):
    def no_locks(handle, operation):
        if operation & fcntl.LOCK_EX:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(FolderLocked, match=r"its file system has no locks .No locks available"):
        folder_lock(tmp_path).__enter__()
