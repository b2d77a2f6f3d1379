"""Analysis: measuring learners, and comparing them."""

from innerloop.analysis.distances import distance_to_identity, prediction_distance
from innerloop.analysis.loops import AfterLoops, loop_curve, loop_spectral_radius
from innerloop.analysis.risk import Estimate, estimate_risk, learning_curve

__all__ = [
    "AfterLoops",
    "Estimate",
    "distance_to_identity",
    "estimate_risk",
    "learning_curve",
    "loop_curve",
    "loop_spectral_radius",
    "prediction_distance",
]
