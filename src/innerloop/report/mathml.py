"""LaTeX formulas as MathML, which browsers typeset without a script or a font of ours."""

from __future__ import annotations

import re
from functools import cache
from html import unescape
from xml.etree import ElementTree

from latex2mathml import exceptions
from latex2mathml.converter import convert_to_element
from markupsafe import Markup

from innerloop.report.mathml_core import repair

ENVIRONMENTS = frozenset(
    {"matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix"}
    | {"array", "cases", "split", "align*", "aligned"}
)
"""What may follow \\begin. latex2mathml passes over any other name in silence."""

ARITY = {
    **dict.fromkeys(("mfrac", "mroot", "msub", "msup", "munder", "mover"), 2),
    **dict.fromkeys(("msubsup", "munderover"), 3),
}
"""How many parts an element must have; with fewer, browsers draw an error or nothing."""

DELIMITERS = {
    **{r"\{": "{", r"\}": "}", r"\langle": "⟨", r"\rangle": "⟩"},
    **dict.fromkeys((r"\|", r"\Vert", r"\lVert", r"\rVert"), "‖"),
    **dict.fromkeys((r"\vert", r"\lvert", r"\rvert"), "|"),
}
"""What may follow \\bigl and its kin; latex2mathml passes these on as they are."""

# fmt: off
ATTRIBUTES = frozenset({
    "accent", "columnalign", "columnlines", "columnspacing", "depth", "display", "displaystyle",
    "fence", "form", "height", "largeop", "linebreak", "linethickness", "lspace", "mathbackground",
    "mathcolor", "mathsize", "mathvariant", "maxsize", "minsize", "movablelimits", "notation",
    "rowlines", "rowspacing", "rspace", "scriptlevel", "separator", "stretchy", "voffset", "width",
})
# fmt: on
"""What a formula may say of its elements; \\href, \\class and \\style would say more."""

# latex2mathml writes letters beyond ASCII so, and escapes nothing else.
_REFERENCE = re.compile(r"&#x[0-9A-Fa-f]+;")
# latex2mathml's errors share no base class; the others are what its parser lets through.
_REFUSALS: tuple[type[Exception], ...] = (
    *(error for error in vars(exceptions).values() if isinstance(error, type)),
    IndexError,
    KeyError,
    ValueError,
    StopIteration,
)


class FormulaError(ValueError):
    """A formula that cannot be typeset."""


@cache
def to_mathml(latex: str) -> Markup:
    """The formula as a <math> element, safe to put in a page; its LaTeX is the alternative text."""
    root = _converted(latex)
    # In an HTML page the namespace is implied, and left out nothing in the page looks like an
    # address.
    del root.attrib["xmlns"]
    for element in root.iter():
        text = element.text or ""
        if text == "&" and element.tag != "mtext":
            raise _refusal(latex, "an & stands outside a matrix, cases or align*")
        element.text = _REFERENCE.sub(lambda match: unescape(match[0]), text) or None
        if "minsize" in element.attrib:
            element.text = DELIMITERS.get(text, element.text)
    _check(root, latex)
    repair(root)
    root.set("alttext", latex)
    return Markup(ElementTree.tostring(root, encoding="unicode", short_empty_elements=False))


def _converted(latex: str) -> ElementTree.Element:
    """The tree of latex2mathml, never its text, in which the contents of \\text are not escaped."""
    if not latex.strip():
        raise _refusal(latex, "it is empty")
    for name in re.findall(r"\\begin\{(.*?)\}", latex):
        if name not in ENVIRONMENTS:
            known = ", ".join(sorted(ENVIRONMENTS))
            raise _refusal(latex, f"the environment {name!r} is not one of {known}")
    braces = re.sub(r"\\[{}]", "", latex)
    if braces.count("{") != braces.count("}"):
        raise _refusal(latex, "its braces do not balance")
    if re.search(r"\\operatorname\*?\{[^}]*\\", latex):
        raise _refusal(latex, r"\operatorname takes letters only; for arg min there is \argmin")
    # Three forms that latex2mathml reads differently from LaTeX: it knows the first under another
    # name only, sets the one letter of the second in italics unless its braces are gone, and
    # takes the third apart.
    latex = re.sub(r"\\(begin|end)\{aligned\}", r"\\\1{align*}", latex)
    latex = re.sub(r"\\mathrm\{(\w)\}", r"{\\mathrm \1}", latex)
    latex = latex.replace(":=", r"\coloneqq ")
    try:
        return convert_to_element(latex, display="block")
    except _REFUSALS as error:
        reason = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__.removesuffix("Error"))
        raise _refusal(latex, reason.lower()) from error


def _check(root: ElementTree.Element, latex: str) -> None:
    """Finds what latex2mathml could not read and passed on, or what reaches beyond a formula."""
    for element in root.iter():
        text = element.text or ""
        if text.startswith("\\") and element.tag != "mtext":
            raise _refusal(latex, f"the command {text} is not known")
        if element.tag in ARITY and len(element) != ARITY[element.tag]:
            raise _refusal(latex, "a fraction, root or index lacks a part")
        if unknown := sorted(element.attrib.keys() - ATTRIBUTES):
            raise _refusal(latex, f"it sets {unknown[0]!r}, which is not for a formula to set")


def _refusal(latex: str, reason: str) -> FormulaError:
    return FormulaError(f"cannot typeset the formula {latex!r}: {reason}")
