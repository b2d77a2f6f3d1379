"""Algorithms: learners with nothing trained."""

from innerloop.algorithms.gradient_descent import GDPlusPlus, GradientDescent, StableGradientDescent
from innerloop.algorithms.label_map import LabelMap
from innerloop.algorithms.lasso import Lasso
from innerloop.algorithms.learner import Learner, Zero, answers, curve_answers
from innerloop.algorithms.least_squares import LeastSquares, Ridge
from innerloop.algorithms.newton import Newton

__all__ = [
    "GDPlusPlus",
    "GradientDescent",
    "LabelMap",
    "Lasso",
    "Learner",
    "LeastSquares",
    "Newton",
    "Ridge",
    "StableGradientDescent",
    "Zero",
    "answers",
    "curve_answers",
]
