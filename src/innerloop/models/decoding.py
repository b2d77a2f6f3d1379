"""Translating: the words that a translator finds most likely, one after another.

Nothing of a reference is read: a sentence goes in, words come out until the end is said.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from innerloop.corpora.tokeniser import END, PAD, TO, Tokeniser
from innerloop.models.blocks import Positions
from innerloop.models.translator import Translator

LENGTH_PENALTY = 0.6
"""The alpha of Wu et al. (2016), Eq. 14: without it short translations win."""


@torch.no_grad()
def decode(model: Translator, source: Sequence[int], *, beams: int = 1) -> list[int]:
    """The translation of a row of tokens, without its end.

    One beam is greedy: always the most likely token. With more, so many beginnings are kept, and
    of those that end the best is taken by log p / ((5 + length) / 6)^0.6. Nothing is said beyond
    the model's positions, or beyond twice the sentence and ten more: if no beginning ends by then,
    the best of them is taken as it is.
    """
    if beams < 1:
        raise ValueError(f"beams must be at least 1, got {beams}")
    room = _room(model, source)
    device = model.table.weight.device
    alive: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[tuple[float, list[int]]] = []
    for _ in range(room):
        rows = torch.tensor([[*source, TO, *said] for _, said in alive], device=device)
        logits = model.next_logits(rows)
        logits[:, [PAD, TO]] = float("-inf")  # no words
        totals = logits.log_softmax(-1) + torch.tensor([[s] for s, _ in alive], device=device)
        ranked = totals.flatten().topk(min(2 * beams, totals.numel()))
        begun = alive
        alive = []
        for rank, (total, place) in enumerate(zip(*map(list, ranked), strict=True)):
            row, token = divmod(int(place), totals.shape[1])
            said = [*begun[row][1], token]
            if token != END:
                alive.append((float(total), said))
            elif rank < beams:
                ended.append((_normalised(float(total), said), said[:-1]))
        alive = alive[:beams]
        if len(ended) >= beams:
            break
    if not ended:
        ended = [(_normalised(total, said), said) for total, said in alive]
    return max(ended, key=lambda one: one[0])[1]


def translate(
    model: Translator, tokeniser: Tokeniser, sentences: Sequence[str], *, beams: int = 1
) -> list[str]:
    """The translation of every sentence, in words; spaces count once, as in a corpus."""
    tidied = [" ".join(sentence.split()) for sentence in sentences]
    for number, sentence in enumerate(tidied, start=1):
        if not sentence:
            raise ValueError(f"sentence {number} is blank; there is nothing to translate in it")
    model.eval()
    sources = tokeniser.encode(tidied)
    for number, source in enumerate(sources, start=1):
        _room(model, source, f"sentence {number}")  # before the first of them takes its time
    return [tokeniser.decode(decode(model, source, beams=beams)) for source in sources]


def _room(model: Translator, source: Sequence[int], name: str = "a sentence") -> int:
    """How many tokens a translation of this sentence may have."""
    most = 2 * len(source) + 10
    positions = model.model.positions
    if isinstance(positions, Positions):
        most = min(most, len(positions.table) - len(source))
    if not source or most < 1:
        known = len(positions.table) if isinstance(positions, Positions) else "any"
        raise ValueError(
            f"{name} must have at least one token and leave room for its translation within "
            f"{known} of them, got {len(source)}"
        )
    return most


def _normalised(total: float, said: Sequence[int]) -> float:
    return total / ((5 + len(said)) / 6) ** LENGTH_PENALTY
