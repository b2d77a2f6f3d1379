"""Yang, Huang, Liang & Chi (2024): theorems, lemmas and figures. arXiv:2408.10147."""

from innerloop.papers.yang2024 import (
    bounds,
    convergence,
    encoder_figures,
    figures,
    heads,
    heads_figure,
    initialisation,
    ridge,
    ridge_figure,
    softmax_heads,
)

__all__ = [
    "bounds",
    "convergence",
    "encoder_figures",
    "figures",
    "heads",
    "heads_figure",
    "initialisation",
    "ridge",
    "ridge_figure",
    "softmax_heads",
]
