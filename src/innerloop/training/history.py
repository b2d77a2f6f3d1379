"""What a training run recorded along the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

Metric = Callable[[Any], float | Sequence[float] | Tensor]
"""One or more numbers read off the model; it must not change the model."""


@dataclass
class History:
    """Columns of equal length: `step`, `loss`, and one for every metric."""

    columns: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns of a history must be equally long, got {lengths}")

    def record(self, step: int, loss: Tensor | float, measured: Mapping[str, Any]) -> None:
        """Adds a row; `measured` is what `measure` read off the same weights."""
        plain = loss.detach().tolist() if isinstance(loss, Tensor) else loss
        row = {"step": step, "loss": plain, **measured}
        self.require_columns(row)
        for name, value in row.items():
            self.columns.setdefault(name, []).append(value)

    def require_columns(self, names: Mapping[str, Any]) -> None:
        """Refuses rows of other columns than those there are, if there are any."""
        if self.columns and self.columns.keys() != names.keys():
            raise ValueError(
                f"the history has the columns {', '.join(self.columns)}; "
                f"rows of {', '.join(names)} do not fit: keep the metrics of the run"
            )

    def extend(self, other: History) -> None:
        """Appends a run that began where this one ended; its steps are counted on from here."""
        offset = self["step"][-1]
        for name, values in other.columns.items():
            self.columns[name] += [offset + v for v in values] if name == "step" else values

    def forget(self, step: int) -> None:
        """Removes the last row if it belongs to this step."""
        if len(self) and self["step"][-1] == step:
            for column in self.columns.values():
                column.pop()

    def __getitem__(self, name: str) -> list[Any]:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.columns.get("step", []))


def measure(metrics: Mapping[str, Metric], model: nn.Module) -> dict[str, Any]:
    """Every metric of the model as it now is, as plain numbers."""
    values = {name: metric(model) for name, metric in metrics.items()}
    return {k: v.tolist() if isinstance(v, Tensor) else v for k, v in values.items()}
