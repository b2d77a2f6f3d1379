"""From raw pairs to a corpus on disk: cleaned, split, written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from innerloop.corpora.apt import Packages
from innerloop.corpora.cleaning import clean, tidied
from innerloop.corpora.debian import SOURCES, package_names
from innerloop.corpora.pairs import CorpusError, Pair, read_files
from innerloop.corpora.split import apart, split
from innerloop.corpora.store import SMALL, Corpus, Part, corpora_root
from innerloop.locks import folder_lock

DEBIAN = "debian"
HELD_OUT = 2000
NEAR = "nearly held out"
"""Why a training pair that nearly repeats one of the user's held-out pairs is left out."""
NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
Watch = Callable[[str, int, int], None]
"""Told what is done now, how many stages are done, and how many there are."""


def _nobody(stage: str, done: int, of: int) -> None:
    pass


def build_debian(root: Path | None = None, *, watch: Watch = _nobody) -> Corpus:
    """Fetches what is not there yet, reads and cleans it, and writes the corpus `debian`."""
    root = corpora_root() if root is None else root
    stages = len(SOURCES) + 3
    with folder_lock(root / DEBIAN):
        watch("fetching packages", 0, stages)
        packages = Packages(root / DEBIAN / "apt")
        packages.fetch(package_names())
        raw: list[Pair] = []
        parts = []
        for done, source in enumerate(SOURCES, start=1):
            watch(f"reading {source.name}", done, stages)
            found = source.pairs(packages)
            versions = [f"{name} {packages.version(name)}" for name in source.packages]
            versions += [f"Translation-{name} {packages.digest(name)}" for name in source.lists]
            parts.append(Part(source.name, source.licence, versions, len(found)))
            raw += found
        return _finished(DEBIAN, raw, None, parts, root, watch, stages)


def build_from_files(
    name: str,
    files: Sequence[Path],
    validation: Sequence[Path] = (),
    *,
    root: Path | None = None,
    watch: Watch = _nobody,
) -> Corpus:
    """Two parallel files, or one with tabs, as the corpus of that name.

    The training pairs are cleaned. Of validation pairs all are taken, tidied, and training pairs
    that nearly repeat one are left out; without files of them some training pairs are held out.
    """
    if not NAME.fullmatch(name) or name in (DEBIAN, SMALL):
        raise CorpusError(
            f"name must be letters, digits, dots and dashes, and not {DEBIAN} or {SMALL}, "
            f"got {name!r}"
        )
    root = corpora_root() if root is None else root
    watch("reading files", 0, 3)
    raw = read_files(files, name)
    held_out = _all_tidied(validation, name) if validation else None
    with folder_lock(root / name):
        part = Part(name, "as its files say", [str(file) for file in files], len(raw))
        return _finished(name, raw, held_out, [part], root, watch, 3)


def _all_tidied(files: Sequence[Path], origin: str) -> list[Pair]:
    pairs = [tidied(pair) for pair in read_files(files, origin)]
    for number, pair in enumerate(pairs, start=1):
        if not (pair.source and pair.target):
            raise CorpusError(
                f"line {number} of {files[0]} is markup on one of its sides, without a sentence; "
                "remove it from both"
            )
    return pairs


def _finished(
    name: str,
    raw: Sequence[Pair],
    held_out: Sequence[Pair] | None,
    parts: Sequence[Part],
    root: Path,
    watch: Watch,
    stages: int,
) -> Corpus:
    watch("cleaning", stages - 2, stages)
    training, left_out = clean(raw)
    watch("holding out", stages - 1, stages)
    if held_out is None:
        training, held_out = split(training, min(HELD_OUT, len(training) // 10))
    else:
        cleaned = len(training)
        training = apart(training, held_out)
        left_out += Counter({NEAR: cleaned - len(training)})
    if not training:
        reasons = ", ".join(f"{count} ({why})" for why, count in left_out.items())
        raise CorpusError(
            f"no training pair is left of {len(raw)}; "
            + (f"left out were {reasons}" if reasons else "some are held out")
        )
    if not held_out:
        raise CorpusError(
            f"none of the {len(training)} pairs that are left of {len(raw)} can be held out: a "
            "tenth of them is less than one, or each nearly repeats another; give held-out pairs "
            "with --validation"
        )
    made = Corpus(name, training, held_out, parts, left_out).save(root)
    watch("done", stages, stages)
    return made
