"""The claims of Zhang et al. (2023) on the convergence of gradient flow, at the smallest scale."""

import pytest

from innerloop.papers import Outcome, Scale, entries
from innerloop.papers.zhang2023.convergence import above_bound, imbalance, worst_ratio
from innerloop.papers.zhang2023.settings import NEAREST, fixed_runs, into_the_saddle, random_runs
from tests.papers.contract import assert_measured, assert_typeset

CORRECTED = {"lemma5.1-eigenvalues", "lemmaC.8"}
HOLDING = {
    *("lemma5.1", "lemma5.2", "lemma5.3", "lemma5.4"),
    *("lemmaA.1", "corollaryA.2", "lemmaA.3", "lemmaA.4", "lemmaA.5"),
    *("lemmaC.1", "corollaryC.2", "lemmaC.3", "lemmaC.4", "lemmaC.5", "lemmaC.6", "lemmaC.7"),
    *("lemmaD.1", "lemmaD.2", "lemmaD.3", "lemmaD.4"),
    *("theorem4.1", "theorem4.1-any-scale", "theorem4.5", "theorem4.5-nondiagonal"),
    "gradient-flow",
}
IDS = [f"zhang2023/{name}" for name in sorted(CORRECTED | HOLDING)]


@pytest.mark.parametrize("id", IDS)
def test_the_verdict_is_the_known_one_and_every_control_is_told_apart(id, tmp_path):
    name = id.removeprefix("zhang2023/")
    expected = Outcome.CORRECTED if name in CORRECTED else Outcome.HOLDS
    assert_measured(entries()[id], expected, tmp_path)


@pytest.mark.parametrize("id", IDS)
def test_formulas_can_be_typeset(id):
    assert_typeset(entries()[id])


@pytest.mark.parametrize("runs", [fixed_runs, random_runs])
def test_every_control_of_a_bound_runs_into_the_saddle_and_violates_it(runs):
    for run in runs(Scale.QUICK):
        control = into_the_saddle(run)
        v = control.path[:, 0]
        assert v[0].item() == pytest.approx(run.scale, rel=1e-9)
        assert v[-1].item() == pytest.approx(NEAREST * run.scale, rel=1e-4)
        assert (v.diff() < 0).all()
        assert imbalance(control) < 1e-4
        assert worst_ratio(run, control) < 1
        assert above_bound(run, control) < 1
