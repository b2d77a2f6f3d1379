"""Settings of the property tests, and the one fixture that every folder uses."""

import jaxtyping
import pytest
from hypothesis import settings

# The same examples in every run, and no time limit on a machine that is busy.
settings.register_profile(
    "innerloop", deadline=None, max_examples=25, derandomize=True, database=None
)
settings.load_profile("innerloop")


@pytest.fixture
def shapes_unchecked(monkeypatch):
    """Lets wrong shapes through to the library's own refusals.

    With shapes in signatures checked at run time, a wrong shape never reaches the sentence that a
    user would read: the tests of those sentences switch the check off.
    """
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
