"""The index says what the registry says, without importing it."""

import ast
import inspect

import pytest

from innerloop import index, papers
from innerloop.index.papers import _registered
from innerloop.index.source import PACKAGE, Module, NotLiteralError


def test_the_index_names_the_papers_of_the_registry():
    found = [vars(paper) for paper in index.papers().values()]
    assert found == [vars(paper) for paper in papers.PAPERS.values()]


def test_the_index_holds_the_entries_of_the_registry_in_its_order():
    def content(entries):
        return [(e.id, e.kind, e.statement, e.source) for e in entries.values()]

    assert content(index.entries()) == content(papers.entries())


def test_the_index_points_at_the_function_of_every_entry():
    for id, entry in papers.entries().items():
        function = inspect.unwrap(entry.function)
        found = index.entries()[id]
        code = function.__code__
        assert (PACKAGE / found.file, found.line) == (type(PACKAGE)(code.co_filename), code.co_firstlineno)  # fmt: skip  # noqa: E501


@pytest.mark.parametrize("statement", ["f'every {d}'", "'a' + b", "STATEMENT"])
def test_a_statement_that_is_computed_is_refused_with_its_place(statement):
    text = f'\n@claim("ahn2023/x", {statement}, source="here")\ndef check(scale): ...'
    body = ast.parse(text).body
    module = Module("innerloop.papers.x", PACKAGE / "papers" / "x.py", body)
    with pytest.raises(NotLiteralError, match=r"the statement of a claim .* papers/x\.py:2"):
        list(_registered(body[0], module))


KNOWN = ["ahn2023/lemma2", "ahn2023/lemma3", "zhang2023/lemma2"]


@pytest.mark.parametrize(
    ("ids", "chosen"),
    [
        ([], KNOWN),
        (["ahn2023"], KNOWN[:2]),
        (["zhang2023", "ahn2023/lemma3", "zhang2023/lemma2"], [KNOWN[2], KNOWN[1]]),
    ],
)
def test_ids_and_papers_choose_each_entry_once(ids, chosen):
    assert index.choose(ids, KNOWN) == chosen


def test_an_unknown_id_is_refused_with_the_nearest():
    with pytest.raises(index.UnknownIdError, match=r"nearest are .*ahn2023/lemma2"):
        papers.select(["ahn2023/lema2"])
