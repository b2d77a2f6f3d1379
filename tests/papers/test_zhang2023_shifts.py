"""The shifts of Zhang et al. (2023), section 4.2, measured at the smallest scale."""

import pytest

from innerloop.papers import Outcome, select
from tests.papers.contract import assert_measured, assert_typeset

EXPECTED = {
    "task-shift": Outcome.HOLDS,
    "query-shift": Outcome.HOLDS,
    "orthogonal-query": Outcome.CORRECTED,
    "covariate-shift": Outcome.HOLDS,
    "shifts": Outcome.HOLDS,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_verdict_is_the_known_one_and_every_control_is_told_apart(name, tmp_path):
    (entry,) = select([f"zhang2023/{name}"])
    assert_measured(entry, EXPECTED[name], tmp_path)
    assert_typeset(entry)
