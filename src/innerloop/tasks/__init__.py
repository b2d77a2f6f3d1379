"""Tasks: distributions over prompts."""

from innerloop.tasks.linear import LinearRegression
from innerloop.tasks.representation import (
    Coefficients,
    DictionaryPrompt,
    DictionaryRegression,
    GaussianCoefficients,
    SphericalCoefficients,
    TabulatedCoefficients,
)
from innerloop.tasks.shifts import (
    Exponential,
    InContextQuery,
    NonlinearLabels,
    OrthogonalQuery,
    OtherQuery,
    RandomCovariance,
    with_covariance,
    with_noise,
    with_rotated_covariates,
    with_scaled_covariates,
    with_scaled_weights,
)
from innerloop.tasks.task import Task

__all__ = [
    "Coefficients",
    "DictionaryPrompt",
    "DictionaryRegression",
    "Exponential",
    "GaussianCoefficients",
    "InContextQuery",
    "LinearRegression",
    "NonlinearLabels",
    "OrthogonalQuery",
    "OtherQuery",
    "RandomCovariance",
    "SphericalCoefficients",
    "TabulatedCoefficients",
    "Task",
    "with_covariance",
    "with_noise",
    "with_rotated_covariates",
    "with_scaled_covariates",
    "with_scaled_weights",
]
