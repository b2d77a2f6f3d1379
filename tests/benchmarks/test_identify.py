"""The benchmark of identify plants what it says, and counts what was named."""

import torch

from innerloop.algorithms import Ridge
from innerloop.analysis.identification import Candidate, Grade
from innerloop.benchmarks.identify import Found, Planted, confusion, outsiders, planted, recover
from innerloop.experiments import ALGORITHMS
from innerloop.tasks import LinearRegression
from tests.samples import seeded

SLOW = {"network", "tree", "boosted-trees"}
"""Candidates only when they are named."""
OTHER_TASKS = {"unigram"}
"""Of sentences, which are not planted."""


def test_every_algorithm_of_the_catalogue_is_planted():
    words = [case.make.args[0] for case in planted()]
    names = {word.partition(":")[0] for word in words if isinstance(word, str)}
    assert names | SLOW | OTHER_TASKS == set(ALGORITHMS)


def case(family="ridge", **parameters):
    return Planted("linear:d=2,n=6,noise_std=0.5", family, parameters, lambda task: Ridge(0.4))


def test_steps_must_be_exact_and_penalties_within_a_twentieth():
    def candidate(**parameters):
        return Candidate("ridge", Ridge(0.4), parameters)

    assert case(penalty=0.4).is_it(candidate(penalty=0.415))
    assert not case(penalty=0.4).is_it(candidate(penalty=0.45))
    assert case(steps=3).is_it(candidate(steps=3))
    assert not case(steps=30).is_it(candidate(steps=31))
    assert not case("ols").is_it(candidate())


def test_what_is_recovered_stands_on_the_diagonal():
    found = recover(case(penalty=0.4))
    assert found.grade is Grade.IDENTICAL
    assert found.exactly
    missed = Found(case("ols"), Grade.NONE, [], [])
    rows = confusion([found, missed]).rows
    assert rows == [("ridge", "1", "ridge 1"), ("ols", "1", "none of these 1")]


def test_outsiders_answer_every_prompt_and_differ_from_ridge():
    prompt = LinearRegression.isotropic(5, 20, 0.5).sample(50, generator=seeded())
    ridge = Ridge(0.3)(prompt)
    for name, learner in outsiders(0).items():
        with torch.no_grad():
            answers = learner(prompt)
        assert answers.shape == ridge.shape, name
        assert ((answers - ridge).norm() / ridge.norm()) > 1e-4, name
