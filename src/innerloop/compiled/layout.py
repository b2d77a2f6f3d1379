"""Named rows of the residual: weights are built by saying what they do to rows, never by index."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

Matrix = float | Tensor
"""A matrix between blocks of rows; a number is that multiple of the identity."""
Rows = Mapping[str, Matrix]
"""For each block of rows that is read or written, the matrix."""


class Layout:
    """Blocks of rows by name, one below the other, as a compiler names its registers.

    layout = Layout(x=4, residual=1, position=33)
    layout.reading({"x": 2.0}) @ token          twice the four rows of x
    """

    def __init__(self, **sizes: int) -> None:
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{name} must have at least 1 row, got {size}")
        self.sizes = sizes
        self._places: dict[str, slice] = {}
        self.width = 0
        for name, size in sizes.items():
            self._places[name] = slice(self.width, self.width + size)
            self.width += size

    def size(self, name: str) -> int:
        return self.sizes[self._known(name)]

    def place(self, name: str) -> slice:
        """Where the block stands."""
        return self._places[self._known(name)]

    def reading(self, rows: Rows) -> Tensor:
        """[outputs, width]: the sum of the matrices, each times its block."""
        parts = {name: self._matrix(name, m) for name, m in rows.items()}
        outputs = {m.shape[0] for m in parts.values()}
        if len(outputs) != 1:
            shapes = {name: list(m.shape) for name, m in parts.items()}
            raise ValueError(f"matrices that are added must have equally many rows, got {shapes}")
        whole = torch.zeros(*outputs, self.width, dtype=torch.float64)
        for name, matrix in parts.items():
            if matrix.shape[1] != self.size(name):
                raise ValueError(
                    f"{name} has {self.size(name)} rows, got a matrix {list(matrix.shape)}"
                )
            whole[:, self.place(name)] += matrix
        return whole

    def writing(self, rows: Rows) -> Tensor:
        """[width, inputs]: each matrix writes to its block."""
        turned = {n: m.mT if isinstance(m, Tensor) else m for n, m in rows.items()}
        return self.reading(turned).mT

    def __str__(self) -> str:
        ends = ((name, place.start, place.stop - 1) for name, place in self._places.items())
        return "\n".join(
            f"  rows {f'{a}' if a == b else f'{a}-{b}':<8} {name}" for name, a, b in ends
        )

    def _matrix(self, name: str, matrix: Matrix) -> Tensor:
        if isinstance(matrix, Tensor):
            return matrix.to(torch.float64)
        return matrix * torch.eye(self.size(name), dtype=torch.float64)

    def _known(self, name: str) -> str:
        if name not in self.sizes:
            raise ValueError(f"no rows are called {name!r}; there are {', '.join(self.sizes)}")
        return name
