import ast
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Picture

from innerloop.index import UnknownIdError
from innerloop.papers import (
    PAPERS,
    Numbers,
    Scale,
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
    figure(
        "ahn2023/figure2",
        "Two",
        source="Figure 2",
        judge=lambda tables: Verdict(VERDICT.printed, remarks=["judged"]),
        draw=lambda tables: Picture(),
    )(lambda scale: Numbers({}, "a caption", {"n": 3}, ["computed"]))


def test_registering_returns_the_function_itself(empty_registry):
    def check(scale):
        return VERDICT

    assert claim("ahn2023/x", "x", source="here")(check) is check
    assert entries()["ahn2023/x"].function is check


def test_entries_keep_what_they_were_registered_with(three_entries):
    found = entries()
    assert list(found) == ["ahn2023/theorem1", "ahn2023/theorem3", "ahn2023/figure2"]
    one, two = found["ahn2023/theorem1"], found["ahn2023/figure2"]
    assert (one.statement, one.source, one.formula, one.kind) == (
        "One",
        "Theorem 1",
        "a = b",
        "claim",
    )
    assert two.kind == "figure"


def test_a_figure_is_judged_by_its_numbers_and_keeps_their_settings(three_entries):
    measurement = entries()["ahn2023/figure2"].measure(Scale.SMOKE)
    assert measurement.caption == "a caption"
    assert measurement.verdict.settings == {"n": 3}
    assert measurement.verdict.remarks == ["computed", "judged"]


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


@pytest.fixture
def papers_folder(tmp_path, monkeypatch):
    """A package of papers with one paper, whose files a test may change."""
    folder = tmp_path / "some_papers"
    (folder / "new2025").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "new2025" / "__init__.py").write_text("from some_papers.new2025 import theorem\n")
    (folder / "new2025" / "theorem.py").write_text("from some_papers.new2025 import settings\n")
    (folder / "new2025" / "settings.py").write_text("")
    monkeypatch.setattr(registry, "PAPERS", {"new2025": PAPERS["ahn2023"]})
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "some_papers"]:
        del sys.modules[name]


def test_a_paper_with_its_modules_imported_is_complete(papers_folder):
    registry.check_papers(papers_folder, "some_papers")
    assert "some_papers.new2025.settings" in sys.modules


def test_a_module_that_nobody_imports_is_refused(papers_folder):
    (papers_folder / "new2025" / "lemma.py").write_text("")
    with pytest.raises(registry.IncompletePaperError, match=r"lemma\.py is imported neither by"):
        registry.check_papers(papers_folder, "some_papers")


def test_a_paper_without_its_folder_is_refused(papers_folder, monkeypatch):
    monkeypatch.setitem(registry.PAPERS, "other2025", PAPERS["ahn2023"])
    with pytest.raises(registry.IncompletePaperError, match=r"'other2025' .* has no folder"):
        registry.check_papers(papers_folder, "some_papers")


def test_a_folder_without_its_paper_is_refused(papers_folder):
    (papers_folder / "other2025").mkdir()
    (papers_folder / "other2025" / "__init__.py").write_text("")
    with pytest.raises(registry.IncompletePaperError, match="PAPERS has no key 'other2025'"):
        registry.check_papers(papers_folder, "some_papers")


def test_the_registry_itself_draws_nothing():
    tree = ast.parse(Path(registry.__file__).read_text())
    names = [
        ast.unparse(line) for line in tree.body if isinstance(line, ast.Import | ast.ImportFrom)
    ]
    assert names
    assert not any("matplotlib" in name for name in names)


def without_test(ids, folder):
    """Those that no test file of their paper names, each with the sentence of what to do."""
    texts = {path: path.read_text() for path in folder.glob("test_*.py")}
    for id in ids:
        key, name = id.split("/")
        tested = [text for path, text in texts.items() if path.name.startswith(f"test_{key}")]
        if not any(f'"{name}"' in text or f'"{id}"' in text for text in tested):
            yield f"{id} has no test: give it its expected verdict in tests/papers/test_{key}*.py"


def test_every_claim_and_figure_has_a_test():
    missing = list(without_test(entries(), Path(__file__).parent))
    assert not missing, "\n".join(missing)


def test_a_claim_without_a_test_is_named_with_the_file_to_touch(tmp_path):
    (tmp_path / "test_new2025_claims.py").write_text(
        'EXPECTED = {"lemma1": 1, "new2025/lemma2": 2}'
    )
    (tmp_path / "test_old2025.py").write_text('EXPECTED = {"lemma3": 1}')
    ids = [f"new2025/lemma{i}" for i in (1, 2, 3)]
    assert list(without_test(ids, tmp_path)) == [
        "new2025/lemma3 has no test: give it its expected verdict in tests/papers/test_new2025*.py"
    ]


def test_what_is_missing_of_a_paper_is_named_with_the_file_to_touch(papers_folder, monkeypatch):
    def refusal():
        with pytest.raises(registry.IncompletePaperError) as error:
            registry.check_papers(papers_folder, "some_papers")
        return str(error.value)

    lemma = papers_folder / "new2025" / "lemma.py"
    lemma.write_text("")
    assert str(lemma) in refusal()
    assert "__init__.py beside it" in refusal()
    lemma.unlink()
    monkeypatch.setitem(registry.PAPERS, "other2025", PAPERS["ahn2023"])
    assert f"has no folder {papers_folder / 'other2025'} with an __init__.py" in refusal()
    monkeypatch.delitem(registry.PAPERS, "other2025")
    (papers_folder / "extra2025").mkdir()
    (papers_folder / "extra2025" / "__init__.py").write_text("")
    assert "registry.PAPERS has no key 'extra2025'" in refusal()
