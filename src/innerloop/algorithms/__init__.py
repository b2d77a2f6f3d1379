"""Algorithms: learners with nothing trained."""

from innerloop.algorithms.gradient_descent import GDPlusPlus, GradientDescent
from innerloop.algorithms.learner import Learner, Zero, prefix_predictions
from innerloop.algorithms.least_squares import LeastSquares, Ridge
from innerloop.algorithms.newton import Newton

__all__ = [
    "GDPlusPlus",
    "GradientDescent",
    "Learner",
    "LeastSquares",
    "Newton",
    "Ridge",
    "Zero",
    "prefix_predictions",
]
