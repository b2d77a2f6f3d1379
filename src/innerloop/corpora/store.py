"""Corpora on disk: two files of pairs and a manifest that says where they come from.

A corpus lives below the folder of data, `~/.cache/innerloop` unless INNERLOOP_DATA says otherwise,
and is found again by its name. Its manifest keeps the digests of both files: what is damaged is
refused, never read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from innerloop.corpora.pairs import CorpusError, Pair, read_table
from innerloop.corpora.tokeniser import Tokeniser
from innerloop.index.selection import nearest
from innerloop.runs import read_json, write_atomic

DATA = "INNERLOOP_DATA"
"""The variable that names another folder of data."""
SMALL = "small"
"""The pairs that ship with innerloop, written for it."""
SMALL_HELD_OUT = 10
"""Every so many of them are held out."""
MANIFEST = "manifest.json"
WRITTEN = {"name", "parts", "left_out", "sha256"}
"""What a manifest must have for its corpus to be read."""
SPLITS = ("training", "validation")


def data_root() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get(DATA) or cache / "innerloop")


def corpora_root() -> Path:
    return data_root() / "translation"


@dataclass(frozen=True)
class Part:
    """One source of a corpus, for its manifest."""

    name: str
    licence: str
    packages: Sequence[str] = ()
    """With their versions, such as "trans-de-en 1.9-6"."""
    found: int = 0
    """Pairs before cleaning."""


@dataclass(frozen=True)
class Corpus:
    """Pairs to learn from and pairs held out.

    Attributes:
        parts: what is known of each origin.
        left_out: how many raw pairs were left out, by the reason.
        folder: where it lies; None for the one that ships.
    """

    name: str
    training: Sequence[Pair]
    validation: Sequence[Pair]
    parts: Sequence[Part]
    left_out: Mapping[str, int]
    folder: Path | None = None

    @cached_property
    def digest(self) -> str:
        """Twelve letters that stand for all of its text."""
        together = "".join(_as_text(getattr(self, split)) for split in SPLITS)
        return hashlib.sha256(together.encode()).hexdigest()[:12]

    @property
    def manifest(self) -> dict[str, Any]:
        counts = {split: Counter(p.origin for p in getattr(self, split)) for split in SPLITS}
        return {
            "name": self.name,
            "digest": self.digest,
            "parts": [
                {**vars(part), **{split: counts[split][part.name] for split in SPLITS}}
                for part in self.parts
            ],
            "left_out": dict(self.left_out),
        }

    def save(self, root: Path | None = None) -> Corpus:
        """Writes it, the manifest last: a corpus without one is not there."""
        folder = (corpora_root() if root is None else root) / self.name
        texts = {split: _as_text(getattr(self, split)) for split in SPLITS}
        digests = {
            split: hashlib.sha256(text.encode()).hexdigest() for split, text in texts.items()
        }
        manifest = {**self.manifest, "built": date.today().isoformat(), "sha256": digests}
        files = {f"{split}.tsv": text for split, text in texts.items()}
        files[MANIFEST] = json.dumps(manifest, indent=1, ensure_ascii=False)
        # Aside first: what cannot be written must not cost the corpus that is there.
        aside = folder / ".new"
        for name, text in files.items():
            write_atomic(aside / name, text)
        (folder / MANIFEST).unlink(missing_ok=True)
        for old in folder.glob("tokeniser-*.json"):
            old.unlink()
        for name in files:
            (aside / name).replace(folder / name)
        aside.rmdir()
        return Corpus.open(self.name, root)

    @classmethod
    def open(cls, name: str, root: Path | None = None) -> Corpus:
        """By name: one that was built, or `small`."""
        if name == SMALL:
            return _small()
        root = corpora_root() if root is None else root
        if name not in names(root):
            hint = nearest(name, names(root)) or f"there are {', '.join(names(root))}"
            raise CorpusError(
                f"there is no corpus {name!r} below {root}; {hint}. `innerloop data translation` "
                "builds debian, and --files any other"
            )
        file = root / name / MANIFEST
        manifest = read_json(file)
        if not isinstance(manifest, dict) or not manifest.keys() >= WRITTEN:
            raise _damaged(file)
        if not isinstance(manifest["sha256"], dict) or not manifest["sha256"].keys() >= {*SPLITS}:
            raise _damaged(file)
        return _opened(root / name, json.dumps(manifest), _stamp(root / name))

    def tokeniser(self, vocabulary: int) -> Tokeniser:
        """Trained on the training pairs alone, both sides together; kept with the corpus."""
        return _tokeniser(self, vocabulary)

    def __hash__(self) -> int:
        return hash((self.name, self.digest))


def names(root: Path | None = None) -> list[str]:
    """Of every corpus that can be opened."""
    root = corpora_root() if root is None else root
    return [SMALL, *sorted(path.parent.name for path in root.glob(f"*/{MANIFEST}"))]


@lru_cache(maxsize=4)
def _opened(folder: Path, manifest: str, stamp: tuple[int, ...]) -> Corpus:
    said = json.loads(manifest)
    pairs = {}
    for split in SPLITS:
        file = folder / f"{split}.tsv"
        data = file.read_bytes() if file.is_file() else b""
        if hashlib.sha256(data).hexdigest() != said["sha256"][split]:
            raise _damaged(file)
        pairs[split] = [_from_line(line) for line in data.decode().split("\n")[:-1]]
    known = Part.__dataclass_fields__
    parts = [Part(**{k: v for k, v in part.items() if k in known}) for part in said["parts"]]
    return Corpus(
        said["name"], pairs["training"], pairs["validation"], parts, said["left_out"], folder
    )


def _damaged(file: Path) -> CorpusError:
    return CorpusError(
        f"{file} is not as it was written; `innerloop data translation` makes the corpus again, "
        "with --rebuild or with its --files"
    )


def _stamp(folder: Path) -> tuple[int, ...]:
    """Changes whenever one of the files of pairs does."""
    files = (folder / f"{split}.tsv" for split in SPLITS)
    return tuple(file.stat().st_mtime_ns if file.is_file() else 0 for file in files)


@lru_cache(maxsize=1)
def _small() -> Corpus:
    file = Path(str(resources.files("innerloop"))) / "corpora" / "small.tsv"
    pairs = read_table(file, SMALL)
    held_out = pairs[SMALL_HELD_OUT - 1 :: SMALL_HELD_OUT]
    training = [pair for pair in pairs if pair not in held_out]
    part = Part(SMALL, "MIT, as innerloop", found=len(pairs))
    return Corpus(SMALL, training, held_out, [part], {})


@lru_cache(maxsize=8)
def _tokeniser(corpus: Corpus, vocabulary: int) -> Tokeniser:
    file = corpus.folder / f"tokeniser-{vocabulary}.json" if corpus.folder else None
    if file is not None and file.is_file():
        kept = Tokeniser(file.read_text(encoding="utf-8", errors="replace"))
        if kept.readable:  # else it is made again, and the same: it depends on the pairs alone
            return kept
    both = (side for pair in corpus.training for side in pair[:2])
    made = Tokeniser.trained(both, vocabulary)
    if file is not None:
        write_atomic(file, made.text)
    return made


def _as_text(pairs: Sequence[Pair]) -> str:
    lines = [f"{p.origin}\t{p.source}\t{p.target}\n" for p in pairs]
    for pair, line in zip(pairs, lines, strict=True):
        if (line.count("\t"), line.count("\n")) != (2, 1):
            raise CorpusError(f"a pair is kept in one line, without tabs of its own, got {pair}")
    return "".join(lines)


def _from_line(line: str) -> Pair:
    origin, source, target = line.split("\t")
    return Pair(source, target, origin)
