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
from innerloop.tasks.task import Task

__all__ = [
    "Coefficients",
    "DictionaryPrompt",
    "DictionaryRegression",
    "GaussianCoefficients",
    "LinearRegression",
    "SphericalCoefficients",
    "TabulatedCoefficients",
    "Task",
]
