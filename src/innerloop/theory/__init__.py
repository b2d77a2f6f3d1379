"""Theory: closed forms and exact expectations, as pure functions in float64."""

from innerloop.theory.descent import descend
from innerloop.theory.linear_attention import (
    layered_risk,
    layered_risk_polynomial,
    one_step_preconditioner,
    sandwich_moment,
    single_layer_risk,
)
from innerloop.theory.prediction_error import (
    ErrorParts,
    JointMoments,
    SampledMoments,
    error_parts,
    gaussian_pairs,
    mean_error_parts,
    prediction_error,
)
from innerloop.theory.random_covariance import (
    VarianceMoments,
    random_covariance_risk,
    random_covariance_steps,
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
from innerloop.theory.sample_complexity import Lengths, SampleComplexity
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
    "ErrorParts",
    "JointMoments",
    "Lengths",
    "MatrixPolynomial",
    "Quadrature",
    "RayOptimum",
    "SampleComplexity",
    "SampledMoments",
    "TooLargeError",
    "TracePolynomial",
    "VarianceMoments",
    "descend",
    "error_parts",
    "expected_power_sums",
    "expected_trace",
    "gaussian_pairs",
    "layered_risk",
    "layered_risk_polynomial",
    "looped_optimum",
    "mean_error_parts",
    "mean_spectrum",
    "one_step_preconditioner",
    "prediction_error",
    "random_covariance_risk",
    "random_covariance_steps",
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
]
