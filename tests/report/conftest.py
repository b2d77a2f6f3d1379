"""A few hand-made results: every outcome, a correction, a figure, and text that needs escaping."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Picture

from innerloop.papers.registry import Measurement, Table
from innerloop.papers.verdict import Check, Correction, Kind, Scale, Verdict
from innerloop.report import write_report
from innerloop.reproduction.reproduce import Result
from tests.entries import claim_of, figure_of

PRINTED = r"E[G^2] = \frac{n+2}{n} \Sigma^2"
CORRECTED = r"E[G^2] = \frac{n+1}{n} \Sigma^2"
AWKWARD = 'for x < y & "z" > <script>alert(1)</script>'


def check(measured: float, *, tolerance: float = 0.05, control: float = 1.5) -> Check:
    return Check("relative error", measured, tolerance, control, "float64", "a plain step")


def claim_result(id: str, verdict: Verdict, formula: str = r"a \le b", **words: str) -> Result:
    statement = words.get("statement", f"The statement of {id}")
    source = words.get("source", "Theorem 1")
    entry = claim_of(lambda scale: verdict, id, statement=statement, source=source, formula=formula)
    return Result(entry, Scale.SMOKE, verdict, seconds=0.3)


def draw_loss(tables: Mapping[str, Table]) -> Picture:
    picture = Picture()
    axes = picture.subplots()
    axes.plot(tables["loss"]["n"], tables["loss"]["risk"], marker="o", label="trained $A^*$")
    axes.set(xlabel="examples", ylabel="risk", yscale="log")
    axes.legend()
    return picture


def figure_result(id: str, verdict: Verdict) -> Result:
    tables: dict[str, Table] = {
        "loss": {"n": [1, 2, 3], "risk": [0.5, 0.1 + 0.2, 0.01]},
        "weights": {"name": ["p, q", "r"], "value": [float("nan"), 1e-300]},
    }
    data = Measurement(tables, "More examples lower the risk.", verdict)
    entry = figure_of(lambda scale: data, id, statement="Risk falls", draw=draw_loss)
    return Result(entry, Scale.SMOKE, verdict, 1.0, data.caption, data.tables)


@pytest.fixture
def results() -> list[Result]:
    correction = Correction(
        PRINTED, CORRECTED, "The moment of a Gaussian counts i = j once.", Kind.STATEMENT
    )
    settings = {"n": 20, "seed": 7, "spectrum": [1.0, 0.25], "note": AWKWARD}
    return [
        claim_result("ahn2023/holds", Verdict([check(0.01)], settings=settings)),
        claim_result(
            "ahn2023/holds-but-noted",
            Verdict([check(0.0476)], [check(1.234e-15, tolerance=1e-10)], correction),
        ),
        claim_result(
            "ahn2023/off",
            Verdict([check(0.31, tolerance=1e-10)], [check(2e-13, tolerance=1e-10)], correction),
        ),
        claim_result("ahn2023/fails", Verdict([check(0.7)])),
        claim_result("ahn2023/missing", Verdict([check(0.7)], missing="The model kept still.")),
        claim_result("ahn2023/blind", Verdict([check(0.01, control=0.02)])),
        claim_result("ahn2023/awkward", Verdict([check(0.01)]), statement=AWKWARD),
        figure_result("ahn2023/figure2", Verdict([check(0.02)])),
    ]


def failed(result: Result, error: str) -> Result:
    """The same entry as it is reported when it could not be measured: without any numbers."""
    return Result(result.entry, result.scale, Verdict([], error=error), seconds=0.1)


@pytest.fixture
def page(results: list[Result], tmp_path: Path) -> str:
    return write_report(results, tmp_path / "report").read_text()
