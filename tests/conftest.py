"""Shapes checked while the tests run, settings of the property tests, and a shared fixture."""

from pathlib import Path

import jaxtyping
import pytest
from hypothesis import settings

PACKAGE = Path(__file__).parent.parent / "src" / "innerloop"
UNCHECKED = (
    "theory.wishart",  # exact recursions: millions of tiny calls that take no tensors
    "theory.linear.long_prompts",  # fractions, no tensors
    "papers",  # claims call checked functions; checking their own helpers doubles their time
    "reproduction",
    "report",
    "benchmarks",
    "cli",
)


def checked_modules() -> list[str]:
    """Every module of the library but those left out above, by name."""
    for name in UNCHECKED:
        path = PACKAGE / name.replace(".", "/")
        found = path.is_dir() or path.with_suffix(".py").is_file()
        assert found, f"UNCHECKED names {name}, which is no module of innerloop"
    files = (path.relative_to(PACKAGE).with_suffix("") for path in sorted(PACKAGE.rglob("*.py")))
    names = [".".join(file.parts) for file in files if file.name != "__init__"]
    left_out = tuple(f"{name}." for name in UNCHECKED)
    return [f"innerloop.{name}" for name in names if not f"{name}.".startswith(left_out)]


# Before anything of innerloop's is imported: the hook rewrites modules as they are loaded.
jaxtyping.install_import_hook(checked_modules(), "beartype.beartype")

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
