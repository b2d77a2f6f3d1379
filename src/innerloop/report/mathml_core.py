"""Turns the MathML of latex2mathml into the subset that browsers draw, MathML Core.

Core dropped attributes that older MathML had: letters are bold or double-struck by being other
characters, columns are aligned by CSS. And it spaces an element by what it is, so a relation that
is marked up as a variable is set too close, a word marked up as an operator too wide.
"""

from __future__ import annotations

import unicodedata
from itertools import pairwise, zip_longest
from xml.etree.ElementTree import Element

LIMITS = frozenset(
    {"∑", "∏", "min", "max", "sup", "inf", "lim", "argmin", "argmax", "arg min", "arg max"}
)
"""Signs and words whose index stands underneath in a displayed formula."""

SCRIPTS = frozenset({"msub", "msup", "msubsup", "munder", "mover", "munderover"})

_THIN = "0.167em"
_STYLES = {
    "bold": "BOLD",
    "italic": "ITALIC",
    "bold-italic": "BOLD ITALIC",
    "double-struck": "DOUBLE-STRUCK",
    "script": "SCRIPT",
    "fraktur": "FRAKTUR",
    "sans-serif": "SANS-SERIF",
    "monospace": "MONOSPACE",
}


def repair(root: Element) -> None:
    """Changes the tree in place, from the leaves up."""
    for child in root:
        repair(child)
    _join_upright_letters(root)
    _space_words(root)
    _space_signs(root)
    _place_limits(root)
    _mark_up_script_symbols(root)
    _keep_size_under_scripts(root)
    _align_columns(root)
    _use_styled_letters(root)
    _mark_up_symbols(root)


def _use_styled_letters(element: Element) -> None:
    """<mi mathvariant="double-struck">E</mi> becomes the character of that name."""
    style = _STYLES.get(element.get("mathvariant", ""))
    if style is not None:
        element.text = "".join(_styled(letter, style) for letter in element.text or "")
        del element.attrib["mathvariant"]


def _styled(letter: str, style: str) -> str:
    kind = unicodedata.name(letter, "").replace("LATIN ", "").replace("GREEK ", "")
    kind = kind.replace(" LETTER", "")
    # The letters that were in Unicode before the others, such as ℝ, lack the first word.
    for name in (f"MATHEMATICAL {style} {kind}", f"{style} {kind}"):
        try:
            return unicodedata.lookup(name)
        except KeyError:
            continue
    return letter


def _mark_up_symbols(element: Element) -> None:
    """Relations and fences that came as variables become operators, and ∞ the reverse."""
    text = element.text or ""
    if element.tag == "mi" and len(text) == 1:
        if text == "~":
            element.text = text = "∼"
        if unicodedata.category(text) in {"Sm", "Ps", "Pe"} or text in ":‖":
            element.tag = "mo"
            if text != "∼" and unicodedata.category(text) != "Sm":
                element.set("stretchy", "false")
        elif "Α" <= text <= "Ω":  # capital Greek is upright in LaTeX
            element.set("mathvariant", "normal")
    elif element.tag == "mo" and text in {"∞", "∅"}:
        element.tag = "mi"
    if element.tag == "mo" and text in {"‖", "|"} and element.get("fence") != "true":
        # Whether a bar opens or closes cannot be told, and as an infix it would be spaced.
        element.attrib |= {"lspace": "0", "rspace": "0", "stretchy": "false"}


def _join_upright_letters(row: Element) -> None:
    r"""\mathrm{diag} comes as four letters; as one word it is a name, and set as one."""
    letters = list(row)
    if len(letters) > 1 and all(
        letter.tag == "mi" and letter.get("mathvariant") == "normal" for letter in letters
    ):
        for letter in letters:
            row.remove(letter)
        row.tag = "mi"
        row.text = "".join(letter.text or "" for letter in letters)


def _space_words(row: Element) -> None:
    """A thin space around log or tr, and none before a parenthesis that follows."""
    for item, following in zip_longest(row, row[1:]):
        word = _nucleus(item)
        if word.tag in {"mi", "mo"} and (word.text or "").replace("\u2009", "").isalpha():
            name = word.text or ""
            if len(name) < 2 or row.tag in SCRIPTS or (row.tag == "mrow" and len(row) == 1):
                continue
            fenced = following is not None and _opens(following)
            word.tag = "mo"
            word.attrib |= {"lspace": _THIN, "rspace": "0" if fenced else _THIN}


def _space_signs(row: Element) -> None:
    """The minus of "= -1" is a sign and stands close to what follows, unlike that of "2 - 1"."""
    for before, item in pairwise(row):
        left = _nucleus(before)
        follows_operator = left.tag == "mo" and (left.text or " ") not in ")]}⟩|‖!"
        if item.tag == "mo" and item.text in {"−", "+"} and follows_operator:
            item.attrib |= {"form": "prefix", "lspace": "0", "rspace": "0"}


def _nucleus(element: Element) -> Element:
    while element.tag in SCRIPTS and len(element):
        element = element[0]
    return element


def _opens(element: Element) -> bool:
    while element.tag == "mrow" and len(element):
        element = element[0]
    return element.tag == "mo" and (element.text or " ") in "([{⟨|‖"


def _place_limits(element: Element) -> None:
    word = (element[0].text or "").replace("\u2009", " ") if len(element) else ""
    if element.tag in {"msub", "msubsup"} and word in LIMITS:
        element.tag = {"msub": "munder", "msubsup": "munderover"}[element.tag]
        element[0].tag = "mo"
        element[0].set("movablelimits", "true")


def _mark_up_script_symbols(element: Element) -> None:
    """A star, a transpose or a word as an index is a symbol: no space belongs around it."""
    if element.tag in SCRIPTS - {"munder", "mover", "munderover"}:
        for script in list(element)[1:]:
            while script.tag == "mrow" and len(script) == 1:
                script = script[0]
            if script.tag == "mo":
                script.tag = "mi"
                script.attrib.clear()
                if len(script.text or "") == 1:
                    script.set("mathvariant", "normal")
                if script.text == "*":
                    script.text = "∗"


def _keep_size_under_scripts(element: Element) -> None:
    r"""\Bigr)^2: a browser gives the parenthesis its size in a row of its own, not as a base."""
    if element.tag in SCRIPTS and element[0].tag == "mo" and "minsize" in element[0].attrib:
        row = Element("mrow")
        row.append(element[0])
        element[0] = row


def _align_columns(element: Element) -> None:
    if element.tag == "mtd" and "columnalign" in element.attrib:
        element.set("style", f"text-align: {element.attrib.pop('columnalign')}")
    if element.tag == "mtable" and element.get("columnspacing", "").startswith("0em"):
        for cell in element.iter("mtd"):
            cell.set("style", f"{cell.get('style', '')}; padding-inline: 0")
