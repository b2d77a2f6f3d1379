"""Two ways to train transformers faster where the device gains by them; off unless asked for.

On the CPUs we have neither gains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innerloop.models.blocks import Block
from innerloop.training.objectives import Objective


@dataclass(frozen=True)
class MixedPrecision:
    """An objective whose products of matrices are in bfloat16; weights and sums stay as they are.

    bfloat16 has the range of float32, so that losses need no scaling; it has eight bits of
    precision, so that small errors cannot be told apart: not for exact comparisons.
    """

    objective: Objective
    device: torch.device

    def sample(self, generator: torch.Generator) -> Any:
        return self.objective.sample(generator)

    def loss(self, model: nn.Module, batch: Any) -> Float[Tensor, ""]:
        with torch.autocast(self.device.type, torch.bfloat16):
            return self.objective.loss(model, batch)


def compile_layers(model: nn.Module) -> None:
    """Compiles every layer of a transformer in place: one layer is compiled, all like it share it.

    The loop around them stays Python, so that loops and read-outs may change from step to step.
    """
    layers = [module for module in model.modules() if isinstance(module, Block)]
    if not layers:
        raise ValueError(
            f"only the layers of transformers are compiled, and {type(model).__name__} has none"
        )
    for layer in layers:
        layer.compile()
