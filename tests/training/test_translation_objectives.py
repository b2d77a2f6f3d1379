"""Cross-entropy through the same objectives as regression, and a translator that learns."""

import pytest
import torch
from torch.nn import functional

from innerloop.algorithms import Unigram, Zero, answers
from innerloop.analysis import estimate_risk
from innerloop.corpora import Corpus
from innerloop.models import BlockShape, Decoder, Looped, Translator, translate
from innerloop.tasks import Translation
from innerloop.training import EveryPosition, LoopWindow, Prompts, train
from tests.samples import DOUBLE, seeded

CORPUS = Corpus.open("small")
TOKENISER = CORPUS.tokeniser(300)
TASK = Translation.of(CORPUS, TOKENISER, 48, dtype=DOUBLE)
SHAPE = BlockShape(width=8, heads=2)


def translator(dtype=DOUBLE, shape=SHAPE, **loops):
    how = {"length": 48, "generator": seeded(1), "dtype": dtype}
    width = shape.width
    if loops:
        body = Looped(width, width, shape, **loops, **how)
    else:
        body = Decoder(width, width, shape, layers=2, **how)
    return Translator(body, TASK.d, generator=seeded(2))


@pytest.mark.parametrize("objective", [Prompts, EveryPosition])
def test_the_loss_is_the_cross_entropy_over_target_tokens(objective):
    chosen = objective(TASK, 5)
    pairs, model = chosen.sample(seeded()), translator()
    expected = functional.cross_entropy(model(pairs), pairs.targets)
    torch.testing.assert_close(chosen.loss(model, pairs), expected)


@pytest.mark.parametrize("truncate", [True, False])
def test_the_window_averages_the_cross_entropy_of_its_loops(truncate):
    model = translator(loops=4, before=1, after=1)
    objective = LoopWindow(TASK, 5, loops=4, window=2, truncate=truncate)
    pairs = objective.sample(seeded())
    losses = [functional.cross_entropy(model(pairs, loops=t), pairs.targets) for t in (3, 4)]
    torch.testing.assert_close(objective.loss(model, pairs), torch.stack(losses).mean())


def test_a_window_needs_a_translator_with_a_loop():
    with pytest.raises(ValueError, match="a window of loops needs a looped model, got Decoder"):
        LoopWindow(TASK, 5, 4, 2).loss(translator(), TASK.sample(2, generator=seeded()))


def test_all_words_alike_have_the_logarithm_of_their_number_as_loss():
    pairs = TASK.sample(7, generator=seeded())
    loss = pairs.loss(answers(Zero(), pairs))
    torch.testing.assert_close(loss, torch.tensor(float(TASK.d), dtype=DOUBLE).log())


def test_the_unigram_with_the_tasks_own_frequencies_has_their_entropy_as_loss():
    frequencies = TASK.target_frequencies()
    pairs = TASK.pairs(torch.arange(len(TASK)))
    learner = Unigram(frequencies.clamp_min(1e-30).log())
    present = frequencies[frequencies > 0]
    torch.testing.assert_close(
        pairs.loss(answers(learner, pairs)), -(present * present.log()).sum()
    )


def test_an_answer_of_the_wrong_shape_is_refused():
    pairs = TASK.sample(2, generator=seeded())
    with pytest.raises(ValueError, match=r"must return predictions of the shape \[\d+, 300\]"):
        answers(lambda pairs: torch.zeros(2, 300), pairs)


def test_a_small_translator_learns_sentences_by_heart_and_says_them():
    few = Corpus("few", CORPUS.training[:12], [], CORPUS.parts, {})
    task = Translation.of(few, TOKENISER, 48)
    shape = BlockShape(width=32, heads=4)
    model = translator(torch.float32, shape=shape)
    before = estimate_risk(model, task, samples=40, generator=seeded()).mean
    train(
        model,
        EveryPosition(task, 12),
        torch.optim.Adam(model.parameters(), lr=0.01),
        steps=120,
        generator=seeded(),
        clip=1.0,
    )
    after = estimate_risk(model, task, samples=40, generator=seeded()).mean
    assert before > 4
    assert after < 0.1
    texts = task.texts(range(len(task)))
    said = translate(model, TOKENISER, [sentence for sentence, _ in texts])
    assert said == [reference for _, reference in texts]
