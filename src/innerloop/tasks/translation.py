"""Translation: pairs of sentences drawn from a corpus."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from innerloop.corpora import Corpus, CorpusError, Tokeniser
from innerloop.corpora.tokeniser import END, PAD, TO
from innerloop.sentences import SentencePairs
from innerloop.tasks.checks import require_at_least

Split = Literal["training", "validation"]


@dataclass(frozen=True)
class Translation:
    """Pairs of a corpus, each as likely as any other, drawn with replacement.

    A pair is the row  s_1 ... s_k TO t_1 ... t_m END;  all rows stand one after another in one
    tensor. Pairs of more than n tokens, END not counted, are left out.

    Attributes:
        starts: where each row begins, and where the last one ends.
        middles: the position of TO in each row.
        origin: the part of the corpus that a row comes from, by its number in `origins`.
        vocabulary: tokens are numbers below it.
        n: tokens of the longest row that a model reads.
        too_long: how many pairs were left out.
        tokeniser: from text to tokens, as JSON.
        corpus: what the corpus says of itself, as JSON.
    """

    tokens: Int[Tensor, " all"]
    starts: Int[Tensor, " pairs_and_1"]
    middles: Int[Tensor, " pairs"]
    origin: Int[Tensor, " pairs"]
    origins: tuple[str, ...]
    vocabulary: int
    n: int
    too_long: int = 0
    tokeniser: str = ""
    corpus: str = ""
    dtype: torch.dtype = torch.float32

    @classmethod
    def of(
        cls,
        corpus: Corpus,
        tokeniser: Tokeniser,
        n: int,
        *,
        split: Split = "training",
        dtype: torch.dtype = torch.float32,
    ) -> Translation:
        """The pairs of a corpus, cut into pieces by a tokeniser."""
        require_at_least("n", n, 3)
        pairs = getattr(corpus, split)
        sources = tokeniser.encode([pair.source for pair in pairs])
        targets = tokeniser.encode([pair.target for pair in pairs])
        origins = tuple(part.name for part in corpus.parts)
        rows, middles, origin = [], [], []
        for pair, source, target in zip(pairs, sources, targets, strict=True):
            if source and target and len(source) + 1 + len(target) <= n:
                rows.append([*source, TO, *target, END])
                middles.append(len(source))
                origin.append(origins.index(pair.origin))
        if not rows:
            raise CorpusError(
                f"n must be large enough for some pair of the corpus {corpus.name}, got {n}: all "
                f"{len(pairs)} have more tokens"
            )
        lengths = torch.tensor([0, *map(len, rows)])
        return cls(
            torch.tensor([token for row in rows for token in row]),
            lengths.cumsum(0),
            torch.tensor(middles),
            torch.tensor(origin),
            origins,
            tokeniser.size,
            n,
            len(pairs) - len(rows),
            tokeniser.text,
            json.dumps(corpus.manifest, ensure_ascii=False, indent=1),
            dtype,
        )

    @property
    def d(self) -> int:
        """The size of the vocabulary."""
        return self.vocabulary

    @property
    def files(self) -> dict[str, str]:
        """What a run keeps beside its weights, to be of use without the corpus."""
        return {"tokeniser.json": self.tokeniser, "corpus.json": self.corpus}

    def __len__(self) -> int:
        return len(self.middles)

    @property
    def lengths(self) -> Int[Tensor, " pairs"]:
        """Tokens of every row, END included."""
        return self.starts.diff()

    def sample(self, batch: int, *, generator: torch.Generator) -> SentencePairs:
        require_at_least("batch", batch, 1)
        device = self.tokens.device
        return self.pairs(torch.randint(len(self), (batch,), generator=generator, device=device))

    def pairs(self, rows: Int[Tensor, " batch"]) -> SentencePairs:
        """The rows of these numbers, filled up to the longest of them."""
        lengths = self.lengths[rows]
        place = torch.arange(int(lengths.max()), device=rows.device)
        inside = place < lengths[:, None]
        # Past its end a row would show the next one, and the last row nothing.
        index = (self.starts[rows][:, None] + place).clamp_max(len(self.tokens) - 1)
        tokens = torch.where(inside, self.tokens[index], PAD)
        return SentencePairs(tokens, self.middles[rows], lengths, self.vocabulary, self.dtype)

    def mismatched(self) -> tuple[Translation, list[int]]:
        """Every translation after the sentence of another pair, of about the same length, and the
        rows that they are of.

        What a translator says of these it says without knowing the sentence: it is a model of
        English. Rows that become too long are left out.
        """
        if len(self) < 2:
            raise ValueError(f"there must be another pair, got {len(self)} in all")
        order = self.middles.argsort(stable=True)
        neighbour = torch.arange(len(order), device=order.device) ^ 1  # two by two
        neighbour[-1] = min(int(neighbour[-1]), len(order) - 2)  # an odd one, beside the last two
        other = torch.empty_like(order)
        other[order] = order[neighbour]
        rows, middles, kept = [], [], []
        for row, source in enumerate(other.tolist()):
            before, own = (self.tokens[self.starts[i] : self.starts[i + 1]] for i in (source, row))
            joined = torch.cat([before[: self.middles[source]], own[self.middles[row] :]])
            if len(joined) - 1 <= self.n:
                rows.append(joined)
                middles.append(self.middles[source])
                kept.append(row)
        lengths = torch.tensor([0, *map(len, rows)], device=order.device)
        task = replace(
            self,
            tokens=torch.cat(rows),
            starts=lengths.cumsum(0),
            middles=torch.stack(middles),
            origin=self.origin[kept],
            too_long=self.too_long + len(self) - len(rows),
        )
        return task, kept

    def target_frequencies(self) -> Float[Tensor, " vocabulary"]:
        """How often each token is a target, as a share of all targets."""
        row = torch.repeat_interleave(self.lengths)
        place = torch.arange(len(self.tokens), device=row.device) - self.starts[row]
        targets = self.tokens[place > self.middles[row]]
        counts = torch.bincount(targets, minlength=self.vocabulary).double()
        return (counts / counts.sum()).to(self.dtype)

    def texts(self, rows: Sequence[int]) -> list[tuple[str, str]]:
        """The sentences and translations of these rows, in words."""
        tokeniser = Tokeniser(self.tokeniser)
        found = []
        for row in rows:
            tokens = self.tokens[self.starts[row] : self.starts[row + 1]].tolist()
            middle = int(self.middles[row])
            found.append((tokeniser.decode(tokens[:middle]), tokeniser.decode(tokens[middle:])))
        return found
