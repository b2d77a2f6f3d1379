"""The papers: every theorem, lemma and figure as a claim or figure with a measured verdict."""

from innerloop.papers.parallel import measure_all
from innerloop.papers.quantity import Cases, Quantity, Tolerance
from innerloop.papers.registry import (
    PAPERS,
    Entry,
    Measurement,
    Numbers,
    Paper,
    Table,
    Tables,
    claim,
    entries,
    figure,
    select,
)
from innerloop.papers.reproduce import Result, all_found, found, reproduce
from innerloop.papers.verdict import Check, Correction, Kind, Outcome, Scale, Verdict

__all__ = [
    "PAPERS",
    "Cases",
    "Check",
    "Correction",
    "Entry",
    "Kind",
    "Measurement",
    "Numbers",
    "Outcome",
    "Paper",
    "Quantity",
    "Result",
    "Scale",
    "Table",
    "Tables",
    "Tolerance",
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
