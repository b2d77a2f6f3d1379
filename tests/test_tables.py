import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from innerloop.tables import TextTable, as_csv

WORDS = st.text("abcxyzé0123456789.±", min_size=1, max_size=12)


@st.composite
def contents(draw):
    """Title, columns and rows. Checks of types draw random numbers: no table is made in here."""
    columns = draw(st.lists(WORDS, min_size=1, max_size=6))
    rows = draw(st.lists(st.tuples(*[WORDS] * len(columns)), max_size=5))
    return draw(st.sampled_from(["", "a title"])), columns, [*rows]


def blocks(table, width):
    text = table.render(width)
    if table.title:
        title, text = text.split("\n\n", 1)
        assert title == table.title
    return [block.splitlines() for block in text.split("\n\n")]


@given(contents(), st.integers(1, 100))
def test_no_word_is_lost_at_any_width(content, width):
    table = TextTable(*content)
    rows = [table.columns, *table.rows]
    found = [[] for _ in rows]
    for header, rule, *lines in blocks(table, width):
        assert set(rule) <= {"-", " "}
        for cells, line in zip(found, [header, *lines], strict=True):
            first, *others = line.split()
            cells.extend(others if cells else [first, *others])
    assert found == [list(row) for row in rows]


@given(contents(), st.integers(1, 100))
def test_every_block_begins_with_the_names_of_the_rows(content, width):
    table = TextTable(*content)
    for header, _, *lines in blocks(table, width):
        assert header.split()[0] == table.columns[0]
        assert [line.split()[0] for line in lines] == [row[0] for row in table.rows]


@given(contents(), st.integers(26, 100))
def test_lines_are_as_wide_as_asked_where_any_two_columns_fit(content, width):
    table = TextTable(*content)
    for block in blocks(table, width):
        assert max(map(len, block)) <= width


def test_blocks_are_as_few_as_fit():
    table = TextTable("", ["a", "bb", "cc", "dd"])
    table.add("1", "2", "3", "4")
    assert len(blocks(table, 13)) == 1  # 1 + 3 times (2 + 2)
    assert len(blocks(table, 12)) == 2
    assert len(blocks(table, 5)) == 3


def test_words_stand_to_the_left_and_numbers_to_the_right():
    table = TextTable("loss", ["learner", "mean"])
    table.add("ols", "0.5")
    table.add("the model", "12.25")
    assert str(table).splitlines() == [
        "loss",
        "",
        "learner     mean",
        "---------  -----",
        "ols          0.5",
        "the model  12.25",
    ]


def test_more_columns_can_be_words():
    table = TextTable("", ["a", "what"], left=2)
    table.add("1", "it")
    table.add("2", "it is")
    assert str(table).splitlines()[2:] == ["1  it", "2  it is"]


def test_a_table_without_rows_has_its_columns():
    assert TextTable("", ["a", "b"]).render(80) == "a  b\n-  -"


@pytest.mark.parametrize("cells", [(), ("1",), ("1", "2", "3")])
def test_a_row_of_another_length_is_refused(cells):
    with pytest.raises(ValueError, match=f"a row must have 2 cells, .* got {len(cells)}"):
        TextTable("", ["a", "b"]).add(*cells)


@given(
    st.lists(
        st.tuples(st.floats(allow_nan=False), st.text("ab ,;'\"±\t")),
        min_size=1,
    )
)
def test_a_file_of_columns_gives_back_every_number_and_word(rows):
    numbers, words = zip(*rows, strict=True)
    text = as_csv({"n": numbers, 'a "word", or two': words})
    header, *read = csv.reader(io.StringIO(text))
    assert header == ["n", 'a "word", or two']
    assert [(float(n), word) for n, word in read] == rows


def test_columns_of_unequal_length_are_an_error():
    with pytest.raises(ValueError, match="zip"):
        as_csv({"a": [1, 2], "b": [1]})


def test_rows_that_belong_together_are_set_apart_from_the_next_ones():
    table = TextTable("", ["", "text"], left=2, together=2)
    for name in "abcde":
        table.add(name, name.upper())
    assert [len(group) for group in table.groups] == [2, 2, 1]
    lines = ["   text", "-  ----", "a  A", "b  B", "", "c  C", "d  D", "", "e  E"]
    assert table.render(80) == "\n".join(lines)
