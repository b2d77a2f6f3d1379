"""Zhang, Frei & Bartlett (2023): every theorem and lemma. arXiv:2306.09927."""

# isort: off
# The report follows this order: the dynamics and where they end, new prompts, shifts, random
# covariances, technical lemmas.
from innerloop.papers.zhang2023 import (
    quadratic_form,
    dynamics,
    convergence,
    prediction,
    prompt_lengths,
    shifts,
    random_covariance,
    random_convergence,
    random_covariance_limit,
    technical,
    flow_figure,
    error_figure,
    shift_figure,
    random_covariance_figure,
)
# isort: on

__all__ = [
    "convergence",
    "dynamics",
    "error_figure",
    "flow_figure",
    "prediction",
    "prompt_lengths",
    "quadratic_form",
    "random_convergence",
    "random_covariance",
    "random_covariance_figure",
    "random_covariance_limit",
    "shift_figure",
    "shifts",
    "technical",
]
