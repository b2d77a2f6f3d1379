"""Linear attention, its forms of weights, and token space beside it as the reference."""

from innerloop.models.linear_attention.descent import (
    GDPlusPlusWeights,
    GradientDescentWeights,
    ShiftedGradientDescentWeights,
)
from innerloop.models.linear_attention.model import LinearAttention
from innerloop.models.linear_attention.token_space import (
    associative_forward,
    attention_matrix_forward,
)
from innerloop.models.linear_attention.weights import (
    DenseWeights,
    LinearAttentionWeights,
    SingleLayerWeights,
)

__all__ = [
    "DenseWeights",
    "GDPlusPlusWeights",
    "GradientDescentWeights",
    "LinearAttention",
    "LinearAttentionWeights",
    "ShiftedGradientDescentWeights",
    "SingleLayerWeights",
    "associative_forward",
    "attention_matrix_forward",
]
