"""`innerloop reproduce`: what it refuses, what it survives, what it leaves behind."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from innerloop import papers, reproduction
from innerloop.cli import main
from innerloop.cli.reproduce import _verdict_table
from innerloop.corpora import CorpusError
from innerloop.corpora.store import DATA
from innerloop.experiments.study import RECORDS
from innerloop.papers import Check, Scale, Verdict
from innerloop.papers.algoformer2024 import table1_trainings
from innerloop.reproduction import Result
from innerloop.runs import RunStore
from tests.entries import claim_of

PATIENCE = 120.0
"""Seconds after which what should happen at once has not; a busy machine takes a few."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def folder_of(id, store):
    reproduction.reproduce(papers.entries()[id], Scale.SMOKE, store)
    (path,) = store.root.glob(f"{id.replace('/', '-')}-*")
    return path


def test_an_entry_that_cannot_be_saved_takes_no_other_with_it(folder, capsys):
    lost = folder_of("ahn2023/lemma2", RunStore(folder / "runs"))
    (lost / "result.json").unlink()
    lost.rmdir()
    lost.write_text("a file in its place")
    ids = ["ahn2023/lemma2", "ahn2023/lemma10"]
    assert main(["reproduce", *ids, "--scale", "smoke", "--json", "out.json"]) == 1
    said = capsys.readouterr().out
    assert "1 holds, 1 error" in said
    assert "error: ahn2023/lemma2: it could not be saved: cannot write to the folder" in said
    broken, other = json.loads(Path("out.json").read_text())
    assert (broken["verdict"], other["verdict"]) == ("error", "holds")
    assert "it could not be saved" in broken["error"]
    assert other["error"] == ""
    assert "ahn2023/lemma10" in Path("report/index.html").read_text()
    found = reproduction.all_found(Scale.SMOKE, RunStore(folder / "runs"))
    assert list(found) == ["ahn2023/lemma10"]


def test_a_corpus_that_cannot_be_built_leaves_the_other_entries(folder, capsys, monkeypatch):
    def no_network(watch):
        watch("fetching packages", 0, 7)
        raise CorpusError("apt-get update failed, perhaps for want of a network")

    monkeypatch.setenv(DATA, str(folder / "data"))
    monkeypatch.setattr(table1_trainings, "build_debian", no_network)
    monkeypatch.setenv(RECORDS, "")  # retraining sets it, for this process as well
    ids = ["algoformer2024/table1", "algoformer2024/section2.2-parameters"]
    assert main(["reproduce", *ids, "--scale", "smoke", "--retrain"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "algoformer2024/table1: corpus, fetching packages (0 of 7)" in said
    assert "failed algoformer2024/table1: apt-get update failed, perhaps for want" in said
    assert "1 holds, 1 inconclusive" in said


def test_one_entry_measured_again_leaves_the_others_in_the_report(folder, capsys):
    store = RunStore(folder / "runs")
    for id in ("ahn2023/lemma2", "zhang2023/lemmaC.3"):
        reproduction.reproduce(papers.entries()[id], Scale.SMOKE, store)
    assert main(["reproduce", "ahn2023/lemma2", "--scale", "smoke"]) == 0
    page = Path("report/index.html").read_text()
    assert 'id="ahn2023/lemma2"' in page
    assert 'id="zhang2023/lemmaC.3"' in page
    assert "zhang2023" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--json", "taken"], "json must be a file that can be written, got taken"),
        (["--json", "pipe"], "json must be a file that can be written, got pipe"),
        (["--json", "file/below.json"], "cannot write to the folder file"),
        (["--runs", "file"], "cannot write to the folder file"),
        (["--workers", "0"], "workers must be at least 1, got 0"),
        (["--workers", "-1"], "workers must be at least 1, got -1"),
        (["--device", "gpu9"], "device must be one that this machine computes on"),
        (["--device", "cpu:0"], "device is where --retrain trains, which is not asked for"),
    ],
)
def test_what_cannot_end_well_is_refused_before_anything_is_measured(
    folder, capsys, monkeypatch, arguments, sentence
):
    Path("taken").mkdir()
    os.mkfifo("pipe")
    Path("file").write_text("")
    monkeypatch.setattr(reproduction, "measure_all", lambda *_, **__: pytest.fail("measured"))
    assert main(["reproduce", "ahn2023/lemma2", *arguments]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def result(id, verdict):
    return Result(claim_of(lambda scale: verdict, id), Scale.SMOKE, verdict, 1.0)


CHECK = Check("q", -1.234e-16, -5.678e-100, 1.234e-10, "", "", at_least=True)
ROWS = [
    result("zhang2023/theorem4.5-nondiagonal", Verdict([CHECK], [CHECK])),
    result("a2025/an-id-of-forty-letters-and-no-fewer-xx", Verdict([CHECK])),
    result("a2025/x", Verdict([], error="RuntimeError: no")),
]


@pytest.mark.parametrize("ascii_only", [False, True])
def test_the_table_loses_nothing_at_80_columns(ascii_only):
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(_verdict_table(ROWS, Scale.SMOKE, ascii_only))
    text = capture.get()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for number in ("-1.2e-16", "-5.7e-100", "1.2e-10"):
        assert text.count(number) == 2
    first_column = "".join(re.split(r"[ |│]", line)[0] for line in text.splitlines())
    for row in ROWS:
        assert row.id in first_column
    assert ">= " in text if ascii_only else "≥ " in text


def test_the_table_can_be_written_to_an_ascii_terminal():
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(width=80, file=terminal)
    assert console.options.ascii_only
    console.print(_verdict_table(ROWS, Scale.SMOKE, console.options.ascii_only))
    terminal.flush()
    assert b">= -5.7e-100" in terminal.buffer.getvalue()


def children(process):
    """The processes that this one has started and that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(parent) == process and state != "Z":
            found.append(int(path.parent.name))
    return found


def wait_until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("number", "code", "sentence"),
    [
        (signal.SIGTERM, 143, "terminated; the same command goes on where it stopped"),
        (signal.SIGINT, 130, "interrupted; the same command goes on where it stopped"),
    ],
)
def test_signals_end_the_processes_with_a_sentence(folder, number, code, sentence):
    command = "import sys; from innerloop.cli import main; sys.exit(main())"
    ids = ["gatmiry2024", "ahn2023"]
    parent = subprocess.Popen(
        [sys.executable, "-c", command, "reproduce", *ids, "--scale", "smoke", "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # As from a terminal: a shell that runs tests in the background has Ctrl-C ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        # Two that measure, and the one with which Python tracks what they share.
        wait_until(lambda: len(children(parent.pid)) >= 3 or parent.poll() is not None)
        started = children(parent.pid)
        parent.send_signal(number)
        _, said = parent.communicate(timeout=PATIENCE)
    finally:
        parent.kill()
    assert sentence in said
    assert "Traceback" not in said
    assert parent.returncode == code
    assert len(started) >= 3
    wait_until(lambda: not any(Path(f"/proc/{process}").exists() for process in started))
