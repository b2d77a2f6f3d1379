"""Algorithms: learners with nothing trained."""

from innerloop.algorithms.gradient_descent import GDPlusPlus, GradientDescent, StableGradientDescent
from innerloop.algorithms.label_map import LabelMap
from innerloop.algorithms.lasso import Lasso
from innerloop.algorithms.learner import (
    Learner,
    LearnerError,
    Zero,
    answers,
    answers_or_reason,
    curve_answers,
)
from innerloop.algorithms.least_squares import LeastSquares, Ridge
from innerloop.algorithms.neighbours import Averaging, NearestNeighbours
from innerloop.algorithms.network import NetworkDescent
from innerloop.algorithms.newton import Newton
from innerloop.algorithms.on_features import OnFeatures, SequenceDescent, SequenceRidge
from innerloop.algorithms.pool import PoolPosterior
from innerloop.algorithms.scikit import Estimator, Scikit, as_learner
from innerloop.algorithms.unigram import Unigram

__all__ = [
    "Averaging",
    "Estimator",
    "GDPlusPlus",
    "GradientDescent",
    "LabelMap",
    "Lasso",
    "Learner",
    "LearnerError",
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
    "answers_or_reason",
    "as_learner",
    "curve_answers",
]
