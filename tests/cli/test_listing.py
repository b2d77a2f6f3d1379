"""`innerloop list`: at most two lines of 80 columns for each name, and narrower views."""

import pytest

from innerloop import index
from innerloop.cli import main
from innerloop.experiments import Record


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def listed(capsys, *arguments):
    assert main(["list", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_every_entry_takes_two_lines_of_eighty_columns(capsys):
    *lines, package = listed(capsys)
    assert package == f"files are below {index.PACKAGE}"
    assert max(map(len, lines)) <= 80
    for id, entry in index.entries().items():
        (at,) = [i for i, line in enumerate(lines) if line.startswith(f"{id} ")]
        assert lines[at].endswith(f" {entry.file}:{entry.line}")
        assert entry.statement.startswith(lines[at + 1].strip().rstrip("…"))


def test_a_paper_narrows_the_list_to_its_entries(capsys):
    ids = [line.split()[0] for line in listed(capsys, "zhang2023") if line.endswith(tuple("0123456789"))]  # fmt: skip  # noqa: E501
    assert ids == [id for id in index.entries() if id.startswith("zhang2023/")]


def test_one_entry_is_shown_in_full(capsys):
    id, entry = max(index.entries().items(), key=lambda pair: len(pair[1].statement))
    output = " ".join(" ".join(listed(capsys, id)).split())
    assert all(text in output for text in (entry.statement, f"source: {entry.source}"))
    assert f"{entry.file}:{entry.line}" in output


def test_a_table_of_the_catalogue_is_shown_with_its_options(capsys):
    output = " ".join(listed(capsys, "models"))
    assert "gd++" in output
    assert "options: layers=2,loops=1,std=0.05" in output
    assert "lasso" not in output


def test_grep_finds_text_in_names_statements_and_sources_whatever_its_case(capsys):
    output = "\n".join(listed(capsys, "--grep", "FLOW"))
    for id, entry in index.entries().items():
        inside = "flow" in f"{id}\n{entry.statement}\n{entry.source}".lower()
        assert (f"{id} " in output) == inside


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["zhang2024"], "nothing is called 'zhang2024'; the nearest are zhang2023"),
        (["--grep", "qqq"], "nothing that is listed has 'qqq' in its name, statement or source"),
        (["ahn2023", "--grep", "[/]"], "has '[/]' in its name"),
    ],
)
def test_a_list_of_nothing_is_refused(capsys, arguments, sentence):
    assert main(["list", *arguments]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_every_trained_model_that_ships_is_listed_by_the_name_it_is_opened_by(capsys):
    output = listed(capsys, "records")
    names = [record.name for record in index.trained_models()]
    assert set(index.SHORT_NAMES) < set(names)
    assert set(names) <= set(output)
    for name in names:
        assert Record.open(name).has_weights
