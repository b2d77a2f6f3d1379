"""Translators: filling, the future, loops, and the words that they find most likely."""

import itertools
import math

import pytest
import torch
from torch import nn

from innerloop.corpora.tokeniser import END, PAD, TO
from innerloop.models import BlockShape, Decoder, Looped, Translator, decode, translate, vocabulary
from innerloop.sentences import SentencePairs
from tests.samples import DOUBLE, seeded

V, LENGTH = 12, 24
SHAPE = BlockShape(width=8, heads=2)


def translator(kind="standard", vocabulary=V, length=LENGTH):
    how = {"length": length, "generator": seeded(3), "dtype": DOUBLE}
    loops = {"loops": 3, **how}
    body = {
        "standard": lambda: Decoder(8, 8, SHAPE, layers=2, **how),
        "looped": lambda: Looped(8, 8, SHAPE, **loops),
        "algoformer": lambda: Looped(8, 8, SHAPE, before=1, after=1, **loops),
    }[kind]()
    return Translator(body, vocabulary, generator=seeded(4)).eval()


def random_pairs(count=40, seed=0):
    """Rows of many lengths: more than are computed together."""
    g = seeded(seed)
    rows, middle = [], []
    for _ in range(count):
        source, target = (
            torch.randint(3, V, (int(k),), generator=g).tolist()
            for k in torch.randint(1, 9, (2,), generator=g)
        )
        rows.append([*source, TO, *target, END])
        middle.append(len(source))
    return filled(rows, middle)


