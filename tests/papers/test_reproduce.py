import csv
import io
import json
import math

import pytest
from matplotlib.figure import Figure as Picture

from innerloop import runs
from innerloop.papers import (
    Check,
    Claim,
    Correction,
    Figure,
    FigureData,
    Outcome,
    Scale,
    Verdict,
    as_csv,
    reproduce,
)
from innerloop.runs import RunStore

TABLES = {
    "loss": {"step": [0, 1], "value": [0.1 + 0.2, 1e-300]},
    "names": {"name": ["a, b", 'c "d"'], "n": [1, 2]},
}


class Measured:
    """A claim and a figure that count how often they were measured."""

    def __init__(self):
        self.times = 0
        self.claim = Claim("ahn2023/x", "A statement", "a = b", self.verdict, "Theorem 1")
        self.figure = Figure("ahn2023/f", "A picture", self.data, lambda t: Picture(), "Figure 1")

    def verdict(self, scale):
        self.times += 1
        printed = Check("error", 0.5 + self.times, 1.0, 9.0, "float64", "a plain step")
        corrected = Check("gap", 1e-13, 1e-10, float("inf"), "algebra", "another", at_least=False)
        correction = Correction("a = b", "a = 2 b", "a factor")
        settings = {"n": 20, "scale": str(scale), "spectrum": [1.0, 0.25]}
        return Verdict([printed], [corrected], correction, settings)

    def data(self, scale):
        return FigureData(TABLES, "A caption.", self.verdict(scale))


@pytest.fixture
def measured():
    return Measured()


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "runs")


def result_file(store):
    (path,) = store.root.glob("*/result.json")
    return path


def test_a_result_is_measured_once_and_then_found(measured, store):
    first = reproduce(measured.claim, Scale.SMOKE, store)
    second = reproduce(measured.claim, Scale.SMOKE, store)
    assert measured.times == 1
    assert (first.from_disk, second.from_disk) == (False, True)
    assert first.verdict == second.verdict
    assert first.seconds == second.seconds
    assert first.outcome is second.outcome is Outcome.CORRECTED


def test_a_result_is_what_the_check_returned(measured, store):
    result = reproduce(measured.claim, Scale.SMOKE, store)
    assert result.id == "ahn2023/x"
    measured.times = 0
    expected = measured.verdict(Scale.SMOKE)
    assert list(result.verdict.printed) == list(expected.printed)
    assert list(result.verdict.corrected) == list(expected.corrected)
    assert result.verdict.correction == expected.correction
    assert result.verdict.settings == expected.settings


def test_a_figure_keeps_its_tables_and_caption(measured, store):
    for _ in range(2):
        result = reproduce(measured.figure, Scale.SMOKE, store)
        assert result.tables == TABLES
        assert result.caption == "A caption."
    assert measured.times == 1


def test_a_figures_tables_are_written_as_csv(measured, store):
    reproduce(measured.figure, Scale.SMOKE, store)
    folder = result_file(store).parent
    assert sorted(p.name for p in folder.iterdir()) == ["loss.csv", "names.csv", "result.json"]
    rows = list(csv.reader(io.StringIO((folder / "loss.csv").read_text())))
    assert rows[0] == ["step", "value"]
    assert [float(row[1]) for row in rows[1:]] == TABLES["loss"]["value"]


def test_force_measures_again(measured, store):
    reproduce(measured.claim, Scale.SMOKE, store)
    again = reproduce(measured.claim, Scale.SMOKE, store, force=True)
    assert measured.times == 2
    assert not again.from_disk
    assert again.verdict.printed[0].measured == 2.5
    assert reproduce(measured.claim, Scale.SMOKE, store).verdict == again.verdict


def test_another_scale_is_another_result(measured, store):
    reproduce(measured.claim, Scale.SMOKE, store)
    other = reproduce(measured.claim, Scale.QUICK, store)
    assert measured.times == 2
    assert other.verdict.settings["scale"] == "quick"


@pytest.mark.parametrize(
    "content",
    [b"", b'{"id": "ahn2023/x", "verd', b"\xff\xfe\x00", b"{}", b"[]", b"null", b'{"verdict": {}}'],
)
def test_a_damaged_result_is_measured_again(measured, store, content):
    reproduce(measured.claim, Scale.SMOKE, store)
    result_file(store).write_bytes(content)
    again = reproduce(measured.claim, Scale.SMOKE, store)
    assert measured.times == 2
    assert not again.from_disk
    assert reproduce(measured.claim, Scale.SMOKE, store).from_disk


def test_other_code_measures_again(measured, store, monkeypatch):
    reproduce(measured.claim, Scale.SMOKE, store)
    monkeypatch.setattr(runs, "code_version", lambda: "another")
    reproduce(measured.claim, Scale.SMOKE, store)
    assert measured.times == 2
    monkeypatch.undo()
    assert reproduce(measured.claim, Scale.SMOKE, store).from_disk


def test_a_check_that_raises_leaves_no_result(store):
    def fail(scale):
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        reproduce(Claim("ahn2023/x", "", "", fail, ""), Scale.SMOKE, store)
    assert not list(store.root.glob("*/result.json"))


def test_numbers_that_are_not_finite_survive_the_disk(store):
    nan = Check("error", float("nan"), float("inf"), 9.0, "", "")
    entry = Claim("ahn2023/x", "", "", lambda scale: Verdict([nan]), "")
    for _ in range(2):
        (check,) = reproduce(entry, Scale.SMOKE, store).verdict.printed
        assert math.isnan(check.measured)
        assert check.tolerance == float("inf")


def test_the_machine_readable_form_names_every_number(measured, store):
    record = reproduce(measured.claim, Scale.SMOKE, store).as_json()
    assert record["id"] == "ahn2023/x"
    assert record["kind"] == "claim"
    assert record["verdict"] == "holds as corrected"
    assert record["statement"] == "A statement"
    assert record["measured"] == {"error": 1.5, "gap": 1e-13}
    assert record["control"] == {"error": 9.0, "gap": float("inf")}
    assert record["tolerance"] == {"error": 1.0, "gap": 1e-10}
    assert record["why"] == "float64; algebra"
    assert record["seconds"] >= 0
    json.dumps(record)


def test_csv_has_a_header_and_full_precision():
    assert as_csv({"n": [1, 2], "x": [0.1 + 0.2, "a, b"]}) == (
        'n,x\n1,0.30000000000000004\n2,"a, b"\n'
    )


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="zip"):
        as_csv({"n": [1, 2], "x": [1]})
