import csv
import errno
import io
import json
import math
import os
import sys

import pytest

from innerloop.papers import Check, Correction, Kind, Measurement, Outcome, Scale, Verdict, entries
from innerloop.reproduction import all_found, found, reproduce
from innerloop.reproduction.stored import sealed
from innerloop.runs import RunStore
from innerloop.tables import as_csv
from tests.entries import claim_of, figure_of

TABLES = {
    "loss": {"step": [0, 1], "value": [0.1 + 0.2, 1e-300]},
    "names": {"name": ["a, b", 'c "d"'], "n": [1, 2]},
}


class Measured:
    """A claim and a figure that count how often they were measured."""

    def __init__(self):
        self.times = 0
        self.claim = claim_of(self.verdict, formula="a = b")
        self.figure = figure_of(self.data)

    def verdict(self, scale):
        self.times += 1
        printed = Check("error", 0.5 + self.times, 1.0, 9.0, "float64", "a plain step")
        corrected = Check("gap", 1e-13, 1e-10, float("inf"), "algebra", "another", at_least=False)
        correction = Correction("a = b", "a = 2 b", "a factor", Kind.CONSTANT)
        settings = {"n": 20, "scale": str(scale), "spectrum": [1.0, 0.25]}
        return Verdict([printed], [corrected], correction, settings)

    def data(self, scale):
        return Measurement(TABLES, "A caption.", self.verdict(scale))


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
    [
        b"",
        b'{"sha256": "x", "resul',
        b"\xff\xfe\x00",
        b"{}",
        b"[]",
        b"null",
        b"NaN",
        b'{"result": {}}',
        b'{"sha256": [], "result": null}',
        b"[" * 100_000 + b"]" * 100_000,
    ],
    ids=str,
)
def test_a_damaged_result_is_measured_again(measured, store, content):
    reproduce(measured.claim, Scale.SMOKE, store)
    result_file(store).write_bytes(content)
    again = reproduce(measured.claim, Scale.SMOKE, store)
    assert measured.times == 2
    assert not again.from_disk
    assert reproduce(measured.claim, Scale.SMOKE, store).from_disk


def changed(record, path, value):
    """The record with the value in the place that the path names; None takes it away."""
    *way, last = path
    place = record
    for key in way:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return record


TAMPERED = {
    "another claim": (["id"], "ahn2023/y"),
    "another scale": (["scale"], "paper"),
    "no verdict": (["verdict"], None),
    "a text for a verdict": (["verdict"], "holds"),
    "no checks": (["verdict", "printed"], None),
    "checks by name": (["verdict", "printed"], {}),
    "a text for a check": (["verdict", "printed", 0], "passes"),
    "a check without a control": (["verdict", "printed", 0, "control"], None),
    "a check with more": (["verdict", "printed", 0, "more"], 1),
    "a text for a number": (["verdict", "printed", 0, "measured"], "NaN"),
    "true for a number": (["verdict", "printed", 0, "measured"], True),
    "a list for a number": (["verdict", "printed", 0, "tolerance"], [1.0]),
    "a number for a text": (["verdict", "printed", 0, "why"], 1),
    "a text for a truth value": (["verdict", "printed", 0, "at_least"], "no"),
    "a text for a correction": (["verdict", "correction"], "a = b"),
    "half a correction": (["verdict", "correction", "printed"], None),
    "a number in a correction": (["verdict", "correction", "printed"], 1),
    "a list for settings": (["verdict", "settings"], []),
    "a number for what is missing": (["verdict", "missing"], 1),
    "a time that is none": (["seconds"], float("nan")),
    "a negative time": (["seconds"], -1),
    "a text for a time": (["seconds"], "1"),
    "no caption": (["caption"], None),
    "a list of tables": (["tables"], []),
    "a list for a table": (["tables", "loss"], []),
    "columns of different lengths": (["tables", "loss", "step"], [1]),
    "a text for a column": (["tables", "loss", "step"], "12"),
    "a list in a column": (["tables", "loss", "step"], [[1], 2]),
}


@pytest.mark.parametrize("resealed", [False, True], ids=["by hand", "with its checksum"])
@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_result_is_measured_again(measured, store, name, resealed):
    reproduce(measured.figure, Scale.SMOKE, store)
    path, content = result_file(store), json.loads(result_file(store).read_text())
    record = changed(content["result"], *TAMPERED[name])
    path.write_text(sealed(record) if resealed else json.dumps(content))
    again = reproduce(measured.figure, Scale.SMOKE, store)
    assert measured.times == 2
    assert again.tables == TABLES


