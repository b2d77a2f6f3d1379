"""The papers: every theorem, lemma and figure as a claim or figure with a measured verdict."""

from innerloop.papers.parallel import measure_all
from innerloop.papers.registry import (
    PAPERS,
    Claim,
    Entry,
    Figure,
    FigureData,
    Paper,
    Table,
    claim,
    entries,
    figure,
    select,
)
from innerloop.papers.reproduce import Result, all_found, found, reproduce
from innerloop.papers.verdict import Check, Correction, Outcome, Scale, Verdict

__all__ = [
    "PAPERS",
    "Check",
    "Claim",
    "Correction",
    "Entry",
    "Figure",
    "FigureData",
    "Outcome",
    "Paper",
    "Result",
    "Scale",
    "Table",
    "Verdict",
    "all_found",
    "claim",
    "entries",
    "figure",
    "found",
    "measure_all",
    "reproduce",
    "select",
]
