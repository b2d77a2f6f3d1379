"""`innerloop data`, `train translator` and `translate`, as a user types them."""

import pytest

from innerloop.cli import main
from innerloop.corpora import Corpus
from innerloop.corpora.store import DATA

PAIRS = Corpus.open("small").training


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs a command in a folder of its own, and returns its exit code and what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv(DATA, str(tmp_path / "data"))

    def run(*words):
        code = main(list(words))
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return code, " ".join((said.out + said.err).split())

    return run


def written(folder, name, lines):
    (folder / name).write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def files(tmp_path):
    written(tmp_path, "train.de", [p.source for p in PAIRS])
    written(tmp_path, "train.en", [p.target for p in PAIRS])
    return ("--files", "train.de", "train.en", "--name", "mine")


def test_from_files_to_a_translation(command, files):
    code, said = command("data", "translation", *files)
    assert code == 0
    assert "mine," in said
    assert "held out" in said
    task = "translation:corpus=mine,vocabulary=300,n=48"
    words = ("translator:layers=1,width=16,heads=2", "--task", task, "--run", "run")
    code, said = command("train", *words, "--objective", "positions:batch=8", "--steps", "3")
    assert (code, "loss" in said) == (0, True)
    code, said = command("translate", "run", "Der Hund schläft.", "Wo ist er?", "--beams", "2")
    assert code == 0
    code, said = command("evaluate", "run", "--samples", "20", "--task", f"{task},split=validation")
    assert code == 0
    assert "unigram" in said


def test_a_corpus_that_is_there_is_shown_and_not_built_again(command, files, tmp_path):
    assert command("data", "translation", *files)[0] == 0
    for name in ("train.de", "train.en"):
        (tmp_path / name).unlink()
    code, said = command("data", "translation", "--name", "mine")
    assert code == 0
    assert "cleaning" not in said
    assert "left out, there already: " in said or "mine," in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--files", "no.de", "no.en", "--name", "x"), "there is no file no.de"),
        (("--files", "a.de"), "--files needs a --name"),
        (("--validation", "a.de"), "--validation goes with --files"),
        (("--name", "other"), "there is no corpus 'other' to show or rebuild"),
    ],
)
def test_what_cannot_be_built_is_said(words, sentence, command):
    code, said = command("data", "translation", *words)
    assert code == 2
    assert sentence in said


def test_files_of_unequal_length_leave_the_corpus_that_was_there(command, files, tmp_path):
    assert command("data", "translation", *files)[0] == 0
    written(tmp_path, "train.en", [p.target for p in PAIRS[:-1]])
    code, said = command("data", "translation", *files)
    assert code == 2
    assert f"train.de has {len(PAIRS)} lines and train.en has {len(PAIRS) - 1}" in said
    assert command("data", "translation", "--name", "mine")[0] == 0


def test_translate_refuses_what_is_no_run(command):
    code, said = command("translate", "nowhere", "Ja.")
    assert code == 2
    assert "there is no checkpoint at nowhere" in said
