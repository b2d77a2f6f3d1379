"""Analysis: measuring learners, and comparing them."""

from innerloop.analysis.curves import plot_learning_curves
from innerloop.analysis.distances import distance_to_identity, prediction_distance
from innerloop.analysis.identification import Identification, distinguish, identify
from innerloop.analysis.loops import (
    AfterLoops,
    loop_curve,
    loop_spectral_radius,
    require_loops,
)
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
from innerloop.analysis.siblings import (
    draw_loop_distances,
    loop_distances,
    plot_attention,
    plot_loop_distances,
)
from innerloop.analysis.translation import (
    Score,
    cross_entropies,
    greedy_scores,
    target_entropy,
    translation_scores,
)

__all__ = [
    "AfterLoops",
    "Estimate",
    "Identification",
    "Score",
    "Shift",
    "ShiftRow",
    "ShiftTable",
    "chunk_for",
    "cross_entropies",
    "distance_to_identity",
    "distinguish",
    "draw_loop_distances",
    "estimate_risk",
    "greedy_scores",
    "identify",
    "learning_curve",
    "loop_curve",
    "loop_distances",
    "loop_spectral_radius",
    "one_step_risk",
    "plot_attention",
    "plot_learning_curves",
    "plot_loop_distances",
    "position_errors",
    "prediction_distance",
    "require_loops",
    "require_samples",
    "shift_table",
    "standard_shifts",
    "target_entropy",
    "translation_scores",
]
