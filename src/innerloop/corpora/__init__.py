"""Corpora: sentence pairs from files or Debian packages, cleaned, split, and cut into pieces."""

from innerloop.corpora.build import build_debian, build_from_files
from innerloop.corpora.pairs import CorpusError, Pair
from innerloop.corpora.store import Corpus, corpora_root
from innerloop.corpora.tokeniser import Tokeniser

__all__ = [
    "Corpus",
    "CorpusError",
    "Pair",
    "Tokeniser",
    "build_debian",
    "build_from_files",
    "corpora_root",
]
