"""The papers: every theorem, lemma and figure as a claim or figure with a measured verdict."""

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
    "Scale",
    "Table",
    "Tables",
    "Tolerance",
    "Verdict",
    "claim",
    "entries",
    "figure",
    "select",
]
