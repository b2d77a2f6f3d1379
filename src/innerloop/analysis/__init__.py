"""Analysis: measuring learners, and comparing them."""

from innerloop.analysis.curves import plot_learning_curves
from innerloop.analysis.distances import distance_to_identity, prediction_distance
from innerloop.analysis.loops import AfterLoops, loop_curve, loop_spectral_radius
from innerloop.analysis.risk import (
    Estimate,
    chunk_for,
    estimate_risk,
    learning_curve,
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
from innerloop.analysis.siblings import loop_distances, plot_attention, plot_loop_distances

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
    "loop_distances",
    "loop_spectral_radius",
    "one_step_risk",
    "plot_attention",
    "plot_learning_curves",
    "plot_loop_distances",
    "prediction_distance",
    "require_samples",
    "shift_table",
    "standard_shifts",
]
