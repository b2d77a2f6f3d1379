"""Yang, Huang, Liang & Chi (2024): theorems, lemmas and figures. arXiv:2408.10147."""

# isort: off
# The report follows this order: what the heads compute, what is best for them, how training starts,
# why it gets there, how many heads it takes; then the figures.
from innerloop.papers.yang2024 import (
    softmax_heads,
    ridge,
    initialisation,
    bounds,
    convergence,
    heads,
    figures,
    ridge_figure,
    heads_figure,
    encoder_figures,
)
# isort: on

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
