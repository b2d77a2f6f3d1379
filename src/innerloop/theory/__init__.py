"""Theory: closed forms and exact expectations, as pure functions in float64."""

from innerloop.theory.descent import descend
from innerloop.theory.linear_attention import (
    layered_risk,
    layered_risk_polynomial,
    one_step_preconditioner,
    sandwich_moment,
    single_layer_risk,
)
from innerloop.theory.ray import (
    RayOptimum,
    looped_optimum,
    ray_error,
    ray_risk,
    ray_spectrum,
    transformed_optimum,
    untied_optimum,
)
from innerloop.theory.ridge import (
    DictionaryRisk,
    one_head_floor,
    ridge_coefficients,
    ridge_matrix,
)
from innerloop.theory.softmax_descent import DescentConstants, iterations, smallest_eigenvalue
from innerloop.theory.wishart import (
    Quadrature,
    expected_power_sums,
    mean_spectrum,
    recurrence,
    sample_wishart,
    trace_moment,
)
from innerloop.theory.words import MatrixPolynomial, TooLargeError, TracePolynomial, expected_trace

__all__ = [
    "DescentConstants",
    "DictionaryRisk",
    "MatrixPolynomial",
    "Quadrature",
    "RayOptimum",
    "TooLargeError",
    "TracePolynomial",
    "descend",
    "expected_power_sums",
    "expected_trace",
    "iterations",
    "layered_risk",
    "layered_risk_polynomial",
    "looped_optimum",
    "mean_spectrum",
    "one_head_floor",
    "one_step_preconditioner",
    "ray_error",
    "ray_risk",
    "ray_spectrum",
    "recurrence",
    "ridge_coefficients",
    "ridge_matrix",
    "sample_wishart",
    "sandwich_moment",
    "single_layer_risk",
    "smallest_eigenvalue",
    "trace_moment",
    "transformed_optimum",
    "untied_optimum",
]
