"""Gradient flow of a loss, and the minima that descent ends at."""

from innerloop.theory.flow.gradient_flow import Flow, gradient_flow
from innerloop.theory.flow.minima import descend
from innerloop.theory.flow.single_layer_flow import (
    SingleLayerFlow,
    balanced_direction,
    whole_layer_loss,
)

__all__ = [
    "Flow",
    "SingleLayerFlow",
    "balanced_direction",
    "descend",
    "gradient_flow",
    "whole_layer_loss",
]