def test_a_number_changed_by_hand_is_not_believed(measured, store):
    reproduce(measured.claim, Scale.SMOKE, store)
    path = result_file(store)
    path.write_text(path.read_text().replace("1.5", "0.5"))
    assert found(measured.claim, Scale.SMOKE, store) is None


@pytest.mark.parametrize("part", ["code_behind", "torch"])
def test_other_code_and_another_torch_measure_again(measured, store, monkeypatch, part):
    reproduce(measured.claim, Scale.SMOKE, store)
    if part == "torch":
        monkeypatch.setattr("torch.__version__", "0.0.1")
    else:
        module = sys.modules["innerloop.reproduction.reproduce"]  # not the function
        monkeypatch.setattr(module, "code_behind", lambda function: "another")
    reproduce(measured.claim, Scale.SMOKE, store)
    assert measured.times == 2
    monkeypatch.undo()
    assert reproduce(measured.claim, Scale.SMOKE, store).from_disk


def raises(error):
    def check(scale):
        raise error

    return claim_of(check)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (RuntimeError("out of luck"), "RuntimeError: out of luck"),
        (FloatingPointError("the loss\n  became nan"), "FloatingPointError: the loss became nan"),
        (AssertionError(), "AssertionError: no message"),
        (MemoryError("8 GB"), "MemoryError: 8 GB"),
    ],
)
def test_a_check_that_raises_is_an_error_with_its_sentence(store, error, sentence):
    result = reproduce(raises(error), Scale.SMOKE, store)
    assert result.outcome is Outcome.ERROR
    assert result.verdict.error == sentence
    assert result.as_json()["error"] == sentence
    assert result.as_json()["verdict"] == "error"


def test_an_error_is_not_kept_as_a_result_but_its_traceback_is_until_it_is_mended(store):
    reproduce(raises(RuntimeError("out of luck")), Scale.SMOKE, store)
    (file,) = store.root.glob("*/*")
    assert file.name == "error.txt"
    assert "in check\n    raise error\nRuntimeError: out of luck" in file.read_text()
    mended = claim_of(lambda scale: Verdict([]))
    assert found(mended, Scale.SMOKE, store) is None
    assert reproduce(mended, Scale.SMOKE, store).outcome is Outcome.INCONCLUSIVE
    assert [path.name for path in store.root.glob("*/*")] == ["result.json"]


def test_ctrl_c_in_a_check_is_no_error_of_the_check(store):
    with pytest.raises(KeyboardInterrupt):
        reproduce(raises(KeyboardInterrupt()), Scale.SMOKE, store)


def test_a_full_disk_is_an_error_of_the_entry(measured, store, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    result = reproduce(measured.figure, Scale.SMOKE, store)
    assert result.outcome is Outcome.ERROR
    assert result.verdict.error.startswith("it could not be saved: cannot write")
    assert result.verdict.error.endswith("No space left on device")
    monkeypatch.undo()
    assert reproduce(measured.figure, Scale.SMOKE, store).outcome is Outcome.CORRECTED


def test_what_cannot_be_kept_is_an_error_of_the_entry(store):
    uneven = Measurement({"t": {"a": [1, 2], "b": [1]}}, "", Verdict([]))
    entry = figure_of(lambda scale: uneven)
    assert reproduce(entry, Scale.SMOKE, store).verdict.error.startswith("ValueError: zip()")


def test_everything_of_a_scale_that_is_on_disk_is_found(store):
    for id in ("zhang2023/lemmaC.3", "ahn2023/lemma2"):
        reproduce(entries()[id], Scale.SMOKE, store)
    known = all_found(Scale.SMOKE, store)
    assert list(known) == ["ahn2023/lemma2", "zhang2023/lemmaC.3"]
    assert all(result.from_disk for result in known.values())
    assert all_found(Scale.QUICK, store) == {}


def test_numbers_that_are_not_finite_survive_the_disk(store):
    nan = Check("error", float("nan"), float("inf"), 9.0, "", "")
    entry = claim_of(lambda scale: Verdict([nan]))
    for _ in range(2):
        (check,) = reproduce(entry, Scale.SMOKE, store).verdict.printed
        assert math.isnan(check.measured)
        assert check.tolerance == float("inf")


def test_the_machine_readable_form_names_every_number(measured, store):
    record = reproduce(measured.claim, Scale.SMOKE, store).as_json()
    assert record["error"] == ""
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
