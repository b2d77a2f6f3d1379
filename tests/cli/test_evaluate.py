"""`innerloop train` and then `evaluate`: a dictionary, shifts, pictures, a model of one's own."""

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from innerloop import index
from innerloop.analysis import standard_shifts
from innerloop.cli.subject import opened
from innerloop.experiments import Record, Run
from innerloop.experiments.study import RECORDS
from innerloop.theory.softmax import DictionaryRisk, one_head_floor

DICTIONARY = "dictionary:tokens=8,shown=3,d=3,features=2"
NUMBER = r"-?\d+(?:\.\d+)?(?:e[-+]\d+)?"


def theory_of(task):
    """The loss is twice that of Yang 2024."""
    return DictionaryRisk.of(task.features, task.shown, task.tau)


def losses(output):
    """Of every learner, by its name in the table."""
    rows = re.findall(rf"^(.+?)  +({NUMBER}) ± {NUMBER}  +{NUMBER}$", output, re.MULTILINE)
    return {name: float(loss) for name, loss in rows}


@pytest.mark.parametrize("objective", ["exact", "prompts:batch=500"])
def test_trained_heads_come_near_ridge_regression_and_nothing_is_below_it(objective, command):
    words = ("--task", DICTIONARY, "--objective", objective, "--steps", "400", "--run", "run")
    command("train", "heads:heads=16", *words)
    run = Run.open("run")
    best = 2 * theory_of(run.task).infimum
    gap = run.model.risk(run.task).item() - best
    start, _, _ = run.experiment.build()
    assert 0 <= gap < 0.05 * (start.risk(run.task).item() - best)

    output = command("evaluate", "run", "--samples", "20000")
    table = losses(output)
    assert list(table) == ["the model", "zero", "shown-labels", "feature-ridge"]
    assert table["feature-ridge"] == pytest.approx(best, rel=0.05)
    assert min(table.values()) == table["feature-ridge"]  # on the same prompts
    stated = float(re.search(rf"exact loss of the model: ({NUMBER})", output)[1])
    assert stated == pytest.approx(best + gap, rel=1e-5)


def test_a_record_is_evaluated_by_its_name(command, tmp_path, monkeypatch):
    words = ("--task", "linear:d=2,n=4,dtype=float32", "--steps", "2", "--run", "run")
    command("train", "gpt2:layers=1,width=8,heads=2", *words, "--batch", "8")
    run = Run.open("run")
    monkeypatch.setenv(RECORDS, str(tmp_path / "records"))
    Record.of("toy/model", run, {}, 1.0).save(tmp_path / "records", weights_of=run.model)
    table = losses(command("evaluate", "toy/model", "--samples", "500"))
    trained = losses(command("evaluate", "run", "--samples", "500"))
    assert table == pytest.approx(trained, rel=0.02)  # half precision


def test_a_single_head_stays_above_its_floor(command):
    words = ("--task", DICTIONARY, "--objective", "exact", "--steps", "300", "--run", "run")
    command("train", "heads:heads=1", *words)
    run = Run.open("run")
    known = theory_of(run.task)
    floor = 2 * one_head_floor(known)
    gap = run.model.risk(run.task).item() - 2 * known.infimum
    assert gap >= floor > 0
    start, _, _ = run.experiment.build()
    assert gap < start.risk(run.task).item() - 2 * known.infimum


@pytest.mark.parametrize(
    ("model", "task"),
    [
        ("heads:heads=3", DICTIONARY),
        ("gd:layers=1", "linear:d=3,n=5"),
        ("gd:layers=1", "sparse:d=3,n=5,nonzero=1"),
    ],
)
def test_a_table_of_shifts_loses_nothing_in_80_columns(model, task, command):
    command("train", model, "--task", task, "--batch", "10", "--steps", "2", "--run", "run")
    output = command("evaluate", "run", "--shifts", "--samples", "60")
    assert max(map(len, output.splitlines())) <= 80
    assert "…" not in output
    shifts = [shift.name for shift in standard_shifts(Run.open("run").task)]
    words = command("evaluate", "run", "--samples", "60")
    learners = list(losses(words))
    blocks = re.split(r"\n\n", output.strip())[1:]
    names = [re.sub(r"\s+", " ", block.splitlines()[0]) for block in blocks]
    for learner in learners:
        assert sum(learner in name for name in names) == 1, f"{learner} has no column"
    for block in blocks:
        _, _, *rows = block.splitlines()
        assert [row[: len(name)] for row, name in zip(rows, shifts, strict=True)] == shifts
        for row, name in zip(rows, shifts, strict=True):
            cells = row[len(name) :].split("  ")
            numbers = [cell.strip() for cell in cells if cell.strip()]
            assert all(re.fullmatch(rf"{NUMBER}( ± {NUMBER})?|nan", n) for n in numbers), row
    numbers = len(re.findall(rf"{NUMBER} ± {NUMBER}", output))
    assert numbers == len(shifts) * len(learners)


