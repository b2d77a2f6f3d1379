"""Names of tasks, models and algorithms, read from the tables that build them."""

import importlib
import inspect
import textwrap

import pytest

from innerloop.experiments import Spec
from innerloop.experiments.recipes import RECIPES
from innerloop.index import catalogue, source
from innerloop.index.source import NotLiteralError


def test_the_index_describes_the_functions_of_the_catalogue():
    module = importlib.import_module("innerloop.experiments.catalogue")
    tables = catalogue()
    assert {"tasks", "models", "algorithms"} <= tables.keys()
    for table, items in tables.items():
        if table == "recipes":
            continue
        functions = getattr(module, table.upper())
        assert [item.name for item in items] == list(functions)
        for item in items:
            function = functions[item.name]
            assert item.description == " ".join(inspect.getdoc(function).split("\n\n")[0].split())
            assert (source.PACKAGE / item.file).samefile(
                inspect.getsourcefile(inspect.unwrap(function))
            )
            parameters = inspect.signature(function).parameters.values()
            settable = [
                p for p in parameters if p.default is not p.empty or p.kind == p.KEYWORD_ONLY
            ]
            assert list(item.options) == [p.name + default_of(p) for p in settable], item.name


def default_of(parameter):
    value = parameter.default
    if value is parameter.empty or value is None:
        return ""
    return f"={str(value).lower() if isinstance(value, bool) else value}"


def test_options_that_are_listed_with_a_default_can_be_typed():
    module = importlib.import_module("innerloop.experiments.catalogue")
    for table, kind in (("models", "model"), ("tasks", "task"), ("algorithms", "algorithm")):
        for item in catalogue()[table]:
            given = ",".join(option for option in item.options if "=" in option)
            words = f"{item.name}:{given}" if given else item.name
            if len(given.split(",")) == len(item.options):  # the others must be given a value
                assert Spec.parse(kind, words, getattr(module, table.upper())).name == item.name


def test_recipes_are_listed_with_what_they_are():
    found = {item.name: item.description for item in catalogue()["recipes"]}
    assert found == {name: recipe.about for name, recipe in RECIPES.items()}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package `sketch` whose files a test writes."""
    monkeypatch.setattr(source, "PACKAGE", tmp_path / "sketch")
    source.read.cache_clear()
    catalogue.cache_clear()

    def write(**modules):
        for name, text in modules.items():
            path = tmp_path.joinpath("sketch", *name.split("__")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))

    yield write
    source.read.cache_clear()
    catalogue.cache_clear()


def test_functions_are_found_in_the_modules_they_are_imported_from(package):
    package(
        tables="""
            from sketch.parts import deep as below
            from .near import beside
            MODELS: dict = {"deep": below, "near": beside}
        """,
        near='def beside(task, *, width: int, rate=0.1, kind="a"):\n    """Beside it."""\n',
        parts__init="",
    )
    (source.PACKAGE / "parts" / "__init__.py").write_text("from sketch.parts.inner import deep\n")
    package(
        parts__inner='\ndef deep(task, d=5, /, n=(1, 2)):\n    """Two\n    lines.\n\n    More."""\n'
    )
    deep, near = catalogue(("sketch.tables",))["models"]
    assert (deep.name, deep.description, deep.file, deep.line) == ("deep", "Two lines.", "parts/inner.py", 2)  # fmt: skip  # noqa: E501
    assert deep.options == ("d=5", "n=(1, 2)")
    assert near.options == ("width", "rate=0.1", "kind=a")


def test_a_value_that_is_no_function_is_refused_with_its_place(package):
    package(tables='MODELS = {"one": lambda: 1}\n')
    with pytest.raises(NotLiteralError, match=r"tables\.py:1 must name a function, got lambda"):
        catalogue(("sketch.tables",))
