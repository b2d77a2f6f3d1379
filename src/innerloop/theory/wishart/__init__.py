"""Wishart matrices: moments, spectra, words, and the law of the largest eigenvalue."""

from innerloop.theory.checks import TooLargeError
from innerloop.theory.wishart.covariance_moments import moment_eigenvalues, residual_eigenvalues
from innerloop.theory.wishart.largest_eigenvalue import largest_eigenvalue_exceeds
from innerloop.theory.wishart.moments import (
    Quadrature,
    expected_power_sums,
    mean_spectrum,
    recurrence,
    sample_wishart,
    trace_moment,
)
from innerloop.theory.wishart.nodes import wishart_nodes
from innerloop.theory.wishart.words import (
    MatrixPolynomial,
    TracePolynomial,
    expected_trace,
)

__all__ = [
    "MatrixPolynomial",
    "Quadrature",
    "TooLargeError",
    "TracePolynomial",
    "expected_power_sums",
    "expected_trace",
    "largest_eigenvalue_exceeds",
    "mean_spectrum",
    "moment_eigenvalues",
    "recurrence",
    "residual_eigenvalues",
    "sample_wishart",
    "trace_moment",
    "wishart_nodes",
]
