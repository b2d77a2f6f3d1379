import pytest
from matplotlib.figure import Figure as Picture

from innerloop.papers import (
    PAPERS,
    Claim,
    Figure,
    FigureData,
    UnknownIdError,
    Verdict,
    claim,
    entries,
    figure,
    registry,
    select,
)

VERDICT = Verdict([])


@pytest.fixture
def empty_registry(monkeypatch):
    """The registry without entries; what a test registers is gone after it."""
    entries()  # imports the papers, so that they are not registered later
    monkeypatch.setattr(registry, "_ENTRIES", {})


@pytest.fixture
def three_entries(empty_registry):
    claim("ahn2023/theorem1", "One", source="Theorem 1", formula="a = b")(lambda scale: VERDICT)
    claim("ahn2023/theorem3", "Three", source="Theorem 3")(lambda scale: VERDICT)
    figure("ahn2023/figure2", "Two", source="Figure 2", draw=lambda tables: Picture())(
        lambda scale: FigureData({}, "", VERDICT)
    )


def test_registering_returns_the_function_itself(empty_registry):
    def check(scale):
        return VERDICT

    assert claim("ahn2023/x", "x", source="here")(check) is check
    assert entries()["ahn2023/x"].check is check


def test_entries_keep_what_they_were_registered_with(three_entries):
    found = entries()
    assert list(found) == ["ahn2023/theorem1", "ahn2023/theorem3", "ahn2023/figure2"]
    one, two = found["ahn2023/theorem1"], found["ahn2023/figure2"]
    assert isinstance(one, Claim)
    assert (one.statement, one.source, one.formula, one.kind) == (
        "One",
        "Theorem 1",
        "a = b",
        "claim",
    )
    assert isinstance(two, Figure)
    assert two.kind == "figure"


def test_a_second_entry_with_the_same_id_is_refused(three_entries):
    with pytest.raises(AssertionError, match="ahn2023/theorem1 is registered twice"):
        claim("ahn2023/theorem1", "again", source="here")(lambda scale: VERDICT)


def test_an_entry_of_an_unknown_paper_is_refused(empty_registry):
    with pytest.raises(AssertionError, match="nobody2020/theorem1 names no known paper"):
        claim("nobody2020/theorem1", "x", source="here")(lambda scale: VERDICT)


@pytest.mark.parametrize(
    ("ids", "chosen"),
    [
        ([], ["theorem1", "theorem3", "figure2"]),
        (["ahn2023"], ["theorem1", "theorem3", "figure2"]),
        (["ahn2023/figure2"], ["figure2"]),
        (["ahn2023/figure2", "ahn2023/theorem1"], ["figure2", "theorem1"]),
        (["ahn2023/theorem1", "ahn2023/theorem1"], ["theorem1"]),
        (["ahn2023/figure2", "ahn2023"], ["figure2", "theorem1", "theorem3"]),
    ],
)
def test_ids_and_papers_select_entries(three_entries, ids, chosen):
    assert [entry.id for entry in select(ids)] == [f"ahn2023/{name}" for name in chosen]


@pytest.mark.parametrize(
    ("id", "nearest"),
    [
        ("ahn2023/theorem2", "ahn2023/theorem"),
        ("ahn2023/theorm3", "ahn2023/theorem3"),
        ("ahn2024", "ahn2023"),
        ("figure2", "ahn2023/figure2"),
        ("theorem3", "ahn2023/theorem3"),
    ],
)
def test_an_unknown_id_is_refused_with_the_nearest_known_ones(three_entries, id, nearest):
    with pytest.raises(
        UnknownIdError, match=f"no claim, figure or paper is called '{id}'"
    ) as error:
        select([id])
    hint = str(error.value).split("the nearest are ")[1]
    assert nearest in hint


def test_an_id_like_no_other_is_refused_with_where_to_look(three_entries):
    with pytest.raises(UnknownIdError, match="see `innerloop list`"):
        select(["qqqqq"])


def test_one_unknown_id_among_known_ones_is_refused(three_entries):
    with pytest.raises(UnknownIdError, match="'ahn2023/theorem9'"):
        select(["ahn2023/theorem1", "ahn2023/theorem9"])


def test_every_entry_names_its_paper_and_says_where_it_stands():
    found = entries()
    assert found
    for id, entry in found.items():
        assert entry.id == id
        assert id.split("/")[0] in PAPERS
        assert entry.statement
        assert entry.source
