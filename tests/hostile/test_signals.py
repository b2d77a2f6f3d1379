"""Processes that are killed, stopped, or left without a reader, and two that want one folder."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from innerloop.locks import NAME
from tests.hostile.helpers import PATIENCE, TRAIN, ended, refusal

PROGRAM = Path(__file__).with_name("reproducing.py")
REPRODUCE = (sys.executable, str(PROGRAM), "reproduce", "--scale", "smoke", "--workers", "2")


@contextlib.contextmanager
def started(*command):
    """A process with its output in pipes; whatever happens, it does not outlive the test."""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # As from a terminal: a shell that runs tests in the background has Ctrl-C ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def waiting():
    """The processes that have measured the claim that waits, in order."""
    path = Path("waiting")
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def is_running(process):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_worker_killed_while_it_measures_costs_nothing_but_time(folder):
    with started(*REPRODUCE, "--json", "out.json") as process:
        wait_until(lambda: waiting() or process.poll() is not None)
        os.kill(waiting()[0], signal.SIGKILL)
        said, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (0, "")
    verdicts = {
        record["id"]: record["verdict"] for record in json.loads(Path("out.json").read_text())
    }
    assert verdicts == dict.fromkeys(("ahn2023/first", "ahn2023/waits", "ahn2023/last"), "holds")
    assert len(set(waiting())) == 2  # once more, by another process
    lines = [line for line in said.splitlines() if line.startswith("holds ahn2023/")]
    assert lines[-1].startswith("holds ahn2023/waits")  # alone, after all others


def test_a_terminated_reproduction_keeps_what_was_measured_and_leaves_no_process(folder):
    Path("always").touch()
    with started(*REPRODUCE) as process:
        wait_until(lambda: waiting() and len(list(Path("runs").glob("*/result.json"))) == 2)
        process.terminate()
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143
    assert errors.strip() == "terminated; the same command goes on where it stopped"
    kept = sorted(
        path.parent.name.rpartition("-")[0] for path in Path("runs").glob("*/result.json")
    )
    assert kept == ["ahn2023-first", "ahn2023-last"]
    wait_until(lambda: not is_running(waiting()[0]))


def test_a_reproduction_whose_reader_leaves_after_a_line_ends_quietly(folder):
    """As in `innerloop reproduce | head -1`."""
    with started(*REPRODUCE, "--workers", "1", "ahn2023/first", "ahn2023/last") as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE) in (0, 141)
        assert process.stderr.read() == ""


TRAINING = "import sys; from innerloop.cli import main; sys.exit(main())"


def test_of_two_trainings_in_one_folder_the_second_is_refused_and_told_who_is_first(folder, capsys):
    words = [
        "train",
        "gd:layers=1",
        "--task",
        "linear:d=2,n=4",
        "--steps",
        "10000000",
        "--run",
        "run",
    ]
    lock = Path("run") / NAME
    with started(sys.executable, "-c", TRAINING, *words) as first:
        wait_until(lambda: lock.exists() and lock.read_text())
        said = refusal(capsys, *TRAIN, "--run", "run")
        assert f"the folder run is in use by process {first.pid} on " in said
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert f"process {first.pid} " in lock.read_text()  # left behind, and no obstacle
    assert ended(capsys, *TRAIN, "--run", "run")[0] == 0


def test_an_evaluation_that_is_stopped_does_not_say_that_it_can_be_resumed(folder, capsys):
    assert ended(capsys, *TRAIN, "--run", "run")[0] == 0
    words = ["evaluate", "run", "--samples", "100000000"]
    with started(sys.executable, "-c", WATCHED, *words) as process:
        assert process.stdout.readline() == "measuring\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors.strip()) == (130, "interrupted")


WATCHED = """
import sys
from innerloop import analysis
from innerloop.cli import main
estimate_risk = analysis.estimate_risk
def announced(*arguments, **settings):
    print("measuring", flush=True)
    return estimate_risk(*arguments, **settings)
analysis.estimate_risk = announced
sys.exit(main())
"""
