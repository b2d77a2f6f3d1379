"""Sentence pairs, and the files that people keep them in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class CorpusError(ValueError):
    """A corpus cannot be read or built; the message says why, and what to do."""


class Pair(NamedTuple):
    """A sentence, its translation, and the part of the corpus that it comes from."""

    source: str
    target: str
    origin: str


def read_parallel(source: Path, target: Path, origin: str) -> list[Pair]:
    """Two plain-text files of which line k is the translation of line k, as Moses has them."""
    sources, targets = _lines(source), _lines(target)
    if len(sources) != len(targets):
        raise CorpusError(
            f"{source} has {len(sources)} lines and {target} has {len(targets)}; line k of one "
            "must be the translation of line k of the other"
        )
    for file, lines in ((source, sources), (target, targets)):
        _require_no_empty_line(file, lines)
    return [Pair(s.strip(), t.strip(), origin) for s, t in zip(sources, targets, strict=True)]


def read_table(file: Path, origin: str) -> list[Pair]:
    """A file of lines with a sentence, a tab and its translation."""
    pairs = []
    for number, line in enumerate(_lines(file), start=1):
        columns = line.split("\t")
        if len(columns) != 2:
            raise CorpusError(
                f"line {number} of {file} must have two columns separated by a tab, "
                f"got {len(columns)}"
            )
        _require_no_empty_line(file, columns, number)
        source, target = (column.strip() for column in columns)
        pairs.append(Pair(source, target, origin))
    return pairs


def read_files(files: Sequence[Path], origin: str) -> list[Pair]:
    """Two parallel files, or a single one with tabs."""
    if len(files) == 2:
        return read_parallel(files[0], files[1], origin)
    if len(files) == 1:
        return read_table(files[0], origin)
    raise CorpusError(
        f"pairs are in two parallel files, or in one with tabs, got {len(files)} files"
    )


def _lines(file: Path) -> list[str]:
    if not file.is_file():
        raise CorpusError(f"there is no file {file}")
    lines = text_lines(file.read_bytes(), str(file))
    if not lines:
        raise CorpusError(f"{file} is empty")
    return lines


def text_lines(data: bytes, name: str) -> list[str]:
    """The lines of a text in UTF-8; what is not is refused, with the name of the text."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CorpusError(
            f"{name} must be UTF-8, and line {line} is not (byte {error.start}); "
            "convert it first, for example with iconv"
        ) from error
    # Not splitlines: it breaks at form feeds and at separators that stand inside sentences.
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _require_no_empty_line(file: Path, lines: Sequence[str], first: int | None = None) -> None:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            where = number if first is None else first
            raise CorpusError(
                f"line {where} of {file} is empty, so that it is no pair; remove it from both sides"
            )
