"""Everything that has a name, read from the source: nothing that computes is imported for it."""

from innerloop.index.catalogue import CatalogueItem, catalogue
from innerloop.index.papers import IndexedEntry, IndexedPaper, entries, papers
from innerloop.index.records import SHORT_NAMES, IndexedRecord, trained_models
from innerloop.index.selection import UnknownIdError, choose
from innerloop.index.source import PACKAGE, NotLiteralError

__all__ = [
    "PACKAGE",
    "SHORT_NAMES",
    "CatalogueItem",
    "IndexedEntry",
    "IndexedPaper",
    "IndexedRecord",
    "NotLiteralError",
    "UnknownIdError",
    "catalogue",
    "choose",
    "entries",
    "papers",
    "trained_models",
]
