"""Algorithms: learners with nothing trained."""

from innerloop.algorithms.gradient_descent import GDPlusPlus, GradientDescent, StableGradientDescent
from innerloop.algorithms.label_map import LabelMap
from innerloop.algorithms.lasso import Lasso
from innerloop.algorithms.learner import Learner, Zero, answers, curve_answers
from innerloop.algorithms.least_squares import LeastSquares, Ridge
from innerloop.algorithms.neighbours import Averaging, NearestNeighbours
from innerloop.algorithms.network import NetworkDescent
from innerloop.algorithms.newton import Newton
from innerloop.algorithms.on_features import OnFeatures, SequenceDescent, SequenceRidge
from innerloop.algorithms.pool import PoolPosterior
from innerloop.algorithms.scikit import Scikit
from innerloop.algorithms.unigram import Unigram

__all__ = [
    "Averaging",
    "GDPlusPlus",
    "GradientDescent",
    "LabelMap",
    "Lasso",
    "Learner",
    "LeastSquares",
    "NearestNeighbours",
    "NetworkDescent",
    "Newton",
    "OnFeatures",
    "PoolPosterior",
    "Ridge",
    "Scikit",
    "SequenceDescent",
    "SequenceRidge",
    "StableGradientDescent",
    "Unigram",
    "Zero",
    "answers",
    "curve_answers",
]
