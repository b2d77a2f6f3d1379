"""Which algorithm is inside a learner: measured, with intervals, or none of the candidates.

    result = identify(learner, task, candidates_for(task), generator=generator)
    print(result)            # a ranked table and a sentence
    result.decision.grade    # identical to rounding, none of these exactly, none of these

The rule is in `decide`, the measures are in `measures`, families of candidates in `candidates`.
"""

from innerloop.analysis.identification.answer import (
    Identification,
    Twin,
    identify,
    require_sizes,
)
from innerloop.analysis.identification.bootstrap import LEVEL, Bootstrap, Interval
from innerloop.analysis.identification.candidates import (
    Among,
    Candidate,
    Family,
    Fixed,
    FreeStep,
    InItsPrecision,
    LassoFamily,
    Observed,
)
from innerloop.analysis.identification.decide import Decision, Grade, Standing
from innerloop.analysis.identification.distinguish import Distinguished, distinguish, telling_shifts
from innerloop.analysis.identification.filtered import Filtered, Free
from innerloop.analysis.identification.inside import By, DepthMatch, ReadOut, match_depths, read_out
from innerloop.analysis.identification.picture import plot_identification
from innerloop.analysis.identification.probes import ProbeTable, probe, standard_targets
from innerloop.analysis.identification.responses import (
    NotDifferentiable,
    ResponseTable,
    compare_responses,
    response,
)
from innerloop.analysis.identification.symmetries import SymmetryTable, symmetries, symmetry_table

__all__ = [
    "LEVEL",
    "Among",
    "Bootstrap",
    "By",
    "Candidate",
    "Decision",
    "DepthMatch",
    "Distinguished",
    "Family",
    "Filtered",
    "Fixed",
    "Free",
    "FreeStep",
    "Grade",
    "Identification",
    "InItsPrecision",
    "Interval",
    "LassoFamily",
    "NotDifferentiable",
    "Observed",
    "ProbeTable",
    "ReadOut",
    "ResponseTable",
    "Standing",
    "SymmetryTable",
    "Twin",
    "compare_responses",
    "distinguish",
    "identify",
    "match_depths",
    "plot_identification",
    "probe",
    "read_out",
    "require_sizes",
    "response",
    "standard_targets",
    "symmetries",
    "symmetry_table",
    "telling_shifts",
]
