"""What a module depends on, on a small package whose files a test may change."""

import functools
from pathlib import Path

import pytest

from innerloop.papers import Scale, entries
from innerloop.reproduction.dependencies import SourceTree, code_behind

FILES = {
    "__init__.py": '"""A package."""\nfrom lab.prompt import Prompt\n__all__ = ["Prompt"]\n',
    "prompt.py": "class Prompt: pass\n",
    "registry.py": "import importlib\ndef claim(f): return importlib and f\n",
    "theory/__init__.py": "from lab.theory import flow, linear\n__all__ = ['flow', 'linear']\n",
    "theory/flow.py": "def descend(x): return x\n",
    "theory/linear/__init__.py": (
        "from lab.theory.linear.looped import optimum\n"
        "from lab.theory.linear.layers import risk as layered_risk\n"
    ),
    "theory/linear/looped.py": (
        "from ..checks import positive\ndef optimum(x): return positive(x)\n"
    ),
    "theory/linear/layers.py": "def risk(x): return x\n",
    "theory/checks.py": "def positive(x): return x\n",
    "papers/__init__.py": "",
    "papers/one.py": (
        "from lab import theory\n"
        "from lab.registry import claim\n"
        "@claim\n"
        "def check(x): return theory.linear.optimum(x).real\n"
    ),
    "papers/two.py": "from lab.theory import linear as l\ndef check(x): return l.layered_risk(x)\n",
}


@pytest.fixture
def lab(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "lab" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "lab"


def tree(lab):
    return SourceTree(lab, without={"lab.registry"})


def behind(lab, module):
    return {name.removeprefix("lab.") for name in tree(lab).behind(f"lab.{module}")}


ONE = {"papers.one", "theory.linear.looped", "theory.checks"}
ALL_OF_THEORY = {
    "theory",
    "theory.flow",
    "theory.linear",
    "theory.linear.looped",
    "theory.linear.layers",
    "theory.checks",
}


def test_names_lead_to_the_modules_that_define_them(lab):
    assert behind(lab, "papers.one") == ONE
    assert behind(lab, "papers.two") == {"papers.two", "theory.linear.layers"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import lab.theory\nx = lab.theory.linear.layered_risk(1)", {"theory.linear.layers"}),
        ("import lab.theory.flow as f\nx = f.descend(1)", {"theory.flow"}),
        ("from . import two\nx = two.check(1)", {"papers.two", "theory.linear.layers"}),
        ("from lab import Prompt", {"prompt"}),
        ("from lab.theory.linear import looped", {"theory.linear.looped", "theory.checks"}),
        ("def f():\n    from lab.theory.flow import descend\n    return descend", {"theory.flow"}),
        ("import torch, math\nfrom numpy.linalg import norm", set()),
    ],
)
def test_every_form_of_import_is_followed(lab, text, expected):
    (lab / "papers" / "new.py").write_text(text)
    assert behind(lab, "papers.new") - {"papers.new"} == expected


@pytest.mark.parametrize(
    "text",
    [
        "from lab import theory\nx = getattr(theory.linear, 'optimum')\ny = theory",
        "from lab import theory\nx = theory.linear.nobody_defines_this\ny = theory.nor_this",
        "from lab.theory import nobody_defines_this",
        "from lab.theory import *",
        "import lab.theory.flow",
        "import importlib\nx = importlib.import_module('lab.theory')",
        "x = __import__('lab.theory')",
    ],
)
def test_where_the_text_does_not_tell_everything_counts_that_may_be_meant(lab, text):
    (lab / "papers" / "new.py").write_text(text)
    assert behind(lab, "papers.new") >= ALL_OF_THEORY


def test_packages_that_do_more_than_pass_names_on_count(lab):
    (lab / "theory" / "__init__.py").write_text(
        FILES["theory/__init__.py"] + "from lab.theory.checks import positive\npositive(1)\n"
    )
    assert "theory" in behind(lab, "papers.two")


def test_modules_that_pass_names_to_each_other_end(lab):
    (lab / "a.py").write_text("from lab.b import x")
    (lab / "b.py").write_text("from lab.a import x")
    assert behind(lab, "a") >= {"a"}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("theory/checks.py", "# why\ndef positive(x):\n    '''Now said.'''\n\n    return x\n"),
        ("papers/one.py", FILES["papers/one.py"].replace("\n", "  # note\n")),
        ("theory/flow.py", "def descend(x): return -x\n"),
        ("theory/linear/layers.py", "def risk(x): return -x\n"),
        ("papers/two.py", "def check(x): return 0\n"),
        ("registry.py", "def claim(f): return f\n"),
        ("new.py", "x = 1\n"),
    ],
)
def test_comments_docstrings_and_other_modules_change_nothing(lab, file, text):
    before = tree(lab).version("lab.papers.one")
    (lab / file).write_text(text)
    assert tree(lab).version("lab.papers.one") == before


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("papers/one.py", FILES["papers/one.py"] + "x = 1\n"),
        ("theory/linear/looped.py", FILES["theory/linear/looped.py"] + "x = 1\n"),
        ("theory/checks.py", "def positive(x): return abs(x)\n"),
        ("theory/linear/__init__.py", "from lab.theory.linear.layers import risk as optimum\n"),
        ("theory/__init__.py", "from lab.theory import flow, linear\nflow.descend(1)\n"),
        ("theory/linear/optimum.py", "x = 1\n"),
    ],
)
def test_a_change_of_what_it_depends_on_changes_the_version(lab, file, text):
    before = tree(lab).version("lab.papers.one")
    assert tree(lab).version("lab.papers.one") == before
    (lab / file).write_text(text)
    assert tree(lab).version("lab.papers.one") != before


def test_a_file_outside_of_the_package_counts_with_what_it_uses(lab, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text("from lab import theory\nx = theory.linear.optimum(1)\n")
    versions = {tree(lab).version("mine", mine)}
    mine.write_text("from lab import theory\nx = theory.linear.optimum(2)\n")
    versions.add(tree(lab).version("mine", mine))
    (lab / "theory" / "checks.py").write_text("")
    versions.add(tree(lab).version("mine", mine))
    assert len(versions) == 3


def test_claims_and_figures_depend_on_what_they_measure_with_and_no_more():
    folder = Path(__file__).parent.parent.parent / "src" / "innerloop"
    own = SourceTree(folder, without={"innerloop.papers.registry"})
    found = own.behind(entries()["zhang2023/lemmaC.3"].function.__module__)
    assert "innerloop.papers.verdict" in found
    assert not any(name.startswith(("innerloop.cli", "innerloop.report")) for name in found)
    for entry in entries().values():
        function = entry.function
        others = {key for key in ("ahn2023", "zhang2023") if key != entry.id.split("/")[0]}
        reached = own.behind(function.__module__)
        assert not any(f".papers.{key}." in name for key in others for name in reached), entry.id


def test_the_code_behind_a_function_is_that_of_its_module():
    def check(scale):
        return scale

    @functools.wraps(check)
    def wrapped(scale):
        return check(scale)

    assert code_behind(check) == code_behind(wrapped) == code_behind(tree)
    assert code_behind(check) != code_behind(Scale.pick)


def test_a_function_that_is_in_no_file_is_refused():
    namespace = {"__name__": "typed_in"}
    exec("def check(scale): pass", namespace)
    with pytest.raises(ValueError, match="its module 'typed_in' has none"):
        code_behind(namespace["check"])
