from __future__ import annotations

from xml.etree import ElementTree

import pytest

from innerloop.report.mathml import ENVIRONMENTS, FormulaError, to_mathml


def tags(latex: str) -> list[str]:
    return [element.tag for element in ElementTree.fromstring(to_mathml(latex)).iter()]


def texts(latex: str, tag: str) -> list[str | None]:
    return [element.text for element in ElementTree.fromstring(to_mathml(latex)).iter(tag)]


def test_a_formula_is_a_math_element_with_its_latex_as_alternative_text() -> None:
    root = ElementTree.fromstring(to_mathml(r"\frac{a}{b} < c"))
    assert root.tag == "math"
    assert root.get("display") == "block"
    assert root.get("alttext") == r"\frac{a}{b} < c"


@pytest.mark.parametrize(
    ("latex", "reason"),
    [
        ("", "empty"),
        (r"\frac{1}{2", "braces"),
        (r"\nosuchthing x", "nosuchthing"),
        (r"\frac{a}", "lacks a part"),
        (r"\begin{gather} a \end{gather}", "gather"),
        (r"a & b", "outside a matrix"),
        (r"\left( a", "missing right"),
        (r"a_b_c", "double subscripts"),
        (r"\operatorname*{arg\,min}_x", "argmin"),
    ],
)
def test_what_cannot_be_typeset_is_refused_with_the_reason(latex: str, reason: str) -> None:
    with pytest.raises(FormulaError, match=reason):
        to_mathml(latex)


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "</math><script>alert(1)</script>",
        '<img src="x" onerror="alert(1)">',
        "a & b",
        "&lt;script&gt;",
        """ "double" and 'single' """,
        "]]> <!-- and -->",
    ],
)
@pytest.mark.parametrize("command", ["text", "mbox", "textrm"])
def test_text_in_a_formula_is_shown_and_never_markup(command: str, text: str) -> None:
    formula = to_mathml(rf"x + \{command}{{{text}}}")
    shown, raw = [], ElementTree.fromstring(formula)
    for element in raw.iter():
        assert element.tag in {"math", "mrow", "mi", "mo", "mstyle", "mtext"}
        shown += [element.text] if element.tag == "mtext" else []
    assert "".join(shown).replace("\u00a0", " ") == text
    assert raw.get("alttext") == rf"x + \{command}{{{text}}}"


def test_an_attribute_cannot_be_left() -> None:
    assert tags(r'\color{red"><script>}{x}') == ["math", "mrow", "mstyle", "mrow", "mi"]


@pytest.mark.parametrize("name", ["href", "class", "style"])
def test_what_reaches_beyond_the_formula_is_refused(name: str) -> None:
    with pytest.raises(FormulaError, match=f"it sets '{name}'"):
        to_mathml(rf"\{name}{{anything}}{{x}}")


def test_a_character_reference_that_is_no_character_is_harmless() -> None:
    assert texts(r"\text{&#xFFFFFF;}", "mtext") == ["\ufffd"]


@pytest.mark.parametrize("environment", sorted(ENVIRONMENTS - {"array"}))
def test_every_environment_that_is_offered_makes_a_table(environment: str) -> None:
    assert "mtable" in tags(rf"\begin{{{environment}}} a & b \\ c & d \end{{{environment}}}")


def test_styled_letters_are_the_characters_that_browsers_draw() -> None:
    assert texts(r"\mathbb{R} \mathbb{1} \boldsymbol{\theta} \mathcal N", "mi") == ["ℝ", "𝜽", "𝒩"]
    assert texts(r"\mathbb{1}", "mn") == ["𝟙"]


def test_the_index_of_a_minimum_or_a_sum_stands_underneath() -> None:
    assert "munder" in tags(r"\min_{x} f(x)")
    assert "munderover" in tags(r"\left( \sum_{i=1}^{n} x_i \right)")


def test_delimiters_of_a_chosen_size_are_drawn_as_such() -> None:
    assert texts(r"\bigl\| x \bigr\|_F^2 \Bigl\{ y \Bigr\}", "mo") == ["‖", "‖", "{", "}"]


def test_names_of_functions_are_words_set_close_to_their_parenthesis() -> None:
    (operator,) = (
        element
        for element in ElementTree.fromstring(to_mathml(r"\mathrm{diag}(A)")).iter("mo")
        if element.text == "diag"
    )
    assert operator.get("rspace") == "0"


def test_a_minus_after_a_relation_is_a_sign() -> None:
    def minus(latex: str) -> ElementTree.Element:
        root = ElementTree.fromstring(to_mathml(latex))
        return next(element for element in root.iter("mo") if element.text == "−")

    assert minus("a = -b").get("form") == "prefix"
    assert minus("a - b").get("form") is None
    assert minus("(a) - b").get("form") is None
