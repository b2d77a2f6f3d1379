"""How the command line starts and ends: what it imports, signals, closed pipes, odd terminals."""

import os
import signal
import subprocess
import sys
import time

import pytest

import innerloop
from innerloop.cli import commands, console, main, process

START = [sys.executable, "-m", "innerloop"]
HEAVY = {"torch", "numpy", "scipy", "matplotlib", "jinja2"}


def said(capsys):
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


def run(*arguments, **settings):
    return subprocess.run(
        [*START, *arguments], capture_output=True, timeout=60, **settings, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "code", "also_absent"),
    [
        ([], 0, {"tyro", "rich", "ast"}),
        (["--version"], 0, {"tyro", "rich"}),
        (["trian"], 2, {"tyro"}),
        (["list", "zhang2023"], 0, set()),
        (["reproduce", "ahn2023/lema2"], 2, {"tyro"}),
        (["lengths", "--help"], 0, set()),
    ],
)
def test_nothing_that_computes_is_imported_to_answer_a_question(arguments, code, also_absent):
    program = (
        "import sys; from innerloop.cli import main; code = main(sys.argv[1:]); "
        "print(code, *sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found, *modules = result.stderr.splitlines()[-1].split()
    assert int(found) == code
    assert not (HEAVY | also_absent) & set(modules)


@pytest.mark.parametrize("name", ["train", "evaluate", "identify", "compile", "data", "translate"])
def test_the_help_of_a_command_has_its_examples(name, capsys):
    assert main([name, "--help"]) == 0
    assert capsys.readouterr().out.count(f"\n  innerloop {name} ") >= 1


def test_public_names_are_there_when_asked_for():
    assert {"Prompt", "TokenSequence"} <= set(dir(innerloop))
    assert innerloop.Prompt.__name__ == "Prompt"
    with pytest.raises(AttributeError, match="module 'innerloop' has no attribute 'Promt'"):
        innerloop.Promt  # noqa: B018


def test_every_command_is_in_the_help_and_can_be_imported(capsys):
    assert main(["--help"]) == 0
    output = said(capsys)
    for name, command in commands.COMMANDS.items():
        assert f" {name} " in output
        assert callable(commands._imported(command))


def test_a_mistyped_command_is_refused_with_the_one_that_was_meant(capsys):
    assert main(["trian", "gd"]) == 2
    assert "no command is called 'trian'; did you mean train? Known: list, " in said(capsys)


def stopped(monkeypatch, capsys, command, error):
    def stop(ids: list[str] | None = None) -> None:
        raise error

    monkeypatch.setattr(commands, "_imported", lambda command: stop)
    return main([command]), said(capsys)


@pytest.mark.parametrize("command", ["reproduce", "train"])
def test_a_command_that_can_go_on_says_so_when_it_is_stopped(monkeypatch, capsys, command):
    ends = stopped(monkeypatch, capsys, command, KeyboardInterrupt())
    assert ends == (130, "interrupted; the same command goes on where it stopped")
    ends = stopped(monkeypatch, capsys, command, process.Terminated())
    assert ends == (143, "terminated; the same command goes on where it stopped")


@pytest.mark.parametrize("command", ["evaluate", "lengths", "bench"])
def test_a_command_that_starts_anew_only_says_that_it_was_stopped(monkeypatch, capsys, command):
    ends = stopped(monkeypatch, capsys, command, KeyboardInterrupt())
    assert ends == (130, "interrupted")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_an_exception_only_while_a_command_runs(monkeypatch, number):
    before = {number: signal.getsignal(number) for number in process.SIGNALS}
    # As from a terminal: a shell that runs tests in the background has Ctrl-C ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    left = []
    monkeypatch.setattr(process, "_received", [])
    monkeypatch.setattr(process, "_leave", lambda number, frame: left.append(number))
    try:
        with pytest.raises(KeyboardInterrupt) as error, process.interruptible():
            signal.raise_signal(number)
        assert process.stop_signal(error.value) == 128 + number
        assert process.stop_signal(ImportError("what an import made of it")) == 128 + number
        assert not left
        signal.raise_signal(number)
        assert left == [number]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_ctrl_c_while_torch_is_imported_shows_no_traceback(tmp_path):
    program = (
        "import sys, os; sys.argv[1:] = ['train', 'gd']\n"
        "from innerloop.cli import main, commands\n"
        "found = commands._imported\n"
        "commands._imported = lambda command: (print('x', flush=True), found(command))[1]\n"
        "sys.exit(main())"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        # As from a terminal: a shell that runs tests in the background has Ctrl-C ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    child.stdout.read(1)
    time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert (child.returncode, errors.strip()) == (130, b"interrupted")


def test_a_reader_that_goes_away_ends_the_command_quietly():
    read, write = os.pipe()
    os.close(read)
    for arguments in (["list"], ["--help"]):
        child = subprocess.run(
            [*START, *arguments], stdout=write, stderr=subprocess.PIPE, check=False
        )
        assert (child.returncode, child.stderr) == (141, b"")
    os.close(write)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_output_that_cannot_be_written_is_said():
    with open("/dev/full", "w") as full:
        child = subprocess.run([*START, "--help"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert child.returncode == 2
    assert b"cannot write the output" in child.stderr or b"the disk is full" in child.stderr


def test_a_terminal_that_knows_ascii_alone_is_enough():
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C", "COLUMNS": "80"}
    result = run("lengths", "--train", "400", env=ascii_only)
    assert (result.returncode, result.stderr) == (0, b"")
    assert "training prompts without end" in result.stdout.decode("ascii")
    assert " inf " in result.stdout.decode("ascii")


def test_square_brackets_are_printed_as_they_are(capsys):
    path = "runs/[bold]a[/bold]/[/]:smile:" + 100 * "x"
    console.say(path)
    console.console().print(path, soft_wrap=True)
    assert capsys.readouterr().out.splitlines() == [path, path]
