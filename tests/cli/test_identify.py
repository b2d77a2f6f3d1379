"""`innerloop identify`: runs, records, algorithms and a user's own learners."""

import re

import pytest

from innerloop.experiments import Record, Run
from innerloop.experiments.study import RECORDS

TASK = "linear:d=3,n=8,noise_std=0.5"
FEW = ("--samples", "400", "--candidates", "zero", "ols", "ridge", "free-step")


def test_a_planted_algorithm_is_named_and_survives_the_shifts(command):
    output = command("identify", "ridge:penalty=0.4", "--task", TASK, *FEW, "--shifts")
    assert "\nridge(penalty=0.4): identical to rounding\n" in output
    assert "identical to rounding on the task and on every shift: ridge(penalty=0.4)" in output
    assert re.search(r"^permutation of the examples +kept +none$", output, re.MULTILINE)
    assert "linear in the labels: 100.0% [100.0, 100.0]" in output


def test_a_learner_of_ones_own_that_is_no_candidate_is_none_of_these(command, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "def factory(task):\n"
        "    return lambda prompt: torch.sin(7 * prompt.x_query.sum(-1))\n"
    )
    output = command("identify", "mine:factory", "--task", TASK, *FEW)
    assert "\nnone of these; the best of them, " in output


def test_a_compiled_model_is_a_learner_a_candidate_and_not_the_twin_of_another_dimension(command):
    for dim in ("2", "3"):
        words = ("--dim", dim, "--examples", "8", "--loops", "2", "-o", f"{dim}.safetensors")
        command("compile", "linear-gd", *words)
    few = ("--samples", "200", "--candidates", "zero")
    output = command("identify", "3.safetensors", *few, "3.safetensors")
    assert "\n3.safetensors: identical to rounding\n" in output
    output = command("identify", "3.safetensors", *few, "2.safetensors", code=2)
    assert "the candidate 2.safetensors reads d = 2, the task has d = 3" in output
    output = command("identify", "3.safetensors", *few, "--twin", "2.safetensors", code=2)
    assert "the twin 2.safetensors reads d = 2, the task has d = 3" in output


def test_a_run_and_its_record_are_read_layer_by_layer_and_drawn(command, tmp_path, monkeypatch):
    words = ("--task", "linear:d=2,n=4,dtype=float32", "--steps", "2", "--run", "run")
    command("train", "gpt2:layers=2,width=8,heads=2", *words, "--batch", "8")
    options = (*FEW, "--by", "layer", "--probes", "--picture", "inside.png")
    output = command("identify", "run", *options)
    assert "none of these" in output
    assert "stable-gd: the nearest step at every depth" in output
    assert "layer 2: w of least squares" in output
    assert (tmp_path / "inside.png").stat().st_size > 10_000
    run = Run.open("run")
    monkeypatch.setenv(RECORDS, str(tmp_path / "records"))
    Record.of("toy/model", run, {}, 1.0).save(tmp_path / "records", weights_of=run.model)
    assert "none of these" in command("identify", "toy/model", *FEW, "--twin", "run")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["ols"], "the algorithm ols goes with --task"),
        (["mine:factory"], "mine:factory goes with --task"),
        (["nowhere"], "there is no checkpoint at nowhere"),
        (["ols", "--task", TASK, "--samples", "3"], "samples must be between 200 and"),
        (["ols", "--task", TASK, "--candidates", "olss"], "did you mean ols?"),
        (["ols", "--task", "tree", "--candidates", "posterior-mean"], "posterior-mean is known"),
        (["ols", "--task", TASK, "--by", "loop", *FEW], "only a looped model has loops"),
        (["ols", "--task", TASK, "--picture", "x.txt"], "must be a .png, .svg or .pdf file"),
        (["zero", "--task", "autoregression", "--shifts"], "samples token sequences"),
        (["ols", "--task", TASK, "--probes", *FEW], "only a model with `trace`"),
        (["ols", "--task", "autoregression"], "Autoregression samples token sequences, and"),
        (["unigram", "--task", "translation"], "a learner of Translation"),
    ],
)
def test_what_cannot_be_asked_gets_its_sentence(command, words, sentence):
    output = command("identify", *words, code=2)
    assert sentence in output
    assert "Traceback" not in output


def test_a_learner_of_sequences_is_identified_as_well(command):
    words = ("feature-ridge", "--task", "autoregression:d=2,n=8,q=1", "--samples", "400")
    assert "feature-ridge: identical to rounding" in command("identify", *words)
