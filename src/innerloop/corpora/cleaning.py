"""What is left of raw pairs when everything that is no translation is taken out.

Each filter has a name, and the numbers of pairs that they leave out are part of the corpus.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from innerloop.corpora.pairs import Pair

FEWEST_WORDS = 3
"""Of a sentence. Shorter ones are entries of a dictionary, and have no trigram to be told by."""
MOST_WORDS = 80
LARGEST_RATIO = 2.0
"""Of the lengths of the two sides in letters, beside an allowance for short ones."""
ALLOWANCE = 15

BREAK = re.compile(r"</?(?:br|p|div|h[1-6]|[uod]l|li|dt|dd|t[dhr]|table)\b[^<>]*>", re.IGNORECASE)
"""Markup that stands between words."""
MARKUP = re.compile(r"<[/!?]?[A-Za-z-][^<>]*>")
"""Other markup; "a < b" and the operator <> are none."""
SPACE = re.compile(r"\s+")
WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
PLACEHOLDER = re.compile(
    r"%\d|%[A-Za-z_]+%?|\$\(|\$\{|\{\d*\}|\$\[|#\w+#|\\[nt]|[<>{}\\|]|https?://|www\.|@\w|__"
)
"""What a program fills in, or what is left of markup."""

GERMAN = """
    der die das den dem des ein eine einen einem einer eines und oder aber nicht ist sind wird
    werden wurde haben kann können mit von für auf aus bei nach zum zur im als auch sich es
    sie er wir ich ihr ihre sein diese dieser dieses wenn wie nur noch durch über unter zwischen
"""
ENGLISH = """
    the and or but not is are were be been has have can with of for on from at by to as it
    they he we you your his her this that these those if how only through over between which would
"""
FUNCTION_WORDS: Mapping[str, frozenset[str]] = {
    "source": frozenset(GERMAN.split()),
    "target": frozenset(ENGLISH.split()),
}
"""Frequent words of German and of English that the other language hardly has."""


def tidy(text: str) -> str:
    """One line of plain text: no markup, entities or doubled spaces, composed letters."""
    plain = html.unescape(MARKUP.sub("", BREAK.sub(" ", html.unescape(text))))
    return SPACE.sub(" ", unicodedata.normalize("NFC", plain)).strip()


def tidied(pair: Pair) -> Pair:
    return Pair(tidy(pair.source), tidy(pair.target), pair.origin)


def words(text: str) -> list[str]:
    """In small letters; numbers and signs are no words."""
    return WORD.findall(text.lower())


def key(text: str) -> str:
    """What two sentences share that differ in case, numbers or punctuation alone."""
    return " ".join(words(text))


def _lengths_differ(pair: Pair) -> bool:
    short, long = sorted((len(pair.source), len(pair.target)))
    return long > LARGEST_RATIO * short + ALLOWANCE


def _other_language(pair: Pair) -> bool:
    """A side has more function words of the other side's language than of its own."""
    for side, other in (("source", "target"), ("target", "source")):
        found = Counter(words(getattr(pair, side)))
        own, foreign = (
            sum(found[word] for word in FUNCTION_WORDS[name] if word in found)
            for name in (side, other)
        )
        if foreign > own:
            return True
    return False


def _mostly_signs(pair: Pair) -> bool:
    """Fewer than two letters in three of what is not a space."""
    return any(
        sum(c.isalpha() for c in side) < 2 / 3 * len(side.replace(" ", ""))
        for side in (pair.source, pair.target)
    )


FILTERS: dict[str, Callable[[Pair], bool]] = {
    "a placeholder or markup": lambda p: any(map(PLACEHOLDER.search, p[:2])),
    "too short": lambda p: min(len(words(s)) for s in p[:2]) < FEWEST_WORDS,
    "too long": lambda p: max(len(words(s)) for s in p[:2]) > MOST_WORDS,
    "not translated": lambda p: key(p.source) == key(p.target),
    "signs and numbers": _mostly_signs,
    "lengths that do not fit": _lengths_differ,
    "another language": _other_language,
}
"""From a reason to whether it applies, in the order in which they are asked."""
TWICE = "there already"


def clean(pairs: Iterable[Pair]) -> tuple[list[Pair], Counter[str]]:
    """The pairs that stay, tidied, and how many were left out for which reason.

    A pair goes if one before it, which may have gone itself, has one of its sides, but for case,
    numbers and punctuation.
    """
    kept: list[Pair] = []
    left_out: Counter[str] = Counter()
    seen: tuple[set[str], set[str]] = set(), set()
    for pair in map(tidied, pairs):
        reason = next((name for name, applies in FILTERS.items() if applies(pair)), None)
        if reason is None:
            keys = key(pair.source), key(pair.target)
            if any(k in known for k, known in zip(keys, seen, strict=True)):
                reason = TWICE
            for k, known in zip(keys, seen, strict=True):
                known.add(k)
        if reason is None:
            kept.append(pair)
        else:
            left_out[reason] += 1
    return kept, left_out
