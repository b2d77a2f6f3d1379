"""What is inside every trained model that ships, kept on disk like any other result."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from innerloop.analysis import distinguish, identify
from innerloop.analysis.identification import Grade
from innerloop.experiments import Record, candidates_for
from innerloop.experiments.records import names
from innerloop.reproduction.dependencies import code_behind
from innerloop.reproduction.stored import Damaged, sealed, unsealed
from innerloop.runs import RunStore, read_json, write_atomic
from innerloop.workers import call_for_each

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
    """What the shifts leave of it; empty where no candidate is near, and for tasks without."""
    provenance: str
    nearest: str = ""
    """The family of the best candidate; none where nothing was measured."""
    shares: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """What it reproduces of the error and of the prediction: value, low and high."""


def inside_all(
    root: Path,
    store: RunStore,
    *,
    workers: int = 0,
    watch: Callable[[str], None] = lambda doing: None,
) -> list[Inside]:
    """Of every record with weights below the root.

    Args:
        workers: processes that measure what is not on disk; with 0 it is left out.
    """
    records = [Record.open(name, root) for name in names(root)]
    folders = {r.name: store.folder(_config(r)) for r in records if r.has_weights}
    missing = [name for name, folder in folders.items() if _kept(folder) is None]
    if missing and workers:
        watch(f"what is inside {len(missing)} models that ship")
        measure = partial(_measure, root, folders)
        with closing(call_for_each(measure, [[n] for n in missing], workers=workers)) as done:
            for count, (name, _) in enumerate(done, 1):
                watch(f"what is inside {name}, {count} of {len(missing)}")
    kept = (_kept(folder) for folder in folders.values())
    return [each for each in kept if each is not None]


def _measure(root: Path, folders: Mapping[str, Path], name: str) -> None:
    kept = inside_of(Record.open(name, root))
    write_atomic(folders[name] / FILE, sealed(asdict(kept)))


def inside_of(record: Record) -> Inside:
    """Asks the trained model; what cannot be asked says why in place of an answer."""
    model, task = record.model(), record.task()
    generator = torch.Generator().manual_seed(0)
    words = (str(record.experiment.model), str(record.experiment.task))
    try:
        found = identify(model, task, candidates_for(task), samples=SAMPLES, generator=generator)
    except ValueError as reason:
        return Inside(record.name, *words, f"not measured: {reason}", "", record.provenance)
    on_shifts = ""
    if found.decision.grade is not Grade.NONE:
        told = distinguish(model, task, found, samples=SAMPLES, generator=generator)
        on_shifts = told.sentence if told.shifted else ""
    best = found.decision.best
    intervals = {"error": best.error_share, "prediction": best.prediction_share}
    return Inside(
        record.name,
        *words,
        found.sentence,
        on_shifts,
        record.provenance,
        best.candidate.name,
        {share: [i.value, i.low, i.high] for share, i in intervals.items()},
    )


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
