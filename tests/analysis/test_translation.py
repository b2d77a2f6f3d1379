"""The loss on held-out pairs by source, entropies, BLEU and chrF."""

import pytest
import torch

from innerloop.algorithms import Unigram, Zero
from innerloop.analysis import (
    cross_entropies,
    learning_curve,
    loop_curve,
    loop_spectral_radius,
    target_entropy,
    translation_scores,
)
from innerloop.corpora import Corpus, Pair
from innerloop.corpora.store import Part
from innerloop.models import BlockShape, Looped, Translator
from innerloop.tasks import Translation
from tests.samples import DOUBLE, seeded

SMALL = Corpus.open("small")
PAIRS = [Pair(p.source, p.target, "ab"[i % 3 == 0]) for i, p in enumerate(SMALL.training)]
CORPUS = Corpus("two", PAIRS, [], [Part("a", ""), Part("b", "")], {})
TASK = Translation.of(CORPUS, SMALL.tokeniser(300), 48, dtype=DOUBLE)


def looped():
    body = Looped(8, 8, BlockShape(8, 2), loops=3, length=48, generator=seeded(), dtype=DOUBLE)
    return Translator(body, TASK.d, generator=seeded()).eval()


def test_cross_entropies_are_nats_over_targets_of_all_and_of_each_origin():
    model, everything = looped(), TASK.pairs(torch.arange(len(TASK)))
    with torch.no_grad():
        exact = everything.loss(model(everything)).item()
        nats = everything.total_nats(model(everything))
    found = cross_entropies(model, TASK, chunk=7)
    assert found["all"].mean == pytest.approx(exact, rel=1e-10)
    targets = (everything.lengths - everything.middle - 1).double()
    for number, name in enumerate("ab"):
        own = TASK.origin == number
        ratio = (nats[own].sum() / targets[own].sum()).item()
        assert found[name].mean == pytest.approx(ratio, rel=1e-10)
    assert found["a"].samples + found["b"].samples == found["all"].samples == len(TASK)


def test_the_error_of_a_cross_entropy_is_what_drawing_other_pairs_gives():
    learner = Unigram(TASK.target_frequencies().clamp_min(1e-9).log())
    everything = TASK.pairs(torch.arange(len(TASK)))
    nats = everything.total_nats(learner(everything))
    targets = (everything.lengths - everything.middle - 1).double()
    drawn = torch.randint(len(TASK), (4000, len(TASK)), generator=seeded())  # the bootstrap
    ratios = nats[drawn].sum(1) / targets[drawn].sum(1)
    error = cross_entropies(learner, TASK)["all"].standard_error
    # The standard deviation of 4000 draws is known to about one part in 90.
    assert error == pytest.approx(ratios.std().item(), rel=0.06)


def test_the_entropy_of_targets_is_the_least_loss_without_context():
    frequencies = TASK.target_frequencies()
    best = cross_entropies(Unigram(frequencies.clamp_min(1e-30).log()), TASK)["all"].mean
    assert target_entropy(TASK) == pytest.approx(best, rel=1e-9)
    other = frequencies + 1 / TASK.d
    worse = cross_entropies(Unigram((other / other.sum()).log()), TASK)["all"].mean
    assert best < worse < cross_entropies(Zero(), TASK)["all"].mean


def test_loops_of_a_translator_are_measured_like_any_others():
    model = looped()
    curve = loop_curve(model, TASK, loops=4, samples=20, generator=seeded())
    pairs = TASK.sample(20, generator=seeded())
    with torch.no_grad():
        third = pairs.errors(model(pairs, loops=3)).mean().item()
    assert curve[2].mean.mean == pytest.approx(third, rel=1e-10)
    radius = loop_spectral_radius(model, TASK.sample(2, generator=seeded()))
    assert radius.shape == (2,)
    assert (radius > 0).all()


def test_sentences_have_no_learning_curve():
    with pytest.raises(ValueError, match="SentencePairs have no learning curve"):
        learning_curve(Zero(), TASK, samples=4, generator=seeded())


def test_scores_are_full_for_the_reference_itself_and_carry_their_signatures():
    references = [pair.target for pair in SMALL.training[:20]]
    bleu, chrf = translation_scores(references, references)
    assert (bleu.name, chrf.name) == ("BLEU", "chrF")
    assert bleu.value == pytest.approx(100)
    assert chrf.value == pytest.approx(100)
    assert "version:" in bleu.signature
    assert "version:" in chrf.signature
    shuffled = references[1:] + references[:1]
    assert all(score.value < 30 for score in translation_scores(shuffled, references))
    with pytest.raises(ValueError, match="got 1 translations and 2 references"):
        translation_scores(["a"], ["a", "b"])
