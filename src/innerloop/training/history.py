"""What a training run recorded along the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

Metric = Callable[[nn.Module], float | Sequence[float] | Tensor]
"""A number, or one number per member, read off the model; it must not change the model."""


@dataclass
class History:
    """Columns of equal length: `step`, `loss`, and one for every metric."""

    columns: dict[str, list[Any]] = field(default_factory=dict)

    def record(
        self, step: int, loss: Tensor, metrics: Mapping[str, Metric], model: nn.Module
    ) -> None:
        row: dict[str, Any] = {"step": step, "loss": loss.detach().tolist()}
        for name, metric in metrics.items():
            value = metric(model)
            row[name] = value.tolist() if isinstance(value, Tensor) else value
        for name, value in row.items():
            self.columns.setdefault(name, []).append(value)

    def __getitem__(self, name: str) -> list[Any]:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.columns.get("step", []))