@pytest.mark.parametrize(
    ("file", "start"), [("a.png", b"\x89PNG"), ("b.svg", b"<?xml"), ("new/c.pdf", b"%PDF")]
)
def test_a_learning_curve_is_a_picture(file, start, command, tmp_path):
    (tmp_path / "new").mkdir()
    words = ("--task", DICTIONARY, "--batch", "10", "--steps", "2", "--run", "run")
    command("train", "heads:heads=2", *words)
    output = command("evaluate", "run", "--samples", "60", "--curve", file)
    assert f"learning curves of 60 prompts: {file}" in output
    assert (tmp_path / file).read_bytes().startswith(start)


def test_a_picture_of_an_unknown_kind_is_refused_before_anything_is_measured(command):
    command("train", "gd", "--steps", "2", "--batch", "10", "--run", "run")
    output = command("evaluate", "run", "--curve", "curve.txt", code=2)
    assert "curve must be a .png, .svg or .pdf file, got curve.txt" in output
    assert "±" not in output


def test_a_model_is_looped_longer_than_it_was_trained(command):
    words = ("--task", "linear:d=2,n=8,prior=inverse", "--objective", "exact", "--steps", "200")
    command("train", "looped:loops=2", *words, "--run", "run")
    output = command("evaluate", "run", "--loops", "4", "--samples", "500")
    rows = re.findall(rf"^(\d)( \(trained\))?  +({NUMBER}) ±", output, re.MULTILINE)
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    assert [row[0] for row in rows if row[1]] == ["2"]
    first, second = (float(row[2]) for row in rows[:2])
    assert second < first
    assert "median spectral radius" in output


def test_what_cannot_be_looped_is_refused(command):
    words = ("--task", DICTIONARY, "--batch", "10", "--steps", "2", "--run", "run")
    command("train", "heads:heads=2", *words)
    output = command("evaluate", "run", "--loops", "4", code=2)
    assert "--loops goes with models that have loops" in output


OWN = """
import torch
from torch import nn

class Scaled(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(d))

    def forward(self, prompt):
        return (prompt.x_query * self.scale).sum(-1)

def scaled(task):
    return Scaled(task.d)

def flat(task):
    return lambda prompt: prompt.y_query[:, 0]

def failing(task):
    return lambda prompt: {}["weights"]

def broken(task):
    raise KeyError("task")
"""


def test_a_model_of_ones_own_is_evaluated_with_and_without_weights(command, tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    words = ("--model", "mine:scaled", "--task", "linear:d=2,n=4", "--samples", "400")
    table = losses(command("evaluate", *words, "--against", "zero", "ols"))
    assert table["the model"] == table["zero"] > table["ols"]
    save_file({"scale": torch.full((2,), 5.0).double()}, tmp_path / "own.safetensors")
    changed = losses(command("evaluate", "own.safetensors", *words))
    assert changed["the model"] > 5 * table["the model"]
    for extra in ([], ["--shifts"], ["--curve", "curve.png"]):
        command("evaluate", "own.safetensors", *words, *extra)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("mine:flat", "must return predictions of the shape"),
        ("mine:broken", "mine:broken fails with KeyError: 'task'"),
        ("mine:failing", "fails on the prompts with KeyError: 'weights'"),
        ("mine:absent", "the module mine has no absent"),
        ("nowhere:model", "cannot import nowhere"),
        ("mine", "a model of your own is named package.module:factory, got 'mine'"),
    ],
)
def test_what_is_no_model_is_refused_with_a_sentence(model, sentence, command, tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    output = command("evaluate", "--model", model, "--task", "linear:d=2", code=2)
    assert sentence in " ".join(output.split())


def test_weights_of_a_run_go_into_a_model_that_is_named(command, tmp_path):
    task = ("--task", "linear:d=2,n=4")
    command("train", "gd:layers=2", *task, "--batch", "10", "--steps", "3", "--run", "run")
    words = ("--samples", "200", "--against", "zero")
    of_run = losses(command("evaluate", "run", *words))
    named = ("run/checkpoint.safetensors", "--model", "gd:layers=2", *task)
    assert losses(command("evaluate", *named, *words)) == of_run
    other = ("run/checkpoint.safetensors", "--model", "gd:layers=3", *task)
    assert "holds weights of shapes" in " ".join(command("evaluate", *other, code=2).split())
    missing = " ".join(command("evaluate", "--model", "gd:layers=2", *task, code=2).split())
    assert "the model gd:layers=2 has learned nothing yet" in missing


def test_a_compiled_model_needs_no_weights(command):
    words = ("--task", "linear:d=2,n=5", "--samples", "50", "--against", "zero")
    assert losses(command("evaluate", "--model", "compiled-linear-gd:loops=2", *words))


def test_every_model_that_is_listed_is_opened_by_its_name():
    for record in index.trained_models():
        assert opened(Path(record.name), "cpu").step > 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "evaluate takes the folder of a run, or --model with --task"),
        (["--model", "mine:flat"], "--model goes with --task"),
        (["run", "--samples", "1"], "samples must be at least 2"),
        (["run", "--against", "olss"], "no algorithm is called 'olss'; did you mean ols?"),
        (["run", "--task", "linear:d=7"], "the model reads d = 2, the task has d = 7"),
        (["run", "--against", "feature-ridge"], "needs a task with features"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_with_a_sentence(words, sentence, command):
    command("train", "gd", "--task", "linear:d=2", "--batch", "5", "--steps", "1", "--run", "run")
    assert sentence in " ".join(command("evaluate", *words, code=2).split())
