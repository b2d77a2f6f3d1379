"""A function of a model as a function of the model's parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call


def functional(model: nn.Module, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """f with f(parameters, *arguments) = function(model with these parameters, *arguments).

    `parameters` is a dictionary by name, as of `model.named_parameters()`. The transforms of
    torch.func (vmap, grad, jacrev) apply to f.
    """
    holder = _Holder(model, function)

    def call(parameters: dict[str, Tensor], *arguments: Any) -> Tensor:
        named = {f"model.{name}": value for name, value in parameters.items()}
        return functional_call(holder, named, arguments)

    return call


class _Holder(nn.Module):
    """The function as a module's forward pass, which is what functional_call takes."""

    def __init__(self, model: nn.Module, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.model = model
        self.function = function

    def forward(self, *arguments: Any) -> Tensor:
        return self.function(self.model, *arguments)
