"""Models: learners with trained weights."""

from innerloop.models.blocks import BlockShape, Start
from innerloop.models.conventions import AHN, CONVENTIONS, GATMIRY, VON_OSWALD, ZHANG, Convention
from innerloop.models.decoder import Decoder, Trace
from innerloop.models.decoding import decode, translate
from innerloop.models.dictionary_attention import DictionaryAttention, block_form_forward
from innerloop.models.encoder import DictionaryEncoder
from innerloop.models.in_context import EachPosition, InContext
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
from innerloop.models.looped import Looped
from innerloop.models.translator import Translator

__all__ = [
    "AHN",
    "CONVENTIONS",
    "GATMIRY",
    "VON_OSWALD",
    "ZHANG",
    "BlockShape",
    "Convention",
    "Decoder",
    "DenseWeights",
    "DictionaryAttention",
    "DictionaryEncoder",
    "EachPosition",
    "GDPlusPlusWeights",
    "GradientDescentWeights",
    "InContext",
    "LinearAttention",
    "LinearAttentionWeights",
    "Looped",
    "ShiftedGradientDescentWeights",
    "SingleLayerWeights",
    "Start",
    "Trace",
    "Translator",
    "associative_forward",
    "attention_matrix_forward",
    "block_form_forward",
    "decode",
    "translate",
]
