"""Analysis: measuring learners, and comparing them."""

from innerloop.analysis.curves import plot_learning_curves
from innerloop.analysis.distances import distance_to_identity, prediction_distance
from innerloop.analysis.loops import AfterLoops, loop_curve, loop_spectral_radius
from innerloop.analysis.risk import (
    Estimate,
    chunk_for,
    estimate_risk,
    learning_curve,
    position_errors,
    require_samples,
)
from innerloop.analysis.shifts import (
    Shift,
    ShiftRow,
    ShiftTable,
    one_step_risk,
    shift_table,
    standard_shifts,
)

__all__ = [
    "AfterLoops",
    "Estimate",
    "Shift",
    "ShiftRow",
    "ShiftTable",
    "chunk_for",
    "distance_to_identity",
    "estimate_risk",
    "learning_curve",
    "loop_curve",
    "loop_spectral_radius",
    "one_step_risk",
    "plot_learning_curves",
    "position_errors",
    "prediction_distance",
    "require_samples",
    "shift_table",
    "standard_shifts",
]
