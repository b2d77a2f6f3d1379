"""Theory: closed forms and exact expectations, as pure functions in float64."""

from innerloop.theory.covariance_law import CovarianceLaw
from innerloop.theory.covariance_moments import moment_eigenvalues, residual_eigenvalues
from innerloop.theory.descent import descend
from innerloop.theory.gradient_flow import Flow, gradient_flow
from innerloop.theory.largest_eigenvalue import largest_eigenvalue_exceeds
from innerloop.theory.linear_attention import (
    layered_risk,
    layered_risk_polynomial,
    one_step_preconditioner,
    sandwich_moment,
    single_layer_risk,
)
from innerloop.theory.long_prompts import (
    centred_moment,
    long_prompt_risk,
    long_prompt_slope,
    optimal_gap,
    residual_moment,
)
from innerloop.theory.looped import (
    SampledOptimum,
    context_losses,
    expanding_probability,
    gap_constant,
    loop_risks,
    looped_optimum,
    lower_bound,
    sample_eigenvalues,
    sampled_looped_optimum,
    tied_risk,
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
from innerloop.theory.ray import (
    RayOptimum,
    ray_error,
    ray_risk,
    ray_spectrum,
    transformed_optimum,
    untied_optimum,
)
from innerloop.theory.ridge import DictionaryRisk, one_head_floor, ridge_coefficients, ridge_matrix
from innerloop.theory.sample_complexity import Lengths, SampleComplexity
from innerloop.theory.shifted_risk import (
    in_context_query_risk,
    one_step_risk,
    random_covariance_risk,
    response_risk,
)
from innerloop.theory.single_layer_flow import SingleLayerFlow, balanced_direction, whole_layer_loss
from innerloop.theory.softmax_descent import DescentConstants, iterations, smallest_eigenvalue
from innerloop.theory.wishart import (
    Quadrature,
    expected_power_sums,
    mean_spectrum,
    recurrence,
    sample_wishart,
    trace_moment,
)
from innerloop.theory.wishart_nodes import wishart_nodes
from innerloop.theory.words import MatrixPolynomial, TooLargeError, TracePolynomial, expected_trace

__all__ = [
    "CovarianceLaw",
    "DescentConstants",
    "DictionaryRisk",
    "ErrorParts",
    "Flow",
    "JointMoments",
    "Lengths",
    "MatrixPolynomial",
    "Quadrature",
    "RayOptimum",
    "SampleComplexity",
    "SampledMoments",
    "SampledOptimum",
    "SingleLayerFlow",
    "TooLargeError",
    "TracePolynomial",
    "balanced_direction",
    "centred_moment",
    "context_losses",
    "descend",
    "error_parts",
    "expanding_probability",
    "expected_power_sums",
    "expected_trace",
    "gap_constant",
    "gaussian_pairs",
    "gradient_flow",
    "in_context_query_risk",
    "iterations",
    "largest_eigenvalue_exceeds",
    "layered_risk",
    "layered_risk_polynomial",
    "long_prompt_risk",
    "long_prompt_slope",
    "loop_risks",
    "looped_optimum",
    "lower_bound",
    "mean_error_parts",
    "mean_spectrum",
    "moment_eigenvalues",
    "one_head_floor",
    "one_step_preconditioner",
    "one_step_risk",
    "optimal_gap",
    "prediction_error",
    "random_covariance_risk",
    "ray_error",
    "ray_risk",
    "ray_spectrum",
    "recurrence",
    "residual_eigenvalues",
    "residual_moment",
    "response_risk",
    "ridge_coefficients",
    "ridge_matrix",
    "sample_eigenvalues",
    "sample_wishart",
    "sampled_looped_optimum",
    "sandwich_moment",
    "single_layer_risk",
    "smallest_eigenvalue",
    "tied_risk",
    "trace_moment",
    "transformed_optimum",
    "untied_optimum",
    "whole_layer_loss",
    "wishart_nodes",
]
