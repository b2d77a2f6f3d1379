"""Analysis: measuring learners, and comparing them."""

from innerloop.analysis.distances import distance_to_identity, prediction_distance
from innerloop.analysis.risk import Estimate, estimate_risk, learning_curve

__all__ = [
    "Estimate",
    "distance_to_identity",
    "estimate_risk",
    "learning_curve",
    "prediction_distance",
]
