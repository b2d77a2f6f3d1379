"""The shift table, and the exact losses that belong to it."""

import pytest
import torch

from innerloop import theory
from innerloop.algorithms import GradientDescent, LeastSquares, Zero
from innerloop.analysis import one_step_risk, shift_table, standard_shifts
from innerloop.tasks import (
    Exponential,
    LinearRegression,
    NonlinearLabels,
    OrthogonalQuery,
    RandomCovariance,
)
from tests.samples import covariance, seeded

ISOTROPIC = LinearRegression.isotropic(4, 9)
SKEW = LinearRegression(covariance(4), 9, covariance(4, seed=2), noise_std=0.3)


def best_step(task):
    return theory.linear.one_step_preconditioner(
        task.covariance, task.n, task.prior, task.noise_std
    )


@pytest.mark.parametrize(
    "shift", standard_shifts(ISOTROPIC), ids=lambda shift: shift.name.replace(" ", "-")
)
def test_the_exact_loss_of_the_best_step_under_every_standard_shift(shift):
    """Cubic labels have a loss of degree 12, too heavy-tailed for a standard error: see theory."""
    step = best_step(ISOTROPIC)
    exact = one_step_risk(shift.task, step)
    assert exact is not None
    if "³" in shift.name:
        return
    prompt = shift.task.sample(200_000, generator=seeded(4))
    errors = (GradientDescent([step])(prompt) - prompt.y_query).square()
    assert abs(errors.mean() - exact) < 4 * errors.std() / len(errors) ** 0.5


def test_shifts_of_a_skew_task_are_exact_where_a_formula_is_known():
    step = best_step(SKEW)
    known = {s.name for s in standard_shifts(SKEW) if one_step_risk(s.task, step) is not None}
    assert {"as trained", "query among the examples", "covariates × 2"} <= known
    unknown = [
        NonlinearLabels(SKEW, torch.tanh),
        OrthogonalQuery(LinearRegression(covariance(4), 2)),
        RandomCovariance(SKEW, Exponential(4)),
    ]
    assert all(one_step_risk(task, step) is None for task in unknown)


def test_the_task_itself_comes_first_and_all_kinds_are_there():
    shifts = standard_shifts(ISOTROPIC)
    assert shifts[0].task is ISOTROPIC
    kinds = {shift.kind for shift in shifts}
    assert kinds == {"none", "task", "query", "covariate", "random covariance"}


def test_in_one_dimension_there_is_no_orthogonal_query():
    names = [shift.name for shift in standard_shifts(LinearRegression.isotropic(1, 5))]
    assert not any("orthogonal" in name for name in names)


def test_learners_of_a_row_meet_the_same_prompts():
    learners = {"zero": Zero(), "again": Zero(), "ols": LeastSquares()}
    rows = shift_table(learners, standard_shifts(ISOTROPIC)[:2], samples=500, seed=3)
    assert rows[0].shift.name == "as trained"
    for row in rows:
        assert row.losses["zero"] == row.losses["again"]
    assert rows[0].losses["ols"].mean < 1e-20 < rows[1].losses["ols"].mean
