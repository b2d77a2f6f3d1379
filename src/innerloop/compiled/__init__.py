"""Compiled models: transformers whose weights a construction wrote."""

from innerloop.compiled.accuracy import Form, Precision, precision, require_error
from innerloop.compiled.causal import causal_gradient_descent, causal_newton
from innerloop.compiled.gradient_descent import gradient_descent
from innerloop.compiled.linear_attention import linear_gd_plus_plus, linear_gradient_descent
from innerloop.compiled.newton import newton
from innerloop.compiled.program import Counts, Program
from innerloop.compiled.sequences import autoregression, chain_of_thought
from innerloop.compiled.transforms import fused, multiplications, parameter_count, unrolled

__all__ = [
    "Counts",
    "Form",
    "Precision",
    "Program",
    "autoregression",
    "causal_gradient_descent",
    "causal_newton",
    "chain_of_thought",
    "fused",
    "gradient_descent",
    "linear_gd_plus_plus",
    "linear_gradient_descent",
    "multiplications",
    "newton",
    "parameter_count",
    "precision",
    "require_error",
    "unrolled",
]
