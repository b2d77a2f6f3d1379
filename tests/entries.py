"""Entries made by hand, outside of the registry."""

from matplotlib.figure import Figure as Picture

from innerloop.papers import Entry, Measurement


def claim_of(
    check, id="ahn2023/x", *, statement="A statement", source="Theorem 1", formula=""
) -> Entry:
    """A claim whose verdict is check(scale)."""

    def measure(scale):
        return Measurement({}, "", check(scale))

    return Entry(id, statement, source, check, measure, formula=formula)


def figure_of(compute, id="ahn2023/f", *, statement="A picture", draw=None) -> Entry:
    """A figure whose numbers and verdict are compute(scale)."""
    return Entry(id, statement, "Figure 1", compute, compute, draw or (lambda tables: Picture()))