def filled(rows, middle, filling=PAD):
    longest = max(map(len, rows))
    tokens = torch.tensor([row + [filling] * (longest - len(row)) for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    return SentencePairs(tokens, torch.tensor(middle), lengths, V, DOUBLE)


def some(pairs, rows):
    return SentencePairs(
        pairs.tokens[rows], pairs.middle[rows], pairs.lengths[rows], V, pairs.dtype
    )


def of_row(pairs, answers, row):
    return answers[pairs.asked.nonzero()[:, 0] == row]


every_kind = pytest.mark.parametrize("kind", ["standard", "looped", "algoformer"])


@every_kind
def test_a_filled_batch_is_its_rows_without_filling(kind):
    model, pairs = translator(kind), random_pairs()
    together = model(pairs)
    assert together.shape == (len(pairs.targets), V)
    for row in range(len(pairs)):
        length = int(pairs.lengths[row])
        alone = SentencePairs(
            pairs.tokens[row : row + 1, :length],
            pairs.middle[row : row + 1],
            pairs.lengths[row : row + 1],
            V,
            DOUBLE,
        )
        torch.testing.assert_close(model(alone), of_row(pairs, together, row), rtol=0, atol=1e-12)


@every_kind
def test_what_the_filling_is_does_not_matter(kind):
    pairs = random_pairs()
    position = torch.arange(pairs.tokens.shape[1])
    other = torch.where(position < pairs.lengths[:, None], pairs.tokens, V - 1)
    changed = SentencePairs(other, pairs.middle, pairs.lengths, V, DOUBLE)
    torch.testing.assert_close(translator(kind)(changed), translator(kind)(pairs))


@every_kind
def test_no_token_of_the_future_is_read(kind):
    model = translator(kind)
    row = [5, 6, 7, TO, 8, 9, 10, 11, END]
    before = model(filled([row], [3]))
    for place in range(4, 8):
        changed = list(row)
        changed[place] = 3 + (row[place] - 2) % (V - 3)
        after = model(filled([changed], [3]))
        # Targets are said at positions 3, 4, ...; that at `place` is the first that sees it.
        seen = place - 3
        torch.testing.assert_close(after[:seen], before[:seen], rtol=0, atol=1e-13)
        assert (after[seen:] - before[seen:]).abs().amax(1).min() > 1e-6


@every_kind
def test_the_sentence_is_read(kind):
    model, row = translator(kind), [5, 6, 7, TO, 8, END]
    other = [9, 6, 7, TO, 8, END]
    difference = model(filled([row], [3])) - model(filled([other], [3]))
    assert difference.abs().max() > 1e-6


def test_logits_are_those_of_the_model_inside_with_the_table_at_both_ends():
    model, pairs = translator(), random_pairs(1)
    table = model.table.weight
    vectors = model.model(model.embedded(pairs))[0]
    first = model.embedded(pairs).tokens[0, 0]
    torch.testing.assert_close(first, 8**0.5 * table[pairs.tokens[0, 0]])
    torch.testing.assert_close(model(pairs), (vectors @ table.mT)[pairs.asked[0, :-1]])


@pytest.mark.parametrize("kind", ["looped", "algoformer"])
def test_logits_after_several_loops_are_those_of_each_number_of_loops(kind):
    model, pairs = translator(kind), random_pairs()
    together = model.after_loops(pairs, [1, 3, 5])
    for answers, loops in zip(together, (1, 3, 5), strict=True):
        torch.testing.assert_close(answers, model(pairs, loops=loops))
    torch.testing.assert_close(together[1], model(pairs))
    with pytest.raises(ValueError, match="only a looped model can be looped, got Decoder"):
        translator().after_loops(pairs, [1])


@pytest.mark.parametrize(
    ("kind", "counts"), [("standard", None), ("looped", [1]), ("algoformer", [2, 3])]
)
@pytest.mark.parametrize("part", [7, 10_000])
def test_the_loss_is_that_of_the_logits_and_so_is_its_gradient(kind, counts, part, monkeypatch):
    monkeypatch.setattr(vocabulary, "PART", part)
    model, pairs = translator(kind), random_pairs()
    logits = model(pairs) if counts is None else model.after_loops(pairs, counts)
    whole, in_parts = pairs.loss(logits), model.loss(pairs, counts)
    torch.testing.assert_close(in_parts, whole, rtol=1e-12, atol=0)
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = [
        torch.autograd.grad(3 * loss, parameters, allow_unused=True) for loss in (whole, in_parts)
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-9, atol=1e-12)


def test_the_loss_is_differentiated_by_torch_func_as_well():
    model, pairs = translator(), random_pairs()
    parameters = dict(model.named_parameters())
    by_func = torch.func.grad(
        lambda weights: torch.func.functional_call(LossOf(model), weights, (pairs,))
    )({f"model.{name}": value for name, value in parameters.items()})
    table = parameters["table.weight"]
    (plain,) = torch.autograd.grad(model.loss(pairs), table)
    torch.testing.assert_close(by_func["model.table.weight"], plain, rtol=1e-12, atol=0)


class LossOf(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, pairs):
        return self.model.loss(pairs)


def test_a_word_that_is_next_to_impossible_costs_what_it_should():
    said, table = torch.tensor([[200.0, 0.0]]), torch.eye(2)
    assert vocabulary.mean_nats(said, table, torch.tensor([1])).item() == 200.0
    assert vocabulary.mean_nats(said, table, torch.tensor([0])).item() == 0.0


def test_what_cannot_translate_is_refused():
    how = {"generator": seeded(), "length": 4, "layers": 1}
    with pytest.raises(ValueError, match="reads 3 and says 8 numbers"):
        Translator(Decoder(3, 8, SHAPE, **how), V, generator=seeded())
    with pytest.raises(ValueError, match="must be causal"):
        Translator(Decoder(8, 8, SHAPE, causal=False, **how), V, generator=seeded())
    with pytest.raises(ValueError, match="knows 11 tokens, got sentences with 12"):
        translator(vocabulary=11)(random_pairs(1))


def log_probability(model, source, said):
    """Of a translation that ends, by the loss of the pair."""
    row = [*source, TO, *said, END]
    pairs = filled([row], [len(source)])
    logits = model(pairs)
    logits[:, [PAD, TO]] = float("-inf")
    return logits.log_softmax(-1)[range(len(said) + 1), pairs.targets].sum().item()


def sharpened(vocabulary=6, seed=0):
    """A translator whose next words are neither sure nor alike."""
    model = translator(vocabulary=vocabulary)
    nn.init.normal_(model.table.weight, std=1.2, generator=seeded(seed))
    return model


@pytest.mark.parametrize("seed", range(4))
def test_greedy_always_takes_the_most_likely_word(seed):
    model, source = sharpened(seed=seed), [3, 4, 5]
    said = decode(model, source)
    most = min(2 * 3 + 10, LENGTH - 3)
    for k in range(min(len(said) + 1, most)):
        logits = model.next_logits(torch.tensor([[*source, TO, *said[:k]]]))[0]
        logits[[PAD, TO]] = float("-inf")
        assert logits.argmax() == (said[k] if k < len(said) else END)


@pytest.mark.parametrize("seed", range(6))
def test_enough_beams_find_the_best_of_all_translations(seed):
    vocabulary, source = 6, [3, 4]
    model = translator(vocabulary=vocabulary, length=len(source) + 3)  # at most three words
    nn.init.normal_(model.table.weight, std=1.2, generator=seeded(seed))
    words = range(3, vocabulary)

    def score(said):
        logits = log_probability_of_beginning(model, source, said)
        return logits / ((5 + len(said)) / 6) ** 0.6

    ended = [(*said, END) for k in range(3) for said in itertools.product(words, repeat=k)]
    *expected, _ = max(ended, key=score)
    assert decode(model, source, beams=200) == expected


def three_or_fours_for_ever(rows):
    """The logits of a model that says 3 and ends, or, not quite as likely at first, repeats 4."""
    logits = torch.full((len(rows), 6), -20.0)
    for row, last in zip(logits, rows[:, -1].tolist(), strict=True):
        row[{3: END, 4: 4}.get(last, 3)] = 0.0
        if last not in (3, 4):
            row[4] = -0.2
    return logits


@pytest.mark.parametrize("beams", [1, 2, 4])
def test_a_translation_that_ends_is_taken_before_a_repetition_that_does_not(beams, monkeypatch):
    model = translator(vocabulary=6)
    monkeypatch.setattr(model, "next_logits", three_or_fours_for_ever)
    assert decode(model, [5, 5, 5], beams=beams) == [3]


def log_probability_of_beginning(model, source, said):
    total = 0.0
    for k, token in enumerate(said):
        logits = model.next_logits(torch.tensor([[*source, TO, *said[:k]]]))[0]
        logits[[PAD, TO]] = float("-inf")
        total += logits.log_softmax(-1)[token].item()
    return total


def test_what_follows_is_said_alike_in_training_and_in_translation():
    model, source, said = sharpened(V), [3, 4, 5], [7, 8]
    both = log_probability_of_beginning(model, source, [*said, END])
    assert both == pytest.approx(log_probability(model, source, said), rel=1e-12)
    assert math.isfinite(both)


def test_a_sentence_without_room_for_its_translation_is_refused():
    with pytest.raises(ValueError, match="leave room for its translation within 24 of them, got"):
        decode(translator(), [3] * LENGTH)
    with pytest.raises(ValueError, match="at least one token"):
        decode(translator(), [])
    with pytest.raises(ValueError, match="beams must be at least 1, got 0"):
        decode(translator(), [3], beams=0)
    assert len(decode(translator(), [3] * (LENGTH - 1))) <= 1


def test_translating_leaves_dropout_out():
    from innerloop.corpora import Corpus

    tokeniser = Corpus.open("small").tokeniser(300)
    shape = BlockShape(width=8, heads=2, dropout=0.5)
    body = Decoder(8, 8, shape, layers=1, length=40, generator=seeded())
    model = Translator(body, tokeniser.size, generator=seeded()).train()
    sentences = ["Der Hund schläft.", "Wo ist er?"]
    assert translate(model, tokeniser, sentences) == translate(model, tokeniser, sentences)
