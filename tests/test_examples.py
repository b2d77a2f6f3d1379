"""The examples run, and show what they say."""

import runpy
from pathlib import Path

import pytest

from innerloop.cli import main

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_heads_learn_a_representation_of_the_users_own(tmp_path, capsys):
    example = runpy.run_path(str(EXAMPLES / "own_representation.py"))
    output = tmp_path / "picture.png"
    example["main"](["--steps", "200", "--heads", "1", "32", "--output", str(output)])
    printed = capsys.readouterr().out
    error = {
        name.strip(): float(value)
        for name, value in (line.rsplit(maxsplit=1) for line in printed.splitlines()[1:-1])
    }
    ridge = error["ridge regression on f"]
    assert error["32 heads"] < 1.1 * ridge
    assert 1.5 * ridge < error["1 head"] < 1
    assert output.stat().st_size > 10_000


def test_a_model_of_the_users_own_serves_the_command_that_its_example_names(
    tmp_path, capsys, monkeypatch
):
    example = runpy.run_path(str(EXAMPLES / "own_model.py"))
    monkeypatch.chdir(tmp_path)
    example["main"](["--folder", "own_model", "--steps", "20"])
    assert "the same predictions: True" in capsys.readouterr().out
    assert Path("own_model/curves.png").stat().st_size > 10_000
    words = example["__doc__"].partition("    innerloop ")[2].replace("\\", " ").split()
    monkeypatch.syspath_prepend(str(EXAMPLES.parent))
    assert main([*words, "--samples", "100"]) == 0
    assert Path("curve.png").is_file()


def test_a_gpt2_of_hugging_face_learns_and_a_decoder_becomes_one(tmp_path, capsys):
    pytest.importorskip("transformers")
    example = runpy.run_path(str(EXAMPLES / "hugging_face.py"))
    example["main"](["--folder", str(tmp_path), "--steps", "20"])
    *_, last = capsys.readouterr().out.splitlines()
    assert float(last.rsplit(maxsplit=1)[1]) < 1e-5
    assert (tmp_path / "exported" / "model.safetensors").is_file()
    assert (tmp_path / "curve.png").stat().st_size > 10_000
