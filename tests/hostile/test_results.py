"""Results of claims, changed by hand in every place: measured again, never an exception."""

import copy
import json

import pytest

from innerloop.papers import Check, Correction, Kind, Scale, Verdict
from innerloop.report import write_report
from innerloop.reproduction import found, reproduce
from innerloop.reproduction.reproduce import Result
from innerloop.reproduction.stored import sealed
from innerloop.runs import RunStore
from tests.entries import claim_of

WRONG = (None, -5, "x", [], {}, 1.5, True, 10**400)
REMOVED = "removed"


class Counted:
    """A claim that counts how often it was measured."""

    def __init__(self):
        self.times = 0
        self.claim = claim_of(self.verdict, formula="a = b")

    def verdict(self, scale):
        self.times += 1
        off = Check("error", 3.0, 1.0, 9.0, "float64", "a plain step")
        right = Check("gap", 1e-13, 1e-10, 2.0, "algebra", "another")
        return Verdict(
            [off], [right], Correction("a = b", "a = 2 b", "a factor", Kind.CONSTANT), {"n": 20}
        )


@pytest.fixture
def counted():
    return Counted()


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "runs")


def places(value, path=()):
    """The way to every entry of nested dictionaries and lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


def at(content, path):
    for key in path:
        content = content[key]
    return content


def changed(content, path, value):
    content = copy.deepcopy(content)
    *way, last = path
    place = at(content, way)
    if value is REMOVED:
        del place[last]
    else:
        place[last] = value
    return content


def of_one_kind(before, after):
    """Whether a reader could take one for the other: two numbers, or two words."""

    def is_number(value):
        return isinstance(value, int | float) and not isinstance(value, bool)

    return type(before) is type(after) or (is_number(before) and is_number(after))


def test_a_result_changed_anywhere_is_measured_again(counted, store):
    """The checksum stays as it was: whatever the change, it is seen."""
    reproduce(counted.claim, Scale.SMOKE, store)
    (path,) = store.root.glob("*/result.json")
    whole = json.loads(path.read_text())
    cases = 0
    for place in places(whole):
        for value in (REMOVED, *WRONG):
            other = changed(whole, place, value)
            if other == whole:
                continue
            path.write_text(json.dumps(other))
            assert found(counted.claim, Scale.SMOKE, store) is None, (place, value)
            cases += 1
    assert cases > 200
    before = counted.times
    assert not reproduce(counted.claim, Scale.SMOKE, store).from_disk
    assert counted.times == before + 1
    assert found(counted.claim, Scale.SMOKE, store) is not None


def test_a_result_sealed_again_with_a_wrong_type_is_measured_again(counted, store):
    reproduce(counted.claim, Scale.SMOKE, store)
    (path,) = store.root.glob("*/result.json")
    record = json.loads(path.read_text())["result"]
    refused = 0
    for place in places(record):
        for value in (REMOVED, *WRONG):
            other = changed(record, place, value)
            path.write_text(sealed(other))
            believed = found(counted.claim, Scale.SMOKE, store)
            if believed is None:
                refused += 1
            else:  # a number for a number, a word for a word: nobody can tell
                free = place[:2] == ("verdict", "settings") or isinstance(at(record, place), list)
                listed = isinstance(place[-1], int)
                optional = place == ("verdict", "correction") and value is None
                same = value is not REMOVED and of_one_kind(at(record, place), value)
                assert free or listed or optional or same, (place, value)
    assert refused > 150


@pytest.mark.parametrize("value", [*WRONG, float("nan"), [1, [2, {}]]])
def test_settings_of_any_kind_are_shown_in_the_report(counted, store, tmp_path, value):
    verdict = counted.verdict(Scale.SMOKE)
    settings = {"n": value, "<odd>": 1}
    shown = Verdict(verdict.printed, verdict.corrected, verdict.correction, settings)
    result = Result(counted.claim, Scale.SMOKE, shown, 1.0)
    page = write_report([result], tmp_path / "report").read_text()
    assert "<odd>" not in page
    assert "&lt;odd&gt;" in page


ATTACK = "<script>alert(1)</script>"


def test_markup_in_words_and_formulas_reaches_the_report_as_text(tmp_path):
    formula = rf"a = \text{{{ATTACK}}}"
    check = Check(ATTACK, 3.0, 1.0, 9.0, ATTACK, ATTACK)
    right = Check("gap", 0.0, 1.0, 9.0, "why", "control")
    correction = Correction(formula, formula, ATTACK, Kind.MISPRINT, ATTACK)

    def verdict(scale):
        return Verdict([check], [right], correction, {ATTACK: ATTACK})

    words = {"statement": ATTACK, "source": ATTACK, "formula": formula}
    claim = claim_of(verdict, **words)
    results = [
        Result(claim, Scale.SMOKE, verdict(Scale.SMOKE), 1.0),
        Result(
            claim_of(verdict, "ahn2023/y", **words),
            Scale.SMOKE,
            Verdict([], error=ATTACK),
            1.0,
        ),
    ]
    page = write_report(results, tmp_path, command=f"innerloop {ATTACK}").read_text()
    assert "alert(1)" in page
    assert "<script>alert" not in page
