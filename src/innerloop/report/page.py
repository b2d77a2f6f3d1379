"""Writes the report: one page with everything in it, and figures and their numbers beside it."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from innerloop import index
from innerloop.papers.registry import PAPERS, Paper, Table
from innerloop.papers.verdict import Kind, Outcome
from innerloop.report import number_format
from innerloop.report.findings import findings
from innerloop.report.inside import draw_shares, shares_table
from innerloop.report.mathml import FormulaError, to_mathml
from innerloop.report.plot_style import Draw, drawn
from innerloop.report.prose import prose
from innerloop.report.provenance import provenance
from innerloop.reproduction.inside import Inside
from innerloop.reproduction.reproduce import Result
from innerloop.runs import OutputError, writable_folder, write_atomic
from innerloop.tables import TextTable, as_csv

WIDE = 1.8
"""Figures wider than this many times their height take the whole column."""

MEANINGS = {
    Outcome.HOLDS: "every measured number is within its tolerance, and the control's is not",
    Outcome.CORRECTED: "the statement as printed is off; in its corrected form it holds",
    Outcome.FAILS: "a measured number is outside its tolerance",
    Outcome.INCONCLUSIVE: "the scale gave too little, or the control could not be told apart",
    Outcome.ERROR: "it could not be measured, and the sentence beside it says why",
}


@dataclass(frozen=True)
class Download:
    """A table as a file beside the page and, so that the page works alone, inside it."""

    name: str
    file: str
    uri: str


@dataclass(frozen=True)
class FigureFiles:
    """A drawn figure: where it lies beside the page, and the same inside it."""

    path: str
    uri: str
    wide: bool
    downloads: Sequence[Download]
    to_read: Sequence[TextTable] = ()


@dataclass(frozen=True)
class Section:
    """One paper's results."""

    paper: Paper
    claims: Sequence[Result]
    figures: Sequence[Result]

    @property
    def results(self) -> Sequence[Result]:
        return [*self.claims, *self.figures]


def write_report(
    results: Sequence[Result],
    folder: Path,
    *,
    command: str = "innerloop reproduce",
    inside: Sequence[Inside] = (),
) -> Path:
    """Writes folder/index.html and folder/figures, and returns the path of the page.

    `command` is what a reader types, before an id and options, to measure again; `inside` is what
    was found in trained models, a section of its own if there is any.
    """
    _sections(results)
    _check_formulas(results)
    writable_folder(folder)
    figures, results = _write_figures(results, folder)
    sections = _sections(results)
    shares = shares_table(inside)
    page = folder / "index.html"
    write_atomic(
        page,
        _environment()
        .get_template("template.html")
        .render(
            findings=findings(results),
            sections=sections,
            figures=figures,
            corrections=_corrections(sections),
            counts=Counter(result.outcome for result in results),
            meanings=_meanings(results),
            scales=" and ".join(dict.fromkeys(str(result.scale) for result in results)),
            seconds=sum(result.seconds for result in results),
            provenance=provenance(),
            command=command,
            places=_places(results),
            inside=inside,
            shares=_write_figure("inside", draw_shares, {"shares": shares}, folder)
            if shares
            else None,
        ),
    )
    return page


def _places(results: Sequence[Result]) -> dict[str, str]:
    """file:line of what measures each result, below the package; nothing for what has none."""
    indexed = index.entries()
    return {
        result.id: f"{indexed[result.id].file}:{indexed[result.id].line}"
        for result in results
        if result.id in indexed
    }


def _meanings(results: Sequence[Result]) -> dict[Outcome, str]:
    """What each outcome means; errors are spoken of only where there are any."""
    errors = any(result.outcome == Outcome.ERROR for result in results)
    return {o: words for o, words in MEANINGS.items() if o != Outcome.ERROR or errors}


