"""Models: learners with trained weights."""

from innerloop.models.conventions import AHN, CONVENTIONS, GATMIRY, VON_OSWALD, ZHANG, Convention
from innerloop.models.dictionary_attention import DictionaryAttention, block_form_forward
from innerloop.models.encoder import DictionaryEncoder
from innerloop.models.linear_attention import (
    DenseWeights,
    GDPlusPlusWeights,
    GradientDescentWeights,
    LinearAttention,
    LinearAttentionWeights,
    ShiftedGradientDescentWeights,
    SingleLayerWeights,
    associative_forward,
    attention_matrix_forward,
)

__all__ = [
    "AHN",
    "CONVENTIONS",
    "GATMIRY",
    "VON_OSWALD",
    "ZHANG",
    "Convention",
    "DenseWeights",
    "DictionaryAttention",
    "DictionaryEncoder",
    "GDPlusPlusWeights",
    "GradientDescentWeights",
    "LinearAttention",
    "LinearAttentionWeights",
    "ShiftedGradientDescentWeights",
    "SingleLayerWeights",
    "associative_forward",
    "attention_matrix_forward",
    "block_form_forward",
]
