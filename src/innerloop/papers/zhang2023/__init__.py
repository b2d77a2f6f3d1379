"""Zhang, Frei & Bartlett (2023): every theorem and lemma. arXiv:2306.09927."""

from innerloop.papers.zhang2023 import (
    convergence,
    dynamics,
    flow_figure,
    quadratic_form,
    random_convergence,
    random_covariance,
    technical,
)

__all__ = [
    "convergence",
    "dynamics",
    "flow_figure",
    "quadratic_form",
    "random_convergence",
    "random_covariance",
    "technical",
]
