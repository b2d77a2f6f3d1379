"""What is inside every trained model that ships, kept on disk like any other result."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from innerloop.analysis import distinguish, identify
from innerloop.experiments import Record, candidates_for
from innerloop.experiments.records import names
from innerloop.reproduction.dependencies import code_behind
from innerloop.reproduction.stored import Damaged, sealed, unsealed
from innerloop.runs import RunStore, read_json, write_atomic

SAMPLES = 4000
"""Prompts, half of them held out: intervals of about a hundredth."""
FILE = "inside.json"


@dataclass(frozen=True)
class Inside:
    """The answer of `identify` for one record."""

    name: str
    model: str
    task: str
    answer: str
    on_shifts: str
    """What the shifts leave of it; nothing for tasks that have none."""
    provenance: str


def inside_all(
    root: Path,
    store: RunStore,
    *,
    measure: bool = True,
    watch: Callable[[str], None] = lambda doing: None,
) -> list[Inside]:
    """Of every record with weights below the root.

    Args:
        measure: whether what is not on disk is measured, or left out.
    """
    found = []
    for name in names(root):
        record = Record.open(name, root)
        if not record.has_weights:
            continue
        folder = store.folder(_config(record))
        kept = _kept(folder)
        if kept is None and measure:
            watch(f"what is inside {name}")
            kept = inside_of(record)
            write_atomic(folder / FILE, sealed(asdict(kept)))
        if kept is not None:
            found.append(kept)
    return found


def inside_of(record: Record) -> Inside:
    """Asks the trained model; what cannot be asked says why in place of an answer."""
    model, task = record.model(), record.task()
    generator = torch.Generator().manual_seed(0)
    words = (str(record.experiment.model), str(record.experiment.task))
    try:
        found = identify(model, task, candidates_for(task), samples=SAMPLES, generator=generator)
    except ValueError as reason:
        return Inside(record.name, *words, f"not measured: {reason}", "", record.provenance)
    told = distinguish(model, task, found, samples=SAMPLES, generator=generator)
    on_shifts = told.sentence if told.shifted else ""
    return Inside(record.name, *words, found.sentence, on_shifts, record.provenance)


def _config(record: Record) -> dict[str, Any]:
    digest = hashlib.sha256()
    for suffix in (".json", ".safetensors"):
        digest.update((record.root / f"{record.name}{suffix}").read_bytes())
    return {
        "id": f"inside/{record.name}",
        "record": digest.hexdigest(),
        "code": code_behind(inside_of),
    }


def _kept(folder: Path) -> Inside | None:
    content = read_json(folder / FILE)
    try:
        return None if content is None else Inside(**unsealed(content))
    except (Damaged, TypeError):  # not what was written: measured again
        return None
