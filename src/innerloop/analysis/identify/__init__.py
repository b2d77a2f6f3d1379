"""Which algorithm is inside a learner: measured, with intervals, or none of the candidates.

    result = identify(learner, task, candidates_for(task), generator=generator)
    print(result)            # a ranked table and a sentence
    result.decision.grade    # identical to rounding, none of these exactly, none of these

The rule is in `decide`, the measures are in `measures`, families of candidates in `candidates`.
"""

from innerloop.analysis.identify.bootstrap import LEVEL, Bootstrap, Interval
from innerloop.analysis.identify.candidates import (
    Among,
    Candidate,
    Family,
    Filtered,
    Fixed,
    Free,
    FreeStep,
    InItsPrecision,
    LassoFamily,
    Observed,
)
from innerloop.analysis.identify.decide import Decision, Grade, Standing
from innerloop.analysis.identify.distinguish import Distinguished, distinguish, telling_shifts
from innerloop.analysis.identify.identification import Identification, Twin, identify
from innerloop.analysis.identify.inside import DepthMatch, ReadOut, match_depths, read_out
from innerloop.analysis.identify.probes import ProbeTable, probe, standard_targets
from innerloop.analysis.identify.responses import (
    NotDifferentiable,
    ResponseTable,
    compare_responses,
    response,
)
from innerloop.analysis.identify.symmetries import SymmetryTable, symmetries, symmetry_table

__all__ = [
    "LEVEL",
    "Among",
    "Bootstrap",
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
    "probe",
    "read_out",
    "response",
    "standard_targets",
    "symmetries",
    "symmetry_table",
    "telling_shifts",
]
