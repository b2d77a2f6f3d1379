"""Records: trainings that take long, as they ship with the package.

A record holds the experiment, its history, the tables that were measured of the trained model, and
when, where and how long it was trained: a few kilobytes of JSON. The models that people will want
to play with have their weights beside it, in half precision.

    record = Record.open("zhang2023/gpt2-random")
    model, task = record.model(), record.task()
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import nn

from innerloop.experiments.experiment import Experiment, Run
from innerloop.index.records import SHORT_NAMES
from innerloop.index.selection import nearest
from innerloop.runs import write_atomic
from innerloop.tasks import Task
from innerloop.training import History, load_weights, read_weights

Table = Mapping[str, Sequence[float | int | str]]
"""Named columns of equal length."""
SHIPPED = Path(str(resources.files("innerloop"))) / "records"


@dataclass(frozen=True)
class Record:
    """One training as it ships.

    Attributes:
        name: such as "zhang2023/figure1/random-25-seed0".
        history: columns by name, step and loss among them.
        tables: what was measured of the trained model, by name.
        recorded: the day, such as "2026-11-17".
        machine: processor, cores, and versions of Python and PyTorch.
        seconds: that the training took, with others beside it on the machine's cores.
    """

    name: str
    experiment: Experiment
    history: Table
    tables: Mapping[str, Table]
    recorded: str
    machine: str
    seconds: float
    root: Path = field(default=SHIPPED, compare=False)

    @classmethod
    def of(cls, name: str, run: Run, tables: Mapping[str, Table], seconds: float) -> Record:
        """What a training of this machine leaves, today."""
        return cls(
            name,
            run.experiment,
            run.history.columns,
            tables,
            date.today().isoformat(),
            _this_machine(),
            seconds,
        )

    @classmethod
    def open(cls, name: str, root: Path = SHIPPED) -> Record:
        """By name; refuses one that is not there, with the nearest that is."""
        name = SHORT_NAMES.get(name, name)
        file = root / f"{name}.json"
        if name not in names(root):
            hint = nearest(name, [*SHORT_NAMES, *names(root)])
            raise ValueError(
                f"there is no record {name!r}; {hint or 'see `innerloop list records`'}"
            )
        content = json.loads(file.read_text())
        return cls(
            **{**content, "experiment": Experiment.from_json(content["experiment"])}, root=root
        )

    def save(self, root: Path = SHIPPED, *, weights_of: nn.Module | None = None) -> None:
        """Writes it, with the weights of this model in half precision if one is given."""
        content = {
            **asdict(self),
            "experiment": self.experiment.as_json(),
            "history": _rounded(self.history),
            "tables": {name: _rounded(table) for name, table in self.tables.items()},
            "seconds": float(f"{self.seconds:.4g}"),
        }
        del content["root"]
        write_atomic(root / f"{self.name}.json", json.dumps(content, indent=1))
        if weights_of is not None:
            halved = {k: v.half().contiguous() for k, v in weights_of.state_dict().items()}
            write_atomic(root / f"{self.name}.safetensors", save(halved))

    @property
    def has_weights(self) -> bool:
        return (self.root / f"{self.name}.safetensors").is_file()

    def task(self) -> Task:
        return self.experiment.build()[1]

    def run(self, device: torch.device | str = "cpu") -> Run:
        """As a run on disk would be opened."""
        _, task, _ = self.experiment.build(device)
        history = History({k: list(v) for k, v in self.history.items()})
        model = self.model().to(device)
        return Run(self.root, self.experiment, model, task, history, self.experiment.steps)

    def model(self) -> nn.Module:
        """The trained model; refused with a sentence if its weights did not ship."""
        if not self.has_weights:
            raise ValueError(
                f"the record {self.name} ships its tables and no weights; reproduce it with "
                "--retrain to have them"
            )
        model, _, _ = self.experiment.build()
        file = self.root / f"{self.name}.safetensors"
        tensors = read_weights(file)
        own = model.state_dict()
        load_weights(
            model, {k: v.to(own[k].dtype) if k in own else v for k, v in tensors.items()}, file
        )
        return model.eval()

    @property
    def provenance(self) -> str:
        """When, where and how long, in a few words."""
        minutes = self.seconds / 60
        return f"recorded on {self.recorded}, {minutes:.0f} min on {self.machine}"


def names(root: Path = SHIPPED) -> list[str]:
    """Of every record that ships, ordered by the size of numbers: along-200, then along-1600."""
    found = (str(p.relative_to(root).with_suffix("")) for p in root.rglob("*.json"))
    return sorted(found, key=_by_size)


def _by_size(name: str) -> list[tuple[int, str]]:
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]


def _this_machine() -> str:
    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        named = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        processor = named[0].partition(":")[2].strip() if named else processor
    versions = f"Python {platform.python_version()}, PyTorch {torch.__version__}"
    return f"{processor}, {os.cpu_count()} cores, {versions}"


def _rounded(table: Table) -> dict[str, list[Any]]:
    """Six digits are more than a training repeats on another machine."""

    def short(value: Any) -> Any:
        if isinstance(value, float) and math.isfinite(value):
            return float(f"{value:.6g}")
        return value

    return {name: [short(value) for value in column] for name, column in table.items()}
