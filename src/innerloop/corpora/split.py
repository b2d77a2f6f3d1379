"""Which pairs are held out: some that no training pair nearly repeats."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence

from innerloop.corpora.cleaning import words
from innerloop.corpora.pairs import Pair

MOST_SHARED = 0.5
"""The share of a held-out sentence's trigrams that one training sentence may have, exclusive."""


def trigrams(text: str) -> set[tuple[str, ...]]:
    """Of its words; of a shorter sentence, all of them at once."""
    found = words(text)
    return {tuple(found[i : i + 3]) for i in range(max(1, len(found) - 2))}


class TrigramIndex:
    """Sentences by their trigrams."""

    def __init__(self, sentences: Sequence[str]) -> None:
        self.rows: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for row, sentence in enumerate(sentences):
            for trigram in trigrams(sentence):
                self.rows[trigram].append(row)

    def shares(self, sentence: str) -> dict[int, float]:
        """The share of the sentence's trigrams that each row has, of rows that have any."""
        own = trigrams(sentence)
        shared = Counter(row for trigram in own for row in self.rows.get(trigram, ()))
        return {row: count / len(own) for row, count in shared.items()}

    def largest_share(self, sentence: str, *, but: int | None = None) -> float:
        """The largest share of the sentence's trigrams that a single row has; `but` not counted."""
        shares = self.shares(sentence)
        return max((share for row, share in shares.items() if row != but), default=0.0)


def split(pairs: Sequence[Pair], held_out: int, *, seed: int = 0) -> tuple[list[Pair], list[Pair]]:
    """Training pairs, and about `held_out` others that none of them nearly repeats.

    A pair is held out if, on each of its sides, every other sentence of the corpus has less than
    half of its trigrams. Every origin gives its share, at least one; the pairs stay in order.
    """
    sides = [TrigramIndex([pair[side] for pair in pairs]) for side in (0, 1)]
    by_origin: defaultdict[str, list[int]] = defaultdict(list)
    for row, pair in enumerate(pairs):
        by_origin[pair.origin].append(row)
    chosen: set[int] = set()
    draw = random.Random(seed)
    for _, rows in sorted(by_origin.items()):
        wanted = max(1, round(held_out * len(rows) / len(pairs)))
        found = 0
        for row in draw.sample(rows, len(rows)):
            if found == wanted:
                break
            shares = (side.largest_share(pairs[row][i], but=row) for i, side in enumerate(sides))
            if max(shares) < MOST_SHARED:
                chosen.add(row)
                found += 1
    training = [pair for row, pair in enumerate(pairs) if row not in chosen]
    return training, [pairs[row] for row in sorted(chosen)]


def apart(pairs: Sequence[Pair], held_out: Sequence[Pair]) -> list[Pair]:
    """The pairs that nearly repeat none of those held out, on neither side."""
    near: set[int] = set()
    for side in (0, 1):
        index = TrigramIndex([pair[side] for pair in pairs])
        for pair in held_out:
            shares = index.shares(pair[side]).items()
            near |= {row for row, share in shares if share >= MOST_SHARED}
    return [pair for row, pair in enumerate(pairs) if row not in near]
