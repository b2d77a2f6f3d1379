"""Zhang, Frei & Bartlett (2023): every theorem and lemma. arXiv:2306.09927."""

from innerloop.papers.zhang2023 import (
    error_figure,
    prediction,
    prompt_lengths,
    random_covariance_figure,
    random_covariance_limit,
    shifts,
)

__all__ = [
    "error_figure",
    "prediction",
    "prompt_lengths",
    "random_covariance_figure",
    "random_covariance_limit",
    "shifts",
]
