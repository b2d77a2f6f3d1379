"""Linear attention and gradient steps: expected losses, optima, errors at any prompt length."""

from innerloop.theory.linear.covariance_law import CovarianceLaw
from innerloop.theory.linear.layers import (
    layered_risk,
    layered_risk_polynomial,
    one_step_preconditioner,
    single_layer_risk,
)
from innerloop.theory.linear.long_prompts import (
    centred_moment,
    long_prompt_risk,
    long_prompt_slope,
    optimal_gap,
    residual_moment,
)
from innerloop.theory.linear.looped import (
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
from innerloop.theory.linear.prediction_error import (
    ErrorParts,
    JointMoments,
    SampledMoments,
    error_parts,
    gaussian_pairs,
    mean_error_parts,
    prediction_error,
)
from innerloop.theory.linear.ray import (
    RayOptimum,
    ray_error,
    ray_risk,
    ray_spectrum,
    transformed_optimum,
    untied_optimum,
)
from innerloop.theory.linear.sample_complexity import Lengths, SampleComplexity
from innerloop.theory.linear.shifted_risk import (
    in_context_query_risk,
    one_step_risk,
    random_covariance_risk,
    response_risk,
)

__all__ = [
    "CovarianceLaw",
    "ErrorParts",
    "JointMoments",
    "Lengths",
    "RayOptimum",
    "SampleComplexity",
    "SampledMoments",
    "SampledOptimum",
    "centred_moment",
    "context_losses",
    "error_parts",
    "expanding_probability",
    "gap_constant",
    "gaussian_pairs",
    "in_context_query_risk",
    "layered_risk",
    "layered_risk_polynomial",
    "long_prompt_risk",
    "long_prompt_slope",
    "loop_risks",
    "looped_optimum",
    "lower_bound",
    "mean_error_parts",
    "one_step_preconditioner",
    "one_step_risk",
    "optimal_gap",
    "prediction_error",
    "random_covariance_risk",
    "ray_error",
    "ray_risk",
    "ray_spectrum",
    "residual_moment",
    "response_risk",
    "sample_eigenvalues",
    "sampled_looped_optimum",
    "single_layer_risk",
    "tied_risk",
    "transformed_optimum",
    "untied_optimum",
]
