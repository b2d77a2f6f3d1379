"""Claims and figures, registered by id."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from innerloop.index import choose
from innerloop.papers.verdict import Scale, Verdict

if TYPE_CHECKING:  # slow to import, and needed only by what draws
    from matplotlib.figure import Figure as Picture

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


def entries() -> dict[str, Entry]:
    """Every claim and figure by id: paper by paper, claims first."""
    check_papers()
    order = [(key, kind) for key in PAPERS for kind in ("claim", "figure")]
    ranked = sorted(
        _ENTRIES.values(), key=lambda entry: order.index((entry.id.split("/")[0], entry.kind))
    )
    return {entry.id: entry for entry in ranked}


class IncompletePaperError(ValueError):
    """Claims would be missing without a word."""


def check_papers(folder: Path = Path(__file__).parent, package: str = __package__) -> None:
    """Imports every paper, and refuses one whose claims would be missing.

    Args:
        folder: has a folder for each paper, named by its key.
        package: the package that this folder is.
    """
    own = {path.parent.name for path in folder.glob("*/__init__.py")}
    for key in own - PAPERS.keys():
        raise IncompletePaperError(
            f"the folder {folder / key} is of no paper: registry.PAPERS has no key {key!r}"
        )
    for key in PAPERS:
        if key not in own:
            raise IncompletePaperError(
                f"the paper {key!r} of registry.PAPERS has no folder {folder / key} with an "
                "__init__.py"
            )
        imported = importlib.import_module(f"{package}.{key}")
        for path in sorted((folder / key).glob("*.py")):
            if path.stem != "__init__" and f"{imported.__name__}.{path.stem}" not in sys.modules:
                raise IncompletePaperError(
                    f"{path} is imported neither by the __init__.py beside it nor by what that "
                    "imports: its claims and figures would be missing"
                )


def select(ids: Iterable[str]) -> list[Entry]:
    """The entries with these ids; a paper's key stands for all of its own, no id for everything."""
    known = entries()
    return [known[id] for id in choose(ids, known)]
