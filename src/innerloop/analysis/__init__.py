"""Analysis: measuring learners, and comparing them."""

from innerloop.analysis.distances import distance_to_identity, prediction_distance
from innerloop.analysis.loops import AfterLoops, loop_curve, loop_spectral_radius
from innerloop.analysis.risk import Estimate, estimate_risk, learning_curve
from innerloop.analysis.shifts import Shift, ShiftRow, one_step_risk, shift_table, standard_shifts

__all__ = [
    "AfterLoops",
    "Estimate",
    "Shift",
    "ShiftRow",
    "distance_to_identity",
    "estimate_risk",
    "learning_curve",
    "loop_curve",
    "loop_spectral_radius",
    "one_step_risk",
    "prediction_distance",
    "shift_table",
    "standard_shifts",
]
