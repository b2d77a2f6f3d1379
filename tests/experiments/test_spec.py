"""Specs: the short form, JSON and the object say the same, for every name of the catalogue."""

import json
import math
from types import NoneType
from typing import Literal, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from innerloop.experiments import TABLES, Spec, settable

ENTRIES = [(kind, name) for kind, table in TABLES.items() for name in table]
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def values(annotation):
    """Everything that an option with this annotation may be."""
    if get_origin(annotation) is Literal:
        return st.sampled_from(get_args(annotation))
    if get_origin(annotation) is tuple:
        return st.lists(FINITE, min_size=1, max_size=4).map(tuple)
    if get_origin(annotation) is not None:  # a union
        return st.one_of(*(st.none() if a is NoneType else values(a) for a in get_args(annotation)))
    words = st.from_regex(r"[a-z][a-z0-9.-]*", fullmatch=True)
    return {int: st.integers(), float: FINITE, bool: st.booleans(), str: words}[annotation]


@st.composite
def specs(draw):
    kind, name = draw(st.sampled_from(ENTRIES))
    accepted = settable(TABLES[kind][name])
    chosen = draw(st.sets(st.sampled_from(sorted(accepted)))) if accepted else []
    options = {key: draw(values(accepted[key].annotation)) for key in sorted(chosen)}
    return Spec.of(kind, name, options, TABLES[kind])


def same(one, other):
    """Equal, in their types as well: 1 is not 1.0 here."""
    types = [[type(v) for v in spec.options.values()] for spec in (one, other)]
    return one == other and types[0] == types[1]


@given(specs())
def test_the_short_form_says_everything(spec):
    # What is None in a spec is left out of the words, and is the default.
    assert same(Spec.parse(spec.kind, str(spec), TABLES[spec.kind]), spec)


@given(specs())
def test_json_says_everything(spec):
    text = json.dumps(spec.as_json(), allow_nan=False)
    assert same(Spec.from_json(spec.kind, json.loads(text), TABLES[spec.kind]), spec)


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_a_name_alone_has_the_defaults_of_its_function(kind, name):
    spec = Spec.parse(kind, name, TABLES[kind])
    assert spec.options == {k: p.default for k, p in settable(TABLES[kind][name]).items()}
    assert same(Spec.parse(kind, str(spec), TABLES[kind]), spec)
    assert same(Spec.from_json(kind, {"name": name}, TABLES[kind]), spec)


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_every_option_is_of_a_kind_that_words_can_say(kind, name):
    for parameter in settable(TABLES[kind][name]).values():
        values(parameter.annotation)
        if parameter.default is None:  # what words cannot say must be what is meant without them
            assert NoneType in get_args(parameter.annotation)
        else:
            assert NoneType not in get_args(parameter.annotation)


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_a_name_with_a_letter_too_many_is_refused_with_the_right_one(kind, name):
    wrong = f"{name}~"
    with pytest.raises(ValueError, match="did you mean") as error:
        Spec.parse(kind, wrong, TABLES[kind])
    known = ", ".join(TABLES[kind])
    assert str(error.value) == f"no {kind} is called {wrong!r}; did you mean {name}? Known: {known}"


def parsed(text, kind="task"):
    return Spec.parse(kind, text, TABLES[kind])


def test_words_become_values_of_the_option_they_are_given_for():
    spec = parsed("linear:d=2,n=7,noise_std=1,prior=inverse,spectrum=1/0.5")
    assert spec.options["d"] == 2
    assert spec.options["n"] == 7
    assert type(spec.options["noise_std"]) is float
    assert spec.options["spectrum"] == (1.0, 0.5)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("linear:d", "task linear takes options as key=value, got 'd'"),
        ("linear:d=2,d=3", "task linear is given d twice, in 'linear:d=2,d=3'"),
        ("linear:e=2", "task linear has no option 'e'; it has: d, n, noise_std, prior, spectrum"),
        ("linear:d=2.5", "d of task linear must be a whole number, got '2.5'"),
        ("linear:noise_std=loud", "noise_std of task linear must be a number, got 'loud'"),
        ("linear:noise_std=nan", "noise_std of task linear must be finite, got nan"),
        ("linear:noise_std=inf", "noise_std of task linear must be finite, got inf"),
        ("linear:spectrum=1;2", "spectrum of task linear must be numbers separated by /"),
        ("linear:spectrum=1/inf", "spectrum of task linear must be finite, got inf"),
        ("linear:dtype=half", "dtype of task linear must be one of float64, float32, got 'half'"),
        ("", "no task is called ''; Known: linear, sparse, random-cov"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_sentence(text, sentence):
    with pytest.raises(ValueError, match="task") as error:
        parsed(text)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ("linear", "a task must be an object with a name, got 'linear'"),
        ({"options": {}}, "a task must be an object with a name"),
        ({"name": 3}, "a task must be an object with a name"),
        ({"name": "linear", "options": [1]}, r"options of task linear must be an object, got \[1"),
        ({"name": "linear", "options": {"d": True}}, "d of task linear must be a whole number"),
        ({"name": "linear", "options": {"d": 2.0}}, "d of task linear must be a whole number"),
        ({"name": "linear", "options": {"d": None}}, "d of task linear must be a whole number"),
        ({"name": "linear", "options": {"spectrum": 1}}, "must be a list of numbers, got 1"),
        ({"name": "linear", "options": {"noise_std": math.nan}}, "must be finite, got nan"),
        (
            {"name": "linear", "options": {"prior": ["identity"]}},
            "prior of task linear must be one",
        ),
    ],
)
def test_json_that_is_no_spec_is_refused_with_a_sentence(record, sentence):
    with pytest.raises(ValueError, match=sentence):
        Spec.from_json("task", record, TABLES["task"])


def test_options_can_be_changed_and_are_checked_again():
    spec = parsed("linear:d=2,n=7")
    assert str(spec.with_options({"n": 9}, TABLES["task"])).startswith("linear:d=2,n=9,")
    assert spec.options["n"] == 7
    with pytest.raises(ValueError, match="n of task linear must be a whole number, got 'many'"):
        spec.with_options({"n": "many"}, TABLES["task"])


def test_a_spec_of_another_kind_is_refused_also_if_the_name_is_known():
    descent = parsed("gd", "algorithm")
    with pytest.raises(ValueError, match="a model is asked for, got the algorithm gd:steps=3"):
        parsed(descent, "model")


def test_a_spec_made_by_hand_is_checked_like_words():
    with pytest.raises(ValueError, match="no model is called 'gdd'; did you mean gd"):
        parsed(Spec("model", "gdd", {}), "model")
    assert parsed(Spec("model", "gd", {"layers": 7}), "model") == parsed("gd:layers=7", "model")
