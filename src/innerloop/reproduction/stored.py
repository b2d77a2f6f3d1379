"""Results as text on disk: written with a checksum, and read with every type looked at.

A file that is not what was written, cut short or changed by hand, is no result: `unsealed` and
`Contents.of` raise `Damaged`, and the claim is measured again.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from innerloop.papers.registry import Table
from innerloop.papers.verdict import Check, Correction, Kind, Verdict

Record = dict[str, Any]
"""Numbers, texts, lists and dictionaries: what JSON and a pipe can carry."""


class Damaged(ValueError):
    """Not what was written."""


def sealed(record: Record) -> str:
    """The record as JSON, with its checksum."""
    return json.dumps({"sha256": _checksum(record), "result": record}, indent=1)


def unsealed(content: Any) -> Record:
    """The record in the parsed JSON that `sealed` wrote."""
    record = _typed(content, dict).get("result")
    if content.get("sha256") != _checksum(record):
        raise Damaged("the checksum is not that of the result")
    return _typed(record, dict)


def _checksum(record: Any) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Contents:
    """What a measurement leaves behind."""

    verdict: Verdict
    seconds: float
    caption: str
    tables: Mapping[str, Table]

    def as_record(self) -> Record:
        verdict = self.verdict
        return {
            "seconds": self.seconds,
            "caption": self.caption,
            "tables": {name: {k: list(v) for k, v in t.items()} for name, t in self.tables.items()},
            "verdict": {
                "printed": [asdict(check) for check in verdict.printed],
                "corrected": [asdict(check) for check in verdict.corrected],
                "correction": verdict.correction and asdict(verdict.correction),
                "settings": dict(verdict.settings),
                "remarks": list(verdict.remarks),
                "missing": verdict.missing,
                "error": verdict.error,
            },
        }

    @classmethod
    def of(cls, record: Record) -> Contents:
        try:
            seconds = float(_typed(record["seconds"], int, float))
            if not (math.isfinite(seconds) and seconds >= 0):
                raise Damaged(f"seconds must be finite and not negative, got {seconds}")
            verdict, tables = _typed(record["verdict"], dict), _typed(record["tables"], dict)
            correction = verdict["correction"]
            return cls(
                Verdict(
                    [_check(check) for check in _typed(verdict["printed"], list)],
                    [_check(check) for check in _typed(verdict["corrected"], list)],
                    None if correction is None else _correction(correction),
                    _typed(verdict["settings"], dict),
                    [_typed(remark, str) for remark in _typed(verdict["remarks"], list)],
                    _typed(verdict["missing"], str),
                    _typed(verdict["error"], str),
                ),
                seconds,
                _typed(record["caption"], str),
                {name: _table(table) for name, table in tables.items()},
            )
        except KeyError as error:
            raise Damaged(f"{error} is missing") from error
        except OverflowError as error:
            raise Damaged(f"a number is beyond what was measured: {error}") from error


def _check(record: Any) -> Check:
    values = _fields(record, Check)
    for name in ("measured", "tolerance", "control", "standard_error", "control_error"):
        _typed(values[name], int, float)
    for name in ("quantity", "why", "control_is", "case"):
        _typed(values[name], str)
    if not isinstance(values["at_least"], bool):
        raise Damaged("at_least must be true or false")
    return Check(**values)


def _correction(record: Any) -> Correction:
    values = _fields(record, Correction)
    for value in values.values():
        _typed(value, str)
    if values["kind"] not in list(Kind):
        raise Damaged(f"{values['kind']!r:.40} is no kind of correction")
    return Correction(**{**values, "kind": Kind(values["kind"])})


def _table(record: Any) -> Table:
    columns = [_typed(column, list) for column in _typed(record, dict).values()]
    if len({len(column) for column in columns}) > 1:
        raise Damaged("the columns of a table must be of equal length")
    for column in columns:
        for value in column:
            _typed(value, int, float, str)
    return dict(record)


def _fields(record: Any, kind: type[Check] | type[Correction]) -> Record:
    expected = {field.name for field in fields(kind)}
    if _typed(record, dict).keys() != expected:
        raise Damaged(f"expected {', '.join(sorted(expected))}, got {', '.join(sorted(record))}")
    return dict(record)


def _typed(value: Any, *kinds: type) -> Any:
    """The value, if it is of one of these types; true and false are no numbers here."""
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise Damaged(f"expected {' or '.join(k.__name__ for k in kinds)}, got {value!r:.40}")
    return value
