"""What the report opens with: words that belong to a verdict, numbers that belong to a result."""

from dataclasses import replace

import pytest

from innerloop.papers import Check, Outcome, Scale, Verdict, entries, select
from innerloop.report.findings import FINDINGS, check_of, findings, rounded
from innerloop.reproduction import Result, reproduce
from innerloop.runs import RunStore

GOOD = Check("a", 0.0, 1.0, 2.0, "why", "control")
BAD = Check("a", 1.5, 1.0, 2.0, "why", "control")


@pytest.fixture(scope="module")
def result(tmp_path_factory) -> Result:
    (entry,) = select(["gatmiry2024/asymmetric"])
    return reproduce(entry, Scale.SMOKE, RunStore(tmp_path_factory.mktemp("runs")))


def test_every_finding_is_of_a_claim_or_figure_that_exists_and_of_each_paper_there_is_one():
    ids = [finding.id for finding in FINDINGS]
    assert len(ids) == len(set(ids))
    assert set(ids) <= set(entries())
    assert {id.split("/")[0] for id in ids} == {id.split("/")[0] for id in entries()}


def test_a_finding_is_told_only_where_its_claim_was_measured(result):
    assert [finding.id for finding, _ in findings([result])] == [result.id]
    (other,) = select(["ahn2023/lemma2"])
    assert findings([replace(result, entry=other)]) == []
    assert findings([]) == []


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict([], error="the worker was killed"),
        Verdict([], missing="too few samples"),
        Verdict([BAD], [GOOD]),
        Verdict([BAD]),
    ],
    ids=[Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.CORRECTED, Outcome.FAILS],
)
def test_a_finding_is_not_told_with_another_verdict(result, verdict):
    assert findings([replace(result, verdict=verdict)]) == []


def test_the_numbers_are_those_of_the_result(result):
    ((finding, _),) = findings([result])
    printed = result.verdict.printed[0]
    assert f"{-printed.measured:.1%}" in finding.sentence(result)
    others = result.verdict.printed[1:]
    moved = replace(result.verdict, printed=[replace(printed, measured=-0.876), *others])
    assert "87.6%" in finding.sentence(replace(result, verdict=moved))


def test_a_check_that_is_not_there_is_named(result):
    with pytest.raises(LookupError, match=r"gatmiry2024/asymmetric must have one .*'no such'"):
        check_of(result, "no such")


@pytest.mark.parametrize(
    ("value", "text"),
    [(58915697.5, "58,900,000"), (241.3, "241"), (1.6608, "1.66"), (0.01234, "0.0123"), (2.0, "2")],
)
def test_numbers_have_three_digits(value, text):
    assert rounded(value) == text


def test_what_is_said_of_translators_is_what_their_table_has(tmp_path):
    (entry,) = select(["algoformer2024/table1"])
    result = reproduce(entry, Scale.SMOKE, RunStore(tmp_path))
    ((_, found),) = findings([result])
    (finding,) = (f for f in FINDINGS if f.id == entry.id)
    results, _ = entry.tabulate(result.tables)
    (row,) = (r for r in results.rows if r[0].startswith("nats for a token"))
    for cell in row[1:]:
        assert f"{float(cell.split()[0]):.2f}" in finding.sentence(found)
    assert "with 43% of its parameters" in finding.sentence(found)
