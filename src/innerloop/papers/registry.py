"""Claims and figures, registered by id."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from matplotlib.figure import Figure as Picture

from innerloop.papers.verdict import Scale, Verdict

Table = Mapping[str, Sequence[float | int | str]]
"""Named columns of equal length."""


@dataclass(frozen=True)
class Paper:
    """Where a claim comes from."""

    key: str
    authors: str
    title: str
    year: int
    arxiv: str


AHN2023 = Paper(
    "ahn2023",
    "Kwangjun Ahn, Xiang Cheng, Hadi Daneshmand and Suvrit Sra",
    "Transformers learn to implement preconditioned gradient descent for in-context learning",
    2023,
    "2306.00297",
)
ZHANG2023 = Paper(
    "zhang2023",
    "Ruiqi Zhang, Spencer Frei and Peter L. Bartlett",
    "Trained transformers learn linear models in-context",
    2023,
    "2306.09927",
)
GATMIRY2024 = Paper(
    "gatmiry2024",
    "Khashayar Gatmiry, Nikunj Saunshi, Sashank J. Reddi, Stefanie Jegelka and Sanjiv Kumar",
    "Can looped transformers learn to implement multi-step gradient descent for in-context "
    "learning?",
    2024,
    "2410.08292",
)
YANG2024 = Paper(
    "yang2024",
    "Tong Yang, Yu Huang, Yingbin Liang and Yuejie Chi",
    "In-context learning with representations: contextual generalization of trained transformers",
    2024,
    "2408.10147",
)
PAPERS = {paper.key: paper for paper in (AHN2023, ZHANG2023, GATMIRY2024, YANG2024)}


@dataclass(frozen=True)
class FigureData:
    """A figure before it is drawn: its numbers, what they show, and the verdict on them."""

    tables: Mapping[str, Table]
    caption: str
    verdict: Verdict


@dataclass(frozen=True)
class Claim:
    """One checkable statement of a paper."""

    id: str
    statement: str
    formula: str
    """The statement in LaTeX, in the paper's own form."""
    check: Callable[[Scale], Verdict]
    source: str
    """Where in the paper it stands, such as "Theorem 1, Eq. 8"."""
    kind: str = field(default="claim", init=False)


@dataclass(frozen=True)
class Figure:
    """One plot of a paper: numbers from a scale, and a picture from the numbers alone."""

    id: str
    statement: str
    compute: Callable[[Scale], FigureData]
    draw: Callable[[Mapping[str, Table]], Picture]
    source: str
    shares: str = ""
    """A name for what it trains, if another figure shows the same training: measured together."""
    kind: str = field(default="figure", init=False)


Entry = Claim | Figure
_ENTRIES: dict[str, Entry] = {}


def claim(
    id: str, statement: str, *, source: str, formula: str = ""
) -> Callable[[Callable[[Scale], Verdict]], Callable[[Scale], Verdict]]:
    """Registers a function from a scale to a verdict."""

    def register(check: Callable[[Scale], Verdict]) -> Callable[[Scale], Verdict]:
        _add(Claim(id, statement, formula, check, source))
        return check

    return register


def figure(
    id: str,
    statement: str,
    *,
    source: str,
    draw: Callable[[Mapping[str, Table]], Picture],
    shares: str = "",
) -> Callable[[Callable[[Scale], FigureData]], Callable[[Scale], FigureData]]:
    """Registers a function from a scale to a figure's numbers, and the function that draws them."""

    def register(compute: Callable[[Scale], FigureData]) -> Callable[[Scale], FigureData]:
        _add(Figure(id, statement, compute, draw, source, shares))
        return compute

    return register


def _add(entry: Entry) -> None:
    assert entry.id.split("/")[0] in PAPERS, f"{entry.id} names no known paper"
    assert entry.id not in _ENTRIES, f"{entry.id} is registered twice"
    _ENTRIES[entry.id] = entry


class UnknownIdError(ValueError):
    """No claim, figure or paper has this id."""


def entries() -> dict[str, Entry]:
    """Every claim and figure by id: paper by paper, claims first."""
    for key in PAPERS:
        importlib.import_module(f"innerloop.papers.{key}")
    order = [(key, kind) for key in PAPERS for kind in ("claim", "figure")]
    ranked = sorted(
        _ENTRIES.values(), key=lambda entry: order.index((entry.id.split("/")[0], entry.kind))
    )
    return {entry.id: entry for entry in ranked}


def select(ids: Iterable[str]) -> list[Entry]:
    """The entries with these ids; a paper's key stands for all of its own, no id for everything."""
    known = entries()
    wanted = list(ids)
    if not wanted:
        return list(known.values())
    chosen: dict[str, Entry] = {}
    for id in wanted:
        matches = {key: e for key, e in known.items() if key == id or key.split("/")[0] == id}
        if not matches:
            candidates = [*known, *PAPERS]
            near = difflib.get_close_matches(id, candidates, n=3, cutoff=0.4)
            near += [key for key in candidates if id in key and key not in near][: 3 - len(near)]
            hint = f"the nearest are {', '.join(near)}" if near else "see `innerloop list`"
            raise UnknownIdError(f"no claim, figure or paper is called {id!r}; {hint}")
        chosen |= matches
    return list(chosen.values())
