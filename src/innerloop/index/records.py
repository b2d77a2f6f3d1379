"""Trained models that ship with their weights, as their files say: nothing is imported for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from innerloop.index.source import PACKAGE

RECORDS = PACKAGE / "records"
SHORT_NAMES = {
    "zhang2023/gpt2-fixed": "zhang2023/figure1/fixed-25-seed0",
    "zhang2023/gpt2-random": "zhang2023/figure1/random-25-seed0",
    "algoformer2024/algoformer": "algoformer2024/figure2a/algoformer-seed0",
    "algoformer2024/looped": "algoformer2024/figure2a/looped-seed0",
    "algoformer2024/standard": "algoformer2024/figure2a/standard-10-layers-seed0",
}
"""Of the models that are asked for most, and their records."""


@dataclass(frozen=True)
class IndexedRecord:
    """A model that can be evaluated by this name.

    Attributes:
        model: and its options, such as "gpt2: layers=4, width=64".
        task: that it was trained on, likewise.
        file: of the record, below the folder of records and without its ending.
    """

    name: str
    model: str
    task: str
    file: str


def trained_models() -> list[IndexedRecord]:
    """Every record that has weights beside it, those with a short name first."""
    weights = sorted(RECORDS.rglob("*.safetensors"))
    by_name = {str(path.relative_to(RECORDS).with_suffix("")): path for path in weights}
    shipped = {short: by_name[full] for short, full in SHORT_NAMES.items() if full in by_name}
    return [_record(name, path.with_suffix(".json")) for name, path in (shipped | by_name).items()]


def _record(name: str, path: Path) -> IndexedRecord:
    experiment = json.loads(path.read_text())["experiment"]
    file = str(path.relative_to(RECORDS).with_suffix(""))
    return IndexedRecord(name, _words(experiment["model"]), _words(experiment["task"]), file)


def _words(spec: Mapping[str, Any]) -> str:
    """As a spec, but for spaces where a line may end."""
    options = {key: value for key, value in spec["options"].items() if value is not None}
    words = ", ".join(f"{key}={_word(value)}" for key, value in options.items())
    return f"{spec['name']}: {words}" if words else spec["name"]


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
