"""Many small models of one shape, trained together.

Their parameters are stacked and the loss is mapped over the stack: one pass of large operations
instead of many passes of small ones. Optimizers that work entry by entry, such as Adam and SGD,
then do for every member what they would have done for it alone.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import stack_module_state, vmap
from torch.utils import _pytree as pytree

from innerloop.training.functional import functional
from innerloop.training.objectives import Objective


class Ensemble(nn.Module):
    """Models of equal structure with their parameters stacked: [members, ...]."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        if not models:
            raise ValueError("models must hold at least one model, got none")
        for model in models[1:]:
            _require_same_settings(models[0], model)
        stacked, _ = stack_module_state(list(models))
        self.names = list(stacked)
        # Parameter names contain dots, which a ParameterDict does not allow as keys.
        self.stacked = nn.ParameterList(p.detach().clone() for p in stacked.values())
        self._template = [copy.deepcopy(models[0])]  # in a list: not a submodule of its own

    def __len__(self) -> int:
        return len(self.stacked[0])

    @property
    def parameters_by_name(self) -> dict[str, Tensor]:
        return dict(zip(self.names, self.stacked, strict=True))

    def member(self, index: int) -> nn.Module:
        """A copy of one member, as an ordinary model."""
        model = copy.deepcopy(self._template[0])
        model.load_state_dict(
            {name: p[index].detach().clone() for name, p in self.parameters_by_name.items()}
        )
        return model

    def members(self) -> list[nn.Module]:
        return [self.member(i) for i in range(len(self))]

    def train(self, mode: bool = True) -> Ensemble:
        super().train(mode)
        self._template[0].train(mode)
        return self

    def losses(self, objective: Objective, batches: Any) -> Float[Tensor, " members"]:
        """Every member's loss on its own batch (a batch whose tensors have a leading axis)."""
        loss = functional(self._template[0], objective.loss)
        in_dims = (0, None if batches is None else 0)
        # Every member has a dropout of its own.
        members = vmap(loss, in_dims=in_dims, randomness="different")
        return members(self.parameters_by_name, batches)


def _require_same_settings(first: nn.Module, other: nn.Module) -> None:
    """Whatever is not a parameter is taken from the first model, so it must be the same in all."""
    shapes = [{k: list(p.shape) for k, p in m.named_parameters()} for m in (first, other)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"models of an ensemble must have the same parameters, got {shapes[0]} and {shapes[1]}"
        )
    for a, b in zip(first.modules(), other.modules(), strict=True):
        public = {name for name in vars(a) if not name.startswith("_")}
        for name in public:
            if getattr(a, name) != getattr(b, name):
                raise ValueError(
                    f"models of an ensemble must have equal settings, got {name} = "
                    f"{getattr(a, name)} and {getattr(b, name)}"
                )


@dataclass(frozen=True)
class Together:
    """An objective for every member of an `Ensemble`, each on fresh data of its own."""

    objective: Objective
    members: int

    def sample(self, generator: torch.Generator) -> Any:
        batches = [self.objective.sample(generator) for _ in range(self.members)]
        if batches[0] is None:
            return None
        return pytree.tree_map(lambda *tensors: torch.stack(tensors), *batches)

    def loss(self, model: Ensemble, batch: Any) -> Float[Tensor, " members"]:
        return model.losses(self.objective, batch)
