"""`innerloop data`, `train translator` and `translate`, as a user types them."""

import io
import re
import shlex
import sys

import pytest

from innerloop.analysis import cross_entropies
from innerloop.cli import main
from innerloop.corpora import Corpus
from innerloop.corpora.store import DATA
from innerloop.experiments import TASKS, Experiment, Run, Spec
from innerloop.tasks import Translation

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


def next_commands(said):
    """The commands that a user is told to go on with, as words."""
    return [shlex.split(line)[1:] for line in re.findall(r"next: (.*?)(?= next: |$)", said)]


def test_from_files_to_a_translation_by_the_commands_that_are_printed(command, files):
    code, said = command("data", "translation", *files)
    assert code == 0
    assert "mine," in said
    assert "held out" in said
    ((*words,),) = next_commands(said)
    assert words[:2] == ["train", "translator"]
    small = {
        "translator": "translator:layers=1,width=16,heads=2",
        "translation:corpus=mine": "translation:corpus=mine,vocabulary=300,n=48",
    }
    words = [small.get(word, word) for word in words]
    code, said = command(*words, "--steps", "3", "--run", "a run")
    assert (code, "loss" in said) == (0, True)
    evaluating, translating = next_commands(said)
    code, said = command(*evaluating, "--translated", "2")
    assert code == 0
    assert "split=validation" in said
    assert "unigram" in said
    code, said = command(*translating, "Wo ist er?", "--beams", "2")
    assert (code, bool(said)) == (0, True)


@pytest.fixture
def run(command):
    """A looped translator of the pairs that ship, by its folder."""
    Experiment(
        "translator:layers=1,loops=3,width=16,heads=2",
        "translation:vocabulary=300,n=48",
        "window:batch=4,loops=3,window=2",
        steps=2,
    ).run("run")
    return "run"


def test_evaluate_prints_the_cross_entropy_for_a_token_of_held_out_pairs(command, run):
    code, said = command("evaluate", run, "--translated", "3")
    assert code == 0
    opened = Run.open(run)
    held_out = Spec.parse("task", "translation:vocabulary=300,n=48,split=validation", TASKS)
    pairs = held_out.build(TASKS)
    loss = cross_entropies(opened.model, pairs)["all"]
    assert f"{len(pairs)} of {len(pairs)} pairs" in said
    assert f"the model {loss} " in said
    assert "averaged over the tokens of the translations" in said
    for name in ("BLEU", "chrF"):
        assert re.search(rf"{name} [\d.]+ of 3 greedy translations, nrefs:1\S*version:", said)
    code, looped = command("evaluate", run, "--loops", "4")
    assert code == 0
    assert f"3 (trained) {loss} " in looped, "the same loss, wherever it is printed"
    code, said = command("evaluate", run, "--samples", "7", "--translated", "0")
    assert code == 0
    assert f"7 of {len(pairs)} pairs" in said
    assert "BLEU" not in said


def test_pairs_of_another_corpus_are_read_in_the_tokens_of_the_run(command, run, files):
    """The other corpus alone would have other words under the same numbers."""
    assert command("data", "translation", *files)[0] == 0
    words = ("--task", "translation:corpus=mine,split=training", "--translated", "0")
    code, said = command("evaluate", run, *words)
    assert code == 0
    tokens, other = Corpus.open("small").tokeniser(300), Corpus.open("mine")
    assert other.tokeniser(300) != tokens
    loss = cross_entropies(Run.open(run).model, Translation.of(other, tokens, 48))["all"]
    assert f"the model {loss} " in said


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        ("translation:n=49", "n must be at most 48, the tokens that the translator was"),
        ("translation:vocabulary=301", "vocabulary must be 300, as the translator was trained"),
        ("linear", "the model reads pairs of sentences, and LinearRegression samples prompts"),
    ],
)
def test_a_task_that_the_translator_cannot_read_is_refused(task, sentence, command, run):
    code, said = command("evaluate", run, "--task", task)
    assert code == 2
    assert sentence in said


def piped(data):
    return io.TextIOWrapper(io.BytesIO(data))


def test_sentences_are_lines_of_the_input_and_none_may_be_blank(command, run, monkeypatch):
    sentences = ["Der Hund schläft.", "Wo ist er?"]
    expected = command("translate", run, *sentences)
    monkeypatch.setattr(sys, "stdin", piped(" Der  Hund\tschläft. \nWo\u2028ist er?\n".encode()))
    assert command("translate", run) == expected
    for given, sentence in (
        (b"", "or as lines of its input, got none"),
        (b"Ja.\n  \n", "sentence 2 is blank; there is nothing to translate in it"),
        (b"Ja.\nschl\xe4ft\n", "the standard input must be UTF-8, and line 2 is not"),
        (b"Ja.\n" + b"Ja " * 500, "sentence 2 must have at least one token and leave room"),
    ):
        monkeypatch.setattr(sys, "stdin", piped(given))
        code, said = command("translate", run)
        assert (code, sentence in said) == (2, True)
    code, said = command("translate", run, b"schl\xe4ft".decode(errors="surrogateescape"))
    assert (code, "sentence 1 must be UTF-8, got" in said) == (2, True)
    assert command("translate", run, "   ") == (
        2,
        "innerloop: sentence 1 is blank; there is nothing to translate in it",
    )


@pytest.mark.parametrize(
    ("missing", "words", "sentence"),
    [
        ("tokenizers", ("translate", "Ja."), "translation needs the tokenizers of Hugging Face"),
        ("sacrebleu.metrics.bleu", ("evaluate",), "BLEU and chrF need sacrebleu"),
    ],
)
def test_a_library_that_is_not_there_is_a_sentence(
    missing, words, sentence, command, run, monkeypatch
):
    monkeypatch.setitem(sys.modules, missing, None)
    code, said = command(words[0], run, *words[1:])
    assert code == 2
    assert f"{sentence}: pip install 'innerloop[translation]'" in said


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
        (("--name", "small", "--rebuild"), "small ships with innerloop, and is not built"),
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
