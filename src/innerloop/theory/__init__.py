"""Theory: closed forms and exact expectations, as pure functions in float64."""

from innerloop.theory.covariance_law import CovarianceLaw
from innerloop.theory.descent import descend
from innerloop.theory.gradient_flow import Flow, gradient_flow
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
from innerloop.theory.single_layer_flow import (
    SingleLayerFlow,
    balanced_direction,
    whole_layer_loss,
)
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
    "CovarianceLaw",
    "Flow",
    "MatrixPolynomial",
    "Quadrature",
    "RayOptimum",
    "SingleLayerFlow",
    "TooLargeError",
    "TracePolynomial",
    "balanced_direction",
    "descend",
    "expected_power_sums",
    "expected_trace",
    "gradient_flow",
    "layered_risk",
    "layered_risk_polynomial",
    "looped_optimum",
    "mean_spectrum",
    "one_step_preconditioner",
    "ray_error",
    "ray_risk",
    "ray_spectrum",
    "recurrence",
    "sample_wishart",
    "sandwich_moment",
    "single_layer_risk",
    "trace_moment",
    "transformed_optimum",
    "untied_optimum",
    "whole_layer_loss",
]
