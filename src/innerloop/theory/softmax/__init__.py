"""Softmax heads over a dictionary: the ridge regression they learn, and how fast."""

from innerloop.theory.softmax.descent import DescentConstants, iterations, smallest_eigenvalue
from innerloop.theory.softmax.ridge import (
    DictionaryRisk,
    one_head_floor,
    ridge_coefficients,
    ridge_matrix,
)

__all__ = [
    "DescentConstants",
    "DictionaryRisk",
    "iterations",
    "one_head_floor",
    "ridge_coefficients",
    "ridge_matrix",
    "smallest_eigenvalue",
]
