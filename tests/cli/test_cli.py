"""The command line as a user meets it: output, exit codes, one sentence per refusal."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from safetensors.torch import load_file

from innerloop.cli import main

RUN = "import sys; from innerloop.cli import main; sys.exit(main())"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def said(capsys):
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


def test_list_names_every_claim_task_model_and_algorithm(folder, capsys):
    assert main(["list"]) == 0
    output = said(capsys)
    names = ("ahn2023/theorem1", "ahn2023/figure4", "linear", "gd++", "single-layer", "newton")
    assert all(name in output for name in names)


def test_reproduce_prints_verdicts_and_writes_report_and_json(folder, capsys):
    ids = ["ahn2023/lemma2", "ahn2023/lemma10"]
    arguments = ["reproduce", *ids, "--scale", "smoke"]
    assert main([*arguments, "--json", "out/verdicts.json"]) == 0
    output = said(capsys)
    assert "ahn2023/lemma2" in output
    assert "2 holds" in output
    assert "report:" in output
    assert (folder / "report" / "index.html").exists()
    records = json.loads((folder / "out" / "verdicts.json").read_text())
    keys = {"id", "kind", "verdict", "statement", "measured", "control", "tolerance", "why"}
    assert [set(record) for record in records] == [keys | {"seconds", "error"}] * 2
    assert main(arguments) == 0
    assert "found on disk" in said(capsys)


def test_without_records_a_figure_is_inconclusive_and_says_what_they_take(folder, capsys):
    assert main(["reproduce", "algoformer2024/table1", "--scale", "paper"]) == 0
    output = said(capsys)
    assert "1 inconclusive" in output
    assert "inconclusive: algoformer2024/table1: 9 of 9 trainings at scale paper have no" in output


def test_a_table_is_printed_where_its_figure_is_asked_for_by_name(folder, capsys):
    assert main(["reproduce", "algoformer2024/table1", "--scale", "smoke"]) == 0
    output = said(capsys)
    assert "words without context 6.406 6.406 6.406" in output
    assert "BLEU" in output
    assert "reference Opens the current document as a LibreOffice Impress presentation." in output


def test_no_command_shows_help_with_examples(folder, capsys):
    assert main([]) == 0
    assert "innerloop reproduce ahn2023/theorem1" in said(capsys)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["reproduce", "ahn2023/lema2"], "no claim, figure or paper is called 'ahn2023/lema2'; the nearest are ahn2023/lemma2"),  # noqa: E501
        (["reproduce", "ahn2023/lemma2", "--report", "{file}/x"], "cannot write to the folder"),
        (["train", "gdd"], "no model is called 'gdd'; did you mean gd?"),
        (["train", "gd:layer=2"], "model gd has no option 'layer'; it has: layers, loops, std"),
        (["train", "gd:layers=two"], "layers of model gd must be a whole number, got 'two'"),
        (["train", "gd", "--task", "linear:n=0"], "n must be a whole number of at least 1, got 0"),
        (["train", "gd", "--task", "linear:noise_std=-1"], "noise_std must be finite and not negative, got -1.0"),  # noqa: E501
        (["train", "gd", "--task", "linear:d=2,spectrum=1/-2"], "covariance must be"),
        (["train", "gd", "--task", "linear:prior=flat"], "prior of task linear must be one of"),
        (["train", "gd", "--steps", "0"], "steps must be a whole number of at least 1, got 0"),
        (["train", "dense", "--objective", "exact"], "no closed form is known for the loss of"),
        (["train", "gd++:layers=3", "--objective", "exact"], "too large to expand"),
        (["train", "gpt2", "--recipe", "magic"], "recipe must be one of muon, adam, published, got 'magic'"),  # noqa: E501
        (["train", "gd", "--recipe", "muon"], "a recipe is for transformers"),
        (["evaluate", "nowhere"], "there is no checkpoint at nowhere"),
        (["evaluate", "{file}"], "is damaged or is not a checkpoint"),
        (["lengths", "--eps", "0.1", "--noise-std", "1"], "eps must be finite and above noise_std^2 = 1"),  # noqa: E501
        (["lengths", "--spectrum", "1,2"], "spectrum must be numbers separated by /, got '1,2'"),
        (["lengths", "--spectrum", "1/-2"], "spectrum must be one or more positive finite numbers"),
        (["lengths", "--train", "5", "--eps", "0.01"], "after training on 5 examples, got 0.01; train on"),  # noqa: E501
        (["bench", "speed"], "no benchmark is called 'speed'; known: linear"),
    ],
)  # fmt: skip
def test_bad_input_gets_its_sentence_and_no_traceback(folder, capsys, arguments, sentence):
    (folder / "file").write_text("not a checkpoint")
    arguments = [word.format(file=folder / "file") for word in arguments]
    assert main(arguments) == 2
    output = said(capsys)
    assert sentence in output
    assert "Traceback" not in output


def test_lengths_prints_the_shortest_prompts_and_the_stated_ones(folder, capsys):
    arguments = ["--eps", "0.1", "--spectrum", "1.5/0.8/0.4", "--train", "40"]
    assert main(["lengths", *arguments]) == 0
    output = said(capsys)
    assert "the given training length 40 116 0.099627" in output
    assert "test prompts as long as training prompts 104 104" in output
    assert "training prompts without end ∞ 108 0.1" in output
    assert "sufficient by Corollary 4.3 47 216 0.0600154" in output
    assert "predicting 0 has the error 2.7, the best linear predictor 0" in output


def test_debug_shows_the_traceback(folder, capsys):
    assert main(["reproduce", "nothing", "--debug"]) == 2
    assert "Traceback" in said(capsys)


def test_a_defect_is_named_without_a_traceback(folder, capsys, monkeypatch):
    monkeypatch.setattr("innerloop.cli.reproduce.papers.select", lambda ids: 1 / 0)
    assert main(["reproduce"]) == 1
    output = said(capsys)
    assert "unexpected ZeroDivisionError" in output
    assert "Traceback" not in output


TRAIN = ["train", "gd:layers=2", "--task", "linear:d=3,n=10,prior=inverse"]


def test_a_trained_model_can_be_evaluated_against_algorithms(folder, capsys):
    assert main([*TRAIN, "--steps", "300", "--objective", "exact", "--run", "mine"]) == 0
    with (folder / "mine" / "history.csv").open() as file:
        losses = [float(row["loss"]) for row in csv.DictReader(file)]
    assert losses[-1] < 0.6 * losses[0]
    capsys.readouterr()
    arguments = ["--against", "ols", "ridge:penalty=0.1", "gd:steps=3", "--samples", "2000"]
    assert main(["evaluate", "mine", *arguments]) == 0
    output = said(capsys)
    assert all(word in output for word in ("the model", "ols", "ridge:penalty=0.1", "gd:steps=3"))
    assert "exact loss of the model" in output


def test_a_recipe_gives_what_is_not_given(folder, capsys):
    small = ["train", "gpt2:layers=1,width=8,heads=2", "--task", "linear:d=2,n=4,dtype=float32"]
    assert main([*small, "--recipe", "muon", "--steps", "2", "--batch", "8", "--run", "mine"]) == 0
    made = json.loads((folder / "mine" / "experiment.json").read_text())
    assert made["objective"] == {"name": "positions", "options": {"batch": 8}}
    assert made["optimizer"]["name"] == "muon"
    assert made["schedule"]["name"] == "stable-decay"


def test_a_checkpoint_of_other_settings_is_refused(folder, capsys):
    assert main([*TRAIN, "--steps", "3", "--run", "mine"]) == 0
    assert main([*TRAIN, "--steps", "4", "--run", "mine"]) == 2
    assert "belongs to another run (it differs in steps)" in said(capsys)


def test_evaluating_on_a_task_of_another_dimension_is_refused(folder, capsys):
    assert main([*TRAIN, "--steps", "3", "--run", "mine"]) == 0
    assert main(["evaluate", "mine", "--task", "linear:d=4"]) == 2
    assert "the model reads d = 3, the task has d = 4" in said(capsys)


def test_ctrl_c_leaves_a_run_that_resumes_to_the_same_weights(folder):
    steps = ["--steps", "1500", "--batch", "20"]
    command = [sys.executable, "-c", RUN, *TRAIN, *steps, "--run"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*command, "stopped"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    checkpoint = folder / "stopped" / "checkpoint.safetensors"
    deadline = time.monotonic() + 60
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors.decode()
    assert b"goes on where it stopped" in errors
    assert b"Traceback" not in errors
    assert main([*TRAIN, *steps, "--run", "stopped"]) == 0
    assert main([*TRAIN, *steps, "--run", "whole"]) == 0
    stopped, whole = load_file(checkpoint), load_file(folder / "whole" / "checkpoint.safetensors")
    assert stopped.keys() == whole.keys()
    assert all(stopped[name].equal(whole[name]) for name in whole)


def test_evaluate_prints_a_table_of_shifts(folder, capsys):
    main(["train", "gd:layers=1", "--objective", "exact", "--steps", "5", "--run", "r"])
    assert main(["evaluate", "r", "--shifts", "--samples", "200", "--against", "one-step"]) == 0
    output = said(capsys)
    names = ("the model", "one-step", "covariates × 2", "best step, exact")
    assert all(name in output for name in names)


def test_evaluate_loops_a_model_longer_than_it_was_trained(folder, capsys):
    train = ["train", "looped:loops=2", "--task", "linear:d=2,n=10,prior=inverse"]
    main([*train, "--objective", "exact", "--steps", "300", "--run", "r"])
    assert main(["evaluate", "r", "--loops", "3", "--samples", "500"]) == 0
    output = said(capsys)
    assert "2 (trained)" in output
    assert "spectral radius" in output
    assert main(["evaluate", "r", "--against", "looped:loops=2", "--samples", "500"]) == 0
    assert main(["evaluate", "r", "--loops", "0"]) == 2
    assert "loops must be at least 1, got 0" in said(capsys)
