"""German-English pairs out of Debian packages, as OPUS made its GNOME and KDE corpora.

Four sources, none of whose text is part of innerloop: the help of LibreOffice, descriptions of
packages, sentences of the dictionary Ding, and the texts of LibreOffice's own windows.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from innerloop.corpora.apt import Packages
from innerloop.corpora.cleaning import ALLOWANCE, LARGEST_RATIO, tidy
from innerloop.corpora.pairs import CorpusError, Pair

Sides = Iterator[tuple[str, str]]


@dataclass(frozen=True)
class Source:
    """A part of the corpus: where it comes from, and how pairs are read out of it."""

    name: str
    packages: tuple[str, ...]
    licence: str
    """As the packages state it."""
    read: Callable[[Packages], Sides]
    lists: tuple[str, ...] = ()
    """Languages of the lists of descriptions that it is made of."""

    def pairs(self, packages: Packages) -> list[Pair]:
        found = [Pair(de, en, self.name) for de, en in self.read(packages)]
        if not found:
            raise CorpusError(
                f"no pair was found in {self.name}; the packages may be of a release that has "
                "another form"
            )
        return found


BLOCK = re.compile(
    r'<(?P<tag>p|h[1-6])\b[^>]*?\bid="(?P<id>(?:par|hd)_id\w+)"(?P<rest>[^>]*)>(?P<text>.*?)</(?P=tag)>',
    re.DOTALL,
)
SENTENCE_END = re.compile(r"(?<=[a-zäöüß»”\")][.!?]) (?=[A-ZÄÖÜ])")


def office_help(packages: Packages) -> Sides:
    """Blocks of the same file with the same id, cut into sentences."""
    german = _help_blocks(packages, "libreoffice-help-de", "/help/de/")
    english = _help_blocks(packages, "libreoffice-help-en-us", "/help/en-US/")
    for place, text in german.items():
        if place in english:
            yield from sentences(text, english[place])


def _help_blocks(packages: Packages, name: str, root: str) -> dict[tuple[str, str], str]:
    """Text by file and id; program text is left out."""
    found = {}
    for path, content in packages.files(name, ".html"):
        for block in BLOCK.finditer(content.decode("utf-8", errors="replace")):
            if "code" not in block["rest"]:
                found[path.partition(root)[2], block["id"]] = tidy(block["text"])
    return found


def package_descriptions(packages: Packages) -> Sides:
    """Descriptions of the same package, joined by the digest of the English one, by paragraph."""
    english = dict(_descriptions(packages.descriptions("en"), "en"))
    for digest, paragraphs in _descriptions(packages.descriptions("de"), "de"):
        original = english.get(digest, [])
        if len(original) == len(paragraphs):
            for de, en in zip(paragraphs, original, strict=True):
                yield from sentences(de, en)


def _descriptions(text: str, language: str) -> Iterator[tuple[str, list[str]]]:
    """Digests and paragraphs, the title first; a list or a table is an empty paragraph."""
    for stanza in text.split("\n\n"):
        head, found, body = stanza.partition(f"Description-{language}: ")
        digest = re.search(r"^Description-md5: (\w+)$", head, re.MULTILINE)
        if not found or digest is None:
            continue
        title, *lines = body.split("\n")
        paragraphs: list[list[str]] = [[]]
        for line in lines:
            if line == " .":
                paragraphs.append([])
            elif line:
                paragraphs[-1].append(line)
        yield digest[1], [tidy(title), *map(_joined, paragraphs)]


def _joined(lines: list[str]) -> str:
    if any(line.startswith(("  ", " *", " -")) for line in lines):
        return ""
    return tidy(" ".join(lines))


ANNOTATION = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]|/[A-Z]+/|<[^<>]*>|\([^()]*\)")


def dictionary_sentences(packages: Packages) -> Sides:
    """Examples of use that are whole sentences: `Wort | Ein Beispiel. :: word | An example.`"""
    for _, content in packages.files("trans-de-en", "/de-en"):
        for line in content.decode("utf-8", errors="replace").splitlines():
            german, found, english = line.partition(" :: ")
            if not found or line.startswith("#"):
                continue
            entries = german.split(" | "), english.split(" | ")
            if len(entries[0]) != len(entries[1]):
                continue
            for de, en in zip(*entries, strict=True):
                # Of several wordings of one sentence, the first.
                pair = tidy(_first(de)), tidy(_first(en))
                if all(side.endswith((".", "!", "?")) and "/" not in side for side in pair):
                    yield pair


def _first(entry: str) -> str:
    return ANNOTATION.sub("", entry).split(";")[0].strip()


ACCELERATOR = re.compile(r"[_~](?=\w)|\(_\w\)")


def office_windows(packages: Packages) -> Sides:
    """Gettext catalogues; the letters that are typed with Alt lose their mark."""
    for path, content in packages.files("libreoffice-l10n-de", ".mo"):
        for english, german in catalogue(content, path):
            pair = (
                ACCELERATOR.sub("", text.replace("%PRODUCTNAME", "LibreOffice"))
                for text in (german, english)
            )
            yield from sentences(*map(tidy, pair))


def catalogue(content: bytes, path: str) -> Iterator[tuple[str, str]]:
    """Originals and translations of a compiled gettext catalogue, without their contexts."""
    orders = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}
    order = orders.get(content[:4])
    if order is None:
        raise CorpusError(f"{path} is no gettext catalogue")

    def texts(table: int, count: int) -> Iterator[str]:
        for length, start in struct.iter_unpack(f"{order}2I", content[table : table + 8 * count]):
            yield content[start : start + length].decode("utf-8", errors="replace")

    try:
        count, originals, translations = struct.unpack_from(f"{order}3I", content, 8)
        pairs = list(zip(texts(originals, count), texts(translations, count), strict=True))
    except (struct.error, ValueError) as error:
        raise CorpusError(f"{path} is a gettext catalogue that was cut short") from error
    for original, translation in pairs:
        text = original.rpartition("\x04")[2]
        if text and "\0" not in text + translation:  # no header, and no plural forms
            yield text, translation


def sentences(source: str, target: str) -> Sides:
    """The sentences of a paragraph one by one, if both sides have as many and their lengths fit."""
    parts = [SENTENCE_END.split(side) for side in (source, target)]
    if len(parts[0]) == len(parts[1]) and all(map(_alike, *parts)):
        yield from zip(*parts, strict=True)
    else:
        yield source, target


def _alike(source: str, target: str) -> bool:
    short, long = sorted((len(source), len(target)))
    return long <= LARGEST_RATIO * short + ALLOWANCE


SOURCES = (
    Source(
        "help",
        ("libreoffice-help-de", "libreoffice-help-en-us"),
        "MPL-2.0, parts Apache-2.0",
        office_help,
    ),
    Source("descriptions", (), "no licence is stated", package_descriptions, ("de", "en")),
    Source("dictionary", ("trans-de-en",), "GPL-2+", dictionary_sentences),
    Source("windows", ("libreoffice-l10n-de",), "MPL-2.0, parts Apache-2.0", office_windows),
)


def package_names(sources: Iterable[Source] = SOURCES) -> list[str]:
    return [name for source in sources for name in source.packages]
