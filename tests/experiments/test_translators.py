"""Runs of translators: resumed exactly, opened without their corpus, refused on another one."""

import shutil
from dataclasses import replace

import pytest
import torch

from innerloop.corpora import Corpus, CorpusError, build_from_files
from innerloop.corpora.store import DATA, corpora_root
from innerloop.experiments import Experiment, Run, open_translator
from innerloop.models import translate
from innerloop.training import CheckpointError
from tests.samples import seeded

SMALL = Corpus.open("small")
SENTENCES = ["Der Hund schläft im Garten.", "Wo ist mein Buch?"]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Some of the pairs as a corpus of one's own, built by this function."""
    monkeypatch.setenv(DATA, str(tmp_path / "data"))

    def build(pairs=SMALL.training):
        file = tmp_path / "pairs.tsv"
        file.write_text("".join(f"{p.source}\t{p.target}\n" for p in pairs))
        return build_from_files("mine", [file])

    build()
    return build


def experiment(steps=4, model="loops=2,layers=1", objective="window:batch=4,loops=2,window=1"):
    task = "translation:corpus=mine,vocabulary=300,n=48"
    return Experiment(f"translator:width=8,heads=2,{model}", task, objective, steps=steps)


def test_a_translator_stopped_and_resumed_is_one_that_never_stopped(mine, tmp_path):
    class Stopped(Exception):
        pass

    def stop(step, loss):
        if step == 3:
            raise Stopped

    with pytest.raises(Stopped):
        experiment(10).run(tmp_path / "stopped", watch=stop)
    resumed = experiment(10).run(tmp_path / "stopped")
    whole = experiment(10).run(tmp_path / "whole")
    assert resumed.history == whole.history
    for a, b in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_run_translates_without_its_corpus(mine, tmp_path):
    run = experiment().run(tmp_path / "run")
    expected = translate(run.model, Corpus.open("mine").tokeniser(300), SENTENCES)
    shutil.rmtree(corpora_root())
    model, tokeniser = open_translator(tmp_path / "run")
    assert translate(model, tokeniser, SENTENCES) == expected
    assert translate(*open_translator(tmp_path / "run" / "checkpoint.safetensors"), SENTENCES)
    with pytest.raises(CorpusError, match=r"^there is no corpus 'mine' below"):
        Run.open(tmp_path / "run")


def test_a_run_is_not_resumed_or_opened_with_a_corpus_that_was_built_anew(mine, tmp_path):
    experiment().run(tmp_path / "run")
    assert Run.open(tmp_path / "run").step == 4
    mine(SMALL.training[20:])
    for use in (Run.open, experiment(8).run):
        with pytest.raises(CheckpointError, match="data that has been built anew since"):
            use(tmp_path / "run")
    assert open_translator(tmp_path / "run")
    mine()
    assert Run.open(tmp_path / "run").step == 4


def test_a_run_goes_on_with_the_same_pairs_whatever_else_is_said_of_them(mine, tmp_path):
    experiment().run(tmp_path / "run")
    corpus = Corpus.open("mine")
    (part,) = corpus.parts
    replace(corpus, parts=[replace(part, packages=["another 2.0"])]).save()
    assert Run.open(tmp_path / "run").step == 4
    assert experiment().run(tmp_path / "run").step == 4


def test_a_tokeniser_that_was_damaged_is_refused_and_written_anew_as_is_said(mine, tmp_path):
    experiment().run(tmp_path / "run")
    words = tmp_path / "run" / "tokeniser.json"
    whole = words.read_bytes()
    words.write_bytes(whole[:50] + b"\xff")
    with pytest.raises(CheckpointError, match="is no tokeniser any more; remove it, and the same"):
        open_translator(tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"tokeniser\.json is not what the task"):
        experiment().run(tmp_path / "run")
    words.unlink()
    experiment().run(tmp_path / "run")
    assert words.read_bytes() == whole


def test_only_a_run_of_translation_translates(tmp_path):
    Experiment("gd:layers=1", "linear:d=2,n=3", "exact", steps=1).run(tmp_path / "run")
    with pytest.raises(ValueError, match="trained on the task linear; only a run of the task tra"):
        open_translator(tmp_path / "run")


def test_a_run_that_lost_its_tokeniser_says_so(mine, tmp_path):
    experiment().run(tmp_path / "run")
    (tmp_path / "run" / "tokeniser.json").unlink()
    with pytest.raises(CheckpointError, match=r"there is no .*tokeniser\.json"):
        open_translator(tmp_path / "run")


@pytest.mark.parametrize(
    ("model", "layers"),
    [("layers=3", 3), ("layers=1,loops=4", 1), ("layers=1,loops=4,around=1", 3)],
)
def test_options_make_the_three_architectures(model, layers, mine):
    made, task, _ = experiment(model=model, objective="positions:batch=2").build()
    table, width = 300 * 8, 8
    block = 12 * width**2 + 13 * width  # weights, biases and two norms
    ends = 2 * (width**2 + width) + 48 * width
    norm = {1: 1, 3: 2}[layers] if "loops" in model else 1  # the loop's, and the last
    total = sum(p.numel() for p in made.parameters())
    assert total == table + ends + layers * block + norm * 2 * width
    assert made(task.sample(2, generator=seeded())).shape[1] == 300


def test_layers_around_nothing_are_refused(mine):
    with pytest.raises(ValueError, match="around says how many layers stand around a loop, got 1"):
        experiment(model="around=1").build()
