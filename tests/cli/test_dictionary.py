"""`innerloop dictionary` as a user meets it."""

import re

import pytest

from innerloop.cli import main

TINY = ["--d", "3", "--features", "2", "--tokens", "8", "--shown", "3"]


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def said(capsys):
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


def losses(output):
    """Loss, distance from the best and loss out of domain, by the start of a row's name."""
    rows = ("16 heads, trained", "penalty m tau", "penalty N tau", "0 for the others", "zero")
    number = r"([-+.\de]+)"
    found = {row: re.search(rf"{row} {number} {number} {number}", output) for row in rows}
    return {row: tuple(map(float, match.groups())) for row, match in found.items()}


@pytest.mark.parametrize("objective", ["exact", "prompts"])
def test_trained_heads_come_near_ridge_regression_and_nothing_is_below_it(objective, capsys):
    assert main(["dictionary", *TINY, "--steps", "400", "--objective", objective]) == 0
    output = said(capsys)
    table = losses(output)
    best = table["penalty m tau"][0]
    assert table["penalty m tau"][1] == 0
    assert all(loss >= best for loss, _, _ in table.values())
    assert table["16 heads, trained"][1] < 0.1 * table["zero"][1]
    stated = re.search(r"has the loss ([-+.\de]+);", output)
    assert float(stated[1]) == pytest.approx(best, rel=1e-3)


def test_a_single_head_stays_above_its_floor(capsys):
    assert main(["dictionary", *TINY, "--heads", "1", "--steps", "200"]) == 0
    output = said(capsys)
    floor = float(output.rsplit(maxsplit=1)[-1])
    gap = float(re.search(r"1 head, trained [-+.\de]+ ([-+.\de]+)", output)[1])
    assert gap >= floor > 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--heads", "0"], "heads must be at least 1, got 0"),
        (["--shown", "30", "--tokens", "20"], "shown must be between 1 and the 20 tokens"),
        (["--tau", "-1"], "tau is a variance: it must be finite and >= 0, got -1.0"),
        (["--batch", "0"], "batch must be at least 1, got 0"),
        (["--steps", "0"], "steps must be at least 1, got 0"),
        (["--lr", "0"], "lr must be positive, got 0.0"),
    ],
)
def test_bad_input_gets_its_sentence(arguments, sentence, capsys):
    assert main(["dictionary", *arguments]) == 2
    assert sentence in said(capsys)
