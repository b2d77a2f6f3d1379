"""A model of sequences as a translator: words in by a table, and out by the same table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from innerloop.models.decoder import SequenceModel
from innerloop.models.looped import Looped
from innerloop.models.vocabulary import mean_nats
from innerloop.sentences import SentencePairs
from innerloop.sequence import TokenSequence

ALIKE = 16
"""Rows of about the same length that are computed together: less filling, the same answers."""


class Translator(nn.Module):
    """Reads a sentence and the translation so far, and says how likely each next word is.

        logits = E m(sqrt(width) E[tokens]),     E [vocabulary, width] ~ N(0, 1 / width)

    The model m is any model of sequences whose tokens and outputs are vectors of one width. The
    table is used in both directions and the tokens are scaled up, as in Vaswani et al. (2017),
    section 3.4. Rows are filled up on their right: a causal model never sees the filling.
    """

    def __init__(
        self, model: SequenceModel, vocabulary: int, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        inputs, outputs = model.read_in.in_features, model.read_out.out_features
        if inputs != outputs:
            raise ValueError(
                "the model must read and say vectors of one width, got one that reads "
                f"{inputs} and says {outputs} numbers"
            )
        if not model.causal:
            raise ValueError("the model must be causal, or it would read what it is to say")
        if vocabulary < 1:
            raise ValueError(f"vocabulary must be at least 1, got {vocabulary}")
        self.model = model
        dtype = model.read_in.weight.dtype
        self.table = nn.utils.skip_init(nn.Embedding, vocabulary, inputs, dtype=dtype)
        nn.init.normal_(self.table.weight, std=inputs**-0.5, generator=generator)

    def forward(
        self, pairs: SentencePairs, loops: int | None = None
    ) -> Float[Tensor, "targets vocabulary"]:
        """The logits of every target; of a looped model after `loops` loops, if given."""
        if loops is not None:
            return self.after_loops(pairs, [loops])[0]
        return functional.linear(self._said(pairs, self.model), self.table.weight)

    def after_loops(
        self, pairs: SentencePairs, counts: Sequence[int]
    ) -> Float[Tensor, "counts targets vocabulary"]:
        """The logits of a looped model after each of these numbers of loops, in one run."""
        return functional.linear(self._said_after_loops(pairs, counts), self.table.weight)

    def loss(
        self,
        pairs: SentencePairs,
        counts: Sequence[int] | None = None,
        *,
        without_gradient: int = 0,
    ) -> Float[Tensor, ""]:
        """The cross-entropy averaged over all targets, as `pairs.loss` of the logits, without them.

        Args:
            counts: of a looped model, the numbers of loops to average over.
            without_gradient: so many first loops pass none.
        """
        if counts is None:
            said = self._said(pairs, self.model)
        else:
            said = self._said_after_loops(pairs, counts, without_gradient=without_gradient)
        targets = pairs.targets.expand(said.shape[:-1])
        return mean_nats(said.flatten(0, -2), self.table.weight, targets.flatten())

    def next_logits(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch vocabulary"]:
        """The logits of what follows rows without filling."""
        if tokens.min() < 0 or tokens.max() >= len(self.table.weight):
            raise ValueError(f"tokens must be between 0 and {len(self.table.weight) - 1}")
        sequence = self._vectors(tokens).last()
        return functional.linear(self.model(sequence)[:, 0], self.table.weight)

    def embedded(self, pairs: SentencePairs) -> TokenSequence:
        """What the model inside is given; nothing follows END."""
        return self._vectors(pairs.tokens[:, :-1])

    def _vectors(self, tokens: Tensor) -> TokenSequence:
        return TokenSequence.whole(self.table.embedding_dim**0.5 * self.table(tokens))

    def _said_after_loops(
        self, pairs: SentencePairs, counts: Sequence[int], *, without_gradient: int = 0
    ) -> Float[Tensor, "counts targets width"]:
        model = self.model
        if not isinstance(model, Looped):
            raise ValueError(f"only a looped model can be looped, got {type(model).__name__}")

        def read(sequence: TokenSequence) -> Tensor:
            return model.predictions(sequence, counts, without_gradient=without_gradient)

        return self._said(pairs, read)

    def _said(
        self, pairs: SentencePairs, read: Callable[[TokenSequence], Tensor]
    ) -> Float[Tensor, "*counts targets width"]:
        """What the model inside says at every target."""
        if pairs.vocabulary != len(self.table.weight):
            raise ValueError(
                f"the translator knows {len(self.table.weight)} tokens, got sentences with "
                f"{pairs.vocabulary}"
            )
        asked = pairs.asked
        number = asked.flatten().cumsum(0).view_as(asked) - 1  # of the targets, row by row
        found, places = [], []
        for rows, length in self._alike(pairs):
            said = read(self._vectors(pairs.tokens[rows, :length]))
            chosen = asked[rows, :length]
            found.append(said[..., chosen, :])  # [*counts, targets of these rows, width]
            places.append(number[rows, :length][chosen])
        return torch.cat(found, dim=-2)[..., torch.cat(places).argsort(), :]

    @staticmethod
    def _alike(pairs: SentencePairs) -> Iterator[tuple[Tensor, int]]:
        """Rows of about the same length, and how many tokens they need: all but END."""
        for rows in pairs.lengths.argsort(stable=True).split(ALIKE):
            yield rows, int(pairs.lengths[rows].max()) - 1
