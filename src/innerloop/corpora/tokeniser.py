"""Words cut into pieces: byte-pair encoding, one vocabulary for both languages."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from innerloop.corpora.pairs import CorpusError

PAD, TO, END = 0, 1, 2
"""Filling, the mark between a sentence and its translation, and the end of the translation."""
SPECIAL = ("<pad>", "<to>", "<end>")
FEWEST = 256 + len(SPECIAL)
"""Every byte is a piece, so that any text can be written."""


class Tokeniser:
    """From text to numbers below `size` and back.

    Args:
        text: JSON, as `tokenizers` writes it.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def trained(cls, sentences: Iterable[str], vocabulary: int) -> Tokeniser:
        """Sennrich et al. (2016) on bytes, from these sentences; at most so many pieces."""
        if vocabulary < FEWEST:
            raise ValueError(f"vocabulary must be at least {FEWEST} pieces, got {vocabulary}")
        library = _library()
        made = library.Tokenizer(library.models.BPE())
        made.normalizer = library.normalizers.NFC()
        made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)
        made.decoder = library.decoders.ByteLevel()
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=list(SPECIAL),
            initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        made.train_from_iterator(sentences, trainer)
        return cls(made.to_str())

    @cached_property
    def _made(self) -> Any:
        try:
            return _library().Tokenizer.from_str(self.text)
        except Exception as error:  # the library raises no other kind
            raise CorpusError(f"this is no tokeniser: {error}") from error

    @property
    def readable(self) -> bool:
        """Whether its text is that of a tokeniser."""
        _library()
        try:
            return self.size > 0
        except CorpusError:
            return False

    @cached_property
    def size(self) -> int:
        """Pieces in all, those that mean something special among them."""
        return self._made.get_vocab_size()

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Pieces of every sentence; text that looks like a special piece is text."""
        self._made.encode_special_tokens = True
        return [found.ids for found in self._made.encode_batch(list(sentences))]

    def decode(self, pieces: Sequence[int]) -> str:
        """The text; special pieces say nothing."""
        return self._made.decode([p for p in pieces if p >= len(SPECIAL)]).strip()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokeniser) and json.loads(self.text) == json.loads(other.text)

    def __hash__(self) -> int:
        return hash(self.text)


def _library() -> Any:
    # Its threads and the processes of a sweep do not go together, and it warns of that.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.normalizers
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError as error:
        raise CorpusError(
            "translation needs the tokenizers of Hugging Face: pip install 'innerloop[translation]'"
        ) from error
    return tokenizers
