"""Translation: rows are what the tokeniser makes of a pair, and each pair is as likely."""

import json
from dataclasses import replace

import pytest
import torch

from innerloop.corpora import Corpus, CorpusError, Pair
from innerloop.corpora.store import Part
from innerloop.corpora.tokeniser import END, PAD, TO
from innerloop.tasks import Translation, moved
from tests.samples import assert_means, seeded

SMALL = Corpus.open("small")
TOKENISER = SMALL.tokeniser(400)
TASK = Translation.of(SMALL, TOKENISER, 48)


def test_a_row_is_a_sentence_the_mark_its_translation_and_the_end():
    rows = TASK.pairs(torch.tensor([3, 0]))
    for row, number in ((0, 3), (1, 0)):
        pair = SMALL.training[number]
        source, target = TOKENISER.encode([pair.source, pair.target])
        expected = [*source, TO, *target, END]
        length = int(rows.lengths[row])
        assert rows.tokens[row, :length].tolist() == expected
        assert set(rows.tokens[row, length:].tolist()) <= {PAD}
        assert rows.middle[row] == len(source)
    assert TASK.texts([3]) == [(SMALL.training[3].source, SMALL.training[3].target)]


def test_every_pair_is_as_likely_as_any_other():
    few = Translation.of(replace(SMALL, training=SMALL.training[:5]), TOKENISER, 48)
    sampled = few.sample(5000, generator=seeded())
    for row in range(5):
        alone = few.pairs(torch.tensor([row]))
        length = alone.tokens.shape[1]
        same = (sampled.tokens[:, :length] == alone.tokens).all(1) & (
            sampled.lengths == alone.lengths
        )
        assert_means(same.double(), 0.2)


def test_what_is_too_long_is_left_out_and_counted():
    short = Translation.of(SMALL, TOKENISER, 20)
    assert len(short) + short.too_long == len(SMALL.training)
    assert 0 < short.too_long < len(SMALL.training)
    assert short.lengths.max() - 1 <= 20
    with pytest.raises(CorpusError, match=r"n must be large enough for some pair.* got 3"):
        Translation.of(SMALL, TOKENISER, 3)


def test_frequencies_are_those_of_the_targets_of_all_pairs():
    every = TASK.pairs(torch.arange(len(TASK)))
    counts = torch.bincount(every.targets, minlength=TASK.d).double()
    torch.testing.assert_close(TASK.target_frequencies().double(), counts / counts.sum())


def test_held_out_pairs_are_a_split_of_their_own():
    held_out = Translation.of(SMALL, TOKENISER, 48, split="validation")
    assert len(held_out) + held_out.too_long == len(SMALL.validation)
    assert held_out.texts([0])[0][0] == SMALL.validation[0].source


def test_mismatched_rows_have_their_translation_after_another_sentence():
    other, kept = TASK.mismatched()
    assert [t for _, t in other.texts(range(len(other)))] == [t for _, t in TASK.texts(kept)]
    assert (other.middles - TASK.middles[kept]).abs().max() <= TASK.middles.sort()[0].diff().max()
    assert len(other) + other.too_long == len(SMALL.training)
    assert len(other) > 0.9 * len(TASK)
    assert (other.lengths - 1).max() <= TASK.n
    own = {reference: sentence for sentence, reference in TASK.texts(range(len(TASK)))}
    texts = other.texts(range(len(other)))
    assert {sentence for sentence, _ in texts} <= set(own.values())
    wrong = sum(own[reference] != sentence for sentence, reference in texts)
    assert wrong >= len(texts) - 3, "of references that two sentences share, one may be right"


def test_origins_go_with_their_pairs():
    two = [Pair("eins zwei", "one two", "b"), Pair("drei vier", "three four", "a")]
    corpus = Corpus("two", two, [], [Part("a", ""), Part("b", "")], {})
    task = Translation.of(corpus, TOKENISER, 48)
    assert [task.origins[i] for i in task.origin] == ["b", "a"]


def test_a_task_carries_its_tokeniser_and_what_the_corpus_says_of_itself():
    files = TASK.files
    assert json.loads(files["corpus.json"])["digest"] == SMALL.digest
    assert json.loads(files["tokeniser.json"]) == json.loads(TOKENISER.text)
    assert moved(TASK, "cpu", torch.float64).sample(2, generator=seeded()).dtype == torch.float64
