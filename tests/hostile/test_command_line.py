"""Odd words on the command line: each is refused with a sentence, before any work."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from innerloop import papers, reproduction
from innerloop.cli import main
from innerloop.experiments import TABLES, Spec
from innerloop.papers import Scale
from innerloop.runs import RunStore
from tests.hostile.helpers import PATIENCE, ended, no_hang, refusal, small_run, tried

HUGE = "1000000000000"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--lr inf", "lr of optimizer adam must be finite, got inf"),
        ("--lr nan", "lr of optimizer adam must be finite, got nan"),
        ("--lr 1e400", "lr of optimizer adam must be finite, got inf"),
        ("--lr 0", "lr must be positive, got 0.0"),
        ("--optimizer adam:lr=inf", "lr of optimizer adam must be finite, got inf"),
        ("--clip nan", "clip must be positive and finite"),
        ("--clip inf", "clip must be positive and finite"),
        ("--clip 0", "clip must be positive and finite"),
        ("--schedule cosine:floor=-1", "floor must be between 0 and 1, got -1.0"),
        ("--schedule cosine:floor=9", "floor must be between 0 and 1, got 9.0"),
        ("--schedule warm-up:over=-3", "steps must be 0 or more to warm up over them, got -3"),
        ("--batch 1e12", "--batch"),
        (f"--batch {HUGE}", f"{HUGE} prompts would need about"),
        (f"--objective wishart --batch {HUGE}", f"{HUGE} Gram matrices would need about"),
        ("--batch 0", "batch must be a whole number of at least 1, got 0"),
        ("--seed -1", "seed must be between 0 and 2^63 - 1, got -1"),
        (f"--seed {HUGE}{HUGE}", "seed must be between 0 and 2^63 - 1"),
        ("--task linear:d=5,spectrum=1/2", "spectrum must give d = 5 variances, got 2; set d=2"),
        ("--task linear:d=100000", "d must be at most 5000, got 100000"),
        ("--task sparse:d=100000", "d must be at most 5000, got 100000"),
        (f"--task linear:n={HUGE}", f"a prompt of n = {HUGE} examples would need about"),
        ("--task linear:n=400000000", "examples would need about"),
        ("--task linear:d=3,n=1e3", "n of task linear must be a whole number, got '1e3'"),
        (f"--task dictionary:tokens={HUGE}", f"{HUGE} tokens of d = 8 would need about"),
        ("--task linear:", "task linear takes options as key=value, got ''"),
        ("--task linear:d=3,,n=4", "task linear takes options as key=value, got ''"),
        ("--task :d=3", "no task is called ''"),
        ("--task línear", "no task is called 'línear'; did you mean linear?"),
        ("--task linear:ď=3", "task linear has no option 'ď'"),
        ("--task linear:d=²", "d of task linear must be a whole number, got '²'"),
        ("--task linear:noise_std=nan", "noise_std of task linear must be finite, got nan"),
        ("--task linear:d=1,spectrum=nan", "spectrum of task linear must be finite, got nan"),
        ("--device cuda:99", "device"),
        ("--device nonsense", "device"),
        ("--device meta", "device"),
        ("--device cpu:-1", "device"),
        ("--steps 1e3", "--steps"),
    ],
)
def test_a_training_that_cannot_be_is_refused_before_anything_is_written(
    folder, capsys, monkeypatch, options, sentence
):
    monkeypatch.setattr("innerloop.memory.available_bytes", lambda: 10**10)
    assert sentence in refusal(capsys, "train", "gd", *options.split(), "--run", "never")
    assert not list(Path().rglob("*.safetensors"))


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("", "no model is called ''"),
        ("gd:", "model gd takes options as key=value, got ''"),
        ("gd:layers=2,layers=3", "model gd is given layers twice"),
        ("gd:layers=-1", "layers must be a whole number of at least 1, got -1"),
        ("gd:layers=", "layers of model gd must be a whole number, got ''"),
        ("gd:layers=0x3", "layers of model gd must be a whole number, got '0x3'"),
        ("gd:layers=1e9", "layers of model gd must be a whole number, got '1e9'"),
        ("gd:layers=1000000000", "layers times loops must be at most 10000, got 1000000000"),
        ("gd:layers=200,loops=200", "layers times loops must be at most 10000, got 200 times"),
        ("looped:loops=1000000000", "layers times loops must be at most 10000"),
        ("gd:std=nan", "std of model gd must be finite, got nan"),
        ("gd:std=-1", "std must be finite and not negative, got -1.0"),
        ("dense:std=-0.1", "std must be finite and not negative, got -0.1"),
        ("encoder:width=10000000", "the encoder's weights would need about"),
        ("encoder:heads=-1", "heads must be at least 1, got -1"),
        ("a:b:c", "model a takes options as key=value, got 'b:c'"),
        ("gd:layers=" + "9" * 5000, "layers of model gd must be a whole number"),
        ("x" * 5000, "no model is called"),
    ],
    ids=lambda text: text[:30],
)
def test_a_model_that_cannot_be_is_refused(folder, capsys, model, sentence):
    assert sentence in refusal(capsys, "train", model, "--run", "never")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_device_that_is_not_there_is_refused_by_every_command_that_takes_one(folder, capsys):
    run = small_run()
    assert "got 'cuda'" in refusal(capsys, "train", "gd", "--device", "cuda")
    assert "got 'cuda'" in refusal(capsys, "evaluate", run, "--device", "cuda")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture(scope="module")
def looped(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained") / "looped"
    words = ["--task", "linear:d=2,n=4,prior=inverse", "--steps", "2", "--batch", "8"]
    assert main(["train", "looped:loops=2", *words, "--run", str(path)]) == 0
    return path


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (f"--samples {HUGE}", f"samples must be at most 100000000, got {HUGE}; more would take"),
        ("--samples 1", "samples must be at least 2 to give a standard error, got 1"),
        ("--samples 1e5", "--samples"),
        ("--seed -1", "seed must be between 0 and 2^63 - 1, got -1"),
        (f"--seed {HUGE}{HUGE}", "seed must be between 0 and 2^63 - 1"),
        ("--device nonsense", "device"),
        (f"--against newton:steps={HUGE}", f"steps must be between 0 and 100000, got {HUGE}"),
        (f"--against gd:steps={HUGE}", f"steps must be between 1 and 100000, got {HUGE}"),
        (f"--against gd:steps={HUGE},step_size=0.1", f"between 1 and 100000, got {HUGE}"),
        ("--against gd:step_size=nan", "step_size of algorithm gd must be finite, got nan"),
        ("--against ridge:penalty=-1", "penalty must be positive and finite, got -1.0"),
        ("--against ray:steps=1000000000", "layers must be at most"),
        ("--against looped:loops=1000000000", "are too large"),
        ("--against ols:", "algorithm ols takes options as key=value, got ''"),
        ("--curve taken.png", "curve must be a file that can be written, got taken.png"),
        ("--curve pipe.svg", "curve must be a file that can be written, got pipe.svg"),
        ("--curve curve.txt", "curve must be a .png, .svg or .pdf file, got curve.txt"),
        ("--curve file/curve.png", "cannot write to the folder file"),
        ("--task linear:d=2,n=0", "n must be a whole number of at least 1, got 0"),
    ],
)
def test_an_evaluation_that_cannot_end_well_is_refused_before_anything_is_measured(
    run, folder, capsys, options, sentence
):
    Path("taken.png").mkdir()
    os.mkfifo("pipe.svg")
    Path("file").write_text("")
    said = refusal(capsys, "evaluate", run, *options.split())
    assert sentence in said
    assert "standard error distance" not in said  # the table of losses


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--loops 1000000000", "loops must be at most 1000, got 1000000000"),
        ("--loops 3 --samples 100000000", "prompts would need about"),
        (f"--loops 3 --samples {HUGE}", "samples must be at most"),
    ],
)
def test_loops_without_end_are_refused(looped, folder, capsys, monkeypatch, options, sentence):
    monkeypatch.setattr("innerloop.memory.available_bytes", lambda: 10**9)
    assert sentence in refusal(capsys, "evaluate", looped, *options.split())


@pytest.mark.parametrize("shown", [1, 3])
def test_very_many_newton_steps_are_finite_and_quick(run, folder, capsys, shown):
    task = f"linear:d=2,n={shown}"
    words = ["--task", task, "--against", "newton:steps=100000", "--samples", "100"]
    with no_hang(20):
        code, said = ended(capsys, "evaluate", run, *words)
    assert code == 0
    assert "nan" not in said
    assert "inf" not in said


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--eps 1e-300", "prompts of more than 2^53 examples, which float64 does not count"),
        ("--eps nan", "eps must be finite and above"),
        ("--eps 0", "eps must be finite and above"),
        ("--spectrum 1e308/1e308", "spectrum must be one or more positive finite numbers"),
        ("--spectrum 1e-308/1", "eps must be larger for this spectrum and noise"),
        (f"--points {HUGE}", "points must be at most 10000"),
        ("--noise-std nan", "noise_std must be finite and not negative, got nan"),
        ("--noise-std 1e200", "noise_std must be at most 1e150"),
        ("--train -1", "train must be at least 1 example"),
    ],
)
def test_lengths_that_nobody_could_count_are_refused(folder, capsys, options, sentence):
    assert sentence in refusal(capsys, "lengths", *options.split())


def test_a_shortest_training_that_leaves_tests_no_room_is_passed_over(folder, capsys):
    """With 20,000 directions the shortest training ends 2e-8 below eps: no test is long enough."""
    code, said = ended(capsys, "lengths", "--spectrum", "/".join(["1"] * 20_000))
    assert code == 0
    assert "longer training for shorter tests" in said


@pytest.mark.parametrize(
    "words",
    [
        ["list", ""],
        ["list", "--grep", "\x07no such thing"],
        ["bench", ""],
        ["reproduce", ""],
        ["reproduce", "x" * 4000],
        ["reproduce", "ahn2023/lemma2", "--scale", "huge"],
        ["reproduce", "ahn2023/lemma2", "--threads", "0"],
        ["evaluate"],
        ["evaluate", ""],
        ["evaluate", "é"],
        ["evaluate", "x" * 5000],
        ["evaluate", "--model", "gd"],
        ["evaluate", "--model", "gd", "--task", "linear"],
        ["evaluate", "--model", "no.such:thing", "--task", "linear"],
        ["evaluate", "--model", ":", "--task", "linear"],
        ["train"],
        ["train", "gd", "extra"],
        ["train", "gd", "--run", "x" * 5000],
        ["train", "gd", "--run", "\x00"],
        ["", ""],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_words_that_lead_nowhere_are_refused(folder, capsys, words):
    refusal(capsys, *words)


KINDS = sorted(TABLES)
WORDS = st.text(max_size=12) | st.sampled_from(["nan", "inf", "-1", "1e999", "9" * 5000, "1/2", ""])
OPTIONS = st.lists(st.tuples(st.sampled_from(["d", "n", "layers", "lr"]) | st.text(), WORDS))


@given(st.sampled_from(KINDS), st.data(), OPTIONS, st.sampled_from([",", ",,", ";"]))
def test_any_text_is_a_spec_or_is_refused_with_a_sentence(kind, data, options, separator):
    name = data.draw(st.sampled_from(sorted(TABLES[kind])) | st.text())
    text = name + ":" + separator.join(f"{key}={value}" for key, value in options)
    spec, sentence = tried(lambda: Spec.parse(kind, text, TABLES[kind]))
    if spec is None:
        assert kind in sentence
    else:
        assert Spec.from_json(kind, spec.as_json(), TABLES[kind]) == spec


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(KINDS), st.data(), JSON)
def test_any_record_is_a_spec_or_is_refused_with_a_sentence(kind, data, value):
    name = data.draw(st.sampled_from(sorted(TABLES[kind])))
    options = Spec.parse(kind, name, TABLES[kind]).as_json()["options"]
    key = data.draw(st.sampled_from([*options, "no such option"]))
    for record in (value, {"name": value}, {"name": name, "options": {key: value}}):
        spec, sentence = tried(partial(Spec.from_json, kind, record, TABLES[kind]))
        assert isinstance(spec, Spec) or kind in sentence


IN_ASCII = """
import sys
from innerloop.cli import main
for line in sys.stdin.read().splitlines():
    sys.argv[1:] = line.split()
    print("code", main())
"""


def test_a_terminal_that_knows_ascii_alone_is_enough_for_every_table(run, folder):
    measured = reproduction.reproduce(
        papers.entries()["ahn2023/lemma2"], Scale.SMOKE, RunStore(Path("runs"))
    )
    assert measured.outcome == "holds"
    commands = [
        "list",
        f"evaluate {run} --samples 100",
        f"evaluate {run} --shifts --samples 100",
        "reproduce ahn2023/lemma2 --scale smoke",
    ]
    result = subprocess.run(
        [sys.executable, "-c", IN_ASCII],
        input="\n".join(commands).encode(),
        capture_output=True,
        timeout=2 * PATIENCE,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C", "COLUMNS": "80"},
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, b"")
    said = result.stdout.decode("ascii")
    assert said.count("code 0") == len(commands)
    assert "+-" in said
    assert "<= " in said