def needs_correction(result: Result) -> bool:
    """Whether a reader of the paper should know that something printed there is off."""
    return (
        result.outcome in {Outcome.CORRECTED, Outcome.FAILS}
        or result.verdict.correction is not None
    )


def _sections(results: Sequence[Result]) -> list[Section]:
    if not results:
        raise ValueError("results is empty: a report needs at least one measured claim or figure")
    unknown = [result.id for result in results if result.id.split("/")[0] not in PAPERS]
    if unknown:
        raise ValueError(
            f"results must be of the papers {', '.join(PAPERS)}; got {', '.join(unknown)}"
        )
    sections = []
    for key, paper in PAPERS.items():
        own = [result for result in results if result.id.split("/")[0] == key]
        if own:
            figures = [result for result in own if result.entry.kind == "figure"]
            claims = [result for result in own if result.entry.kind == "claim"]
            sections.append(Section(paper, claims, figures))
    return sections


def _corrections(sections: Sequence[Section]) -> dict[Paper, list[Result]]:
    """What each paper has that is off, without the papers of which nothing is."""
    every = {s.paper: [r for r in s.results if needs_correction(r)] for s in sections}
    return {paper: sorted(results, key=_weight) for paper, results in every.items() if results}


def _weight(result: Result) -> int:
    """The place of a correction: what contradicts a statement first, misprints last."""
    correction = result.verdict.correction
    return -1 if correction is None else list(Kind).index(correction.kind)


def _check_formulas(results: Sequence[Result]) -> None:
    """Finds a formula that cannot be typeset before anything is drawn or written."""
    for result in results:
        formulas = [result.entry.formula]
        if result.verdict.correction is not None:
            formulas += [result.verdict.correction.printed, result.verdict.correction.corrected]
        for formula in filter(None, formulas):
            try:
                to_mathml(formula)
            except FormulaError as error:
                raise FormulaError(f"{result.id}: {error}") from error


def _write_figures(
    results: Sequence[Result], folder: Path
) -> tuple[dict[str, FigureFiles], list[Result]]:
    """Draws what can be drawn; a figure that cannot be is an error on the page, not its end."""
    figures, shown = {}, []
    for result in results:
        if result.entry.kind == "figure" and result.outcome != Outcome.ERROR and result.tables:
            try:
                assert result.entry.draw is not None
                files = _write_figure(
                    result.id.replace("/", "-"), result.entry.draw, result.tables, folder
                )
                tabulate = result.entry.tabulate or (lambda tables: ())
                figures[result.id] = replace(files, to_read=tabulate(result.tables))
            except OutputError:
                raise
            except Exception as error:  # whatever a paper's drawing may raise
                sentence = f"measured, but not drawn: {type(error).__name__}: {error}"
                result = replace(result, verdict=replace(result.verdict, error=sentence))
        shown.append(result)
    return figures, shown


def _write_figure(name: str, draw: Draw, tables: Mapping[str, Table], folder: Path) -> FigureFiles:
    path = f"figures/{name}.svg"
    drawing = drawn(draw, tables, kept=folder / path)
    write_atomic(folder / path, drawing.svg)
    downloads = []
    for table_name, table in tables.items():
        text = as_csv(table)
        file = f"{name}-{table_name.replace('/', '-')}.csv"
        write_atomic(folder / "figures" / file, text)
        downloads.append(Download(table_name, file, _data_uri("text/csv", text)))
    return FigureFiles(
        path, _data_uri("image/svg+xml", drawing.svg), drawing.aspect > WIDE, downloads
    )


def _data_uri(kind: str, text: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(text.encode()).decode()}"


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("innerloop.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "mathml": to_mathml,
        "number": number_format.number,
        "number_beside": number_format.number_beside,
        "duration": number_format.duration,
        "setting": number_format.setting,
        "prose": prose,
        "slug": lambda outcome: str(outcome).rpartition(" ")[2],
    }
    environment.tests["needing_correction"] = needs_correction
    return environment
