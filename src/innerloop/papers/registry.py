"""Claims and figures, registered by id."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from innerloop.experiments.study import MissingRecords
from innerloop.index import choose
from innerloop.papers.verdict import Scale, Verdict
from innerloop.tables import TextTable

if TYPE_CHECKING:  # slow to import, and needed only by what draws or shows trainings
    from matplotlib.figure import Figure as Picture

    from innerloop.experiments.study import Study

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
ALGOFORMER2024 = Paper(
    "algoformer2024",
    "Yihang Gao, Chuanyang Zheng, Enze Xie, Han Shi, Tianyang Hu, Yu Li, Michael K. Ng, Zhenguo Li "
    "and Zhaoqiang Liu",
    "On the expressive power of a variant of the looped transformer",
    2024,
    "2402.13572",
)
PAPERS = {paper.key: paper for paper in (AHN2023, ZHANG2023, GATMIRY2024, YANG2024, ALGOFORMER2024)}


Tables = Mapping[str, Table]


@dataclass(frozen=True)
class Numbers:
    """What a claim or figure computes before anything is judged or drawn."""

    tables: Tables
    caption: str = ""
    """What the picture shows, in words, and every departure from the paper's own procedure."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class Measurement:
    """Numbers and the verdict on them."""

    tables: Tables
    caption: str
    verdict: Verdict


@dataclass(frozen=True)
class Entry:
    """One checkable statement of a paper, with a picture if it is a figure."""

    id: str
    statement: str
    source: str
    """Where in the paper it stands, such as "Theorem 1, Eq. 8"."""
    function: Callable[[Scale], Any]
    """What the decorator stands on: what a result depends on is read from its module."""
    measure: Callable[[Scale], Measurement]
    draw: Callable[[Tables], Picture] | None = None
    formula: str = ""
    """The statement in LaTeX, in the paper's own form."""
    ours: str = ""
    """Non-empty: not a statement of the paper but a finding of innerloop's, "proved" or
    "measured"."""
    shares: str = ""
    """A name for what it trains, if another entry shows the same training: measured together."""
    study: Study | None = None
    """The trainings whose records it shows, if they take too long to be made each time."""
    tabulate: Callable[[Tables], Sequence[TextTable]] | None = None
    """What a reader should see in rows and columns beside the picture."""

    @property
    def kind(self) -> str:
        return "claim" if self.draw is None else "figure"

    @property
    def paper(self) -> str:
        return self.id.split("/")[0]


_ENTRIES: dict[str, Entry] = {}
ClaimFunction = Callable[[Scale], Verdict]
FigureFunction = Callable[[Scale], Numbers]


def claim(
    id: str, statement: str, *, source: str, formula: str = "", ours: str = ""
) -> Callable[[ClaimFunction], ClaimFunction]:
    """Registers a function from a scale to a verdict."""

    def register(check: ClaimFunction) -> ClaimFunction:
        def measure(scale: Scale) -> Measurement:
            return Measurement({}, "", check(scale))

        _add(Entry(id, statement, source, check, measure, None, formula, ours))
        return check

    return register


def figure(
    id: str,
    statement: str,
    *,
    source: str,
    judge: Callable[[Tables], Verdict],
    draw: Callable[[Tables], Picture],
    formula: str = "",
    ours: str = "",
    shares: str = "",
    study: Study | None = None,
    tabulate: Callable[[Tables], Sequence[TextTable]] | None = None,
) -> Callable[[FigureFunction], FigureFunction]:
    """Registers a figure in three parts: numbers from a scale, a verdict and a picture from them.

    `judge`, `draw` and `tabulate` see the tables alone: what is judged can be seen, and what is
    drawn is what was judged. Where a study's trainings have no records yet, nothing is drawn, and
    the verdict is *inconclusive* with what they would take.
    """

    def register(compute: FigureFunction) -> FigureFunction:
        def measure(scale: Scale) -> Measurement:
            try:
                numbers = compute(scale)
            except MissingRecords as missing:
                return Measurement({}, "", Verdict([], missing=f"{missing}."))
            verdict = judge(numbers.tables)
            trained = {"trainings": study.recorded(scale)} if study else {}
            verdict = replace(
                verdict,
                settings={**numbers.settings, **verdict.settings, **trained},
                remarks=[*numbers.remarks, *verdict.remarks],
            )
            return Measurement(numbers.tables, numbers.caption, verdict)

        _add(
            Entry(
                *(id, statement, source, compute, measure, draw, formula, ours, shares, study),
                tabulate=tabulate,
            )
        )
        return compute

    return register


def _add(entry: Entry) -> None:
    assert entry.paper in PAPERS, f"{entry.id} names no known paper"
    assert entry.id not in _ENTRIES, f"{entry.id} is registered twice"
    _ENTRIES[entry.id] = entry


def entries() -> dict[str, Entry]:
    """Every claim and figure by id: paper by paper, claims first."""
    check_papers()
    order = [(key, kind) for key in PAPERS for kind in ("claim", "figure")]
    ranked = sorted(_ENTRIES.values(), key=lambda entry: order.index((entry.paper, entry.kind)))
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
