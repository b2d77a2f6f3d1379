from dataclasses import replace

import pytest
import torch

from innerloop.algorithms import LabelMap, curve_answers
from innerloop.experiments import ALGORITHMS, Spec
from innerloop.tasks import DictionaryRegression
from innerloop.theory.softmax import DictionaryRisk, ridge_coefficients
from tests.samples import normal, random_prompt, seeded

TASK = DictionaryRegression.gaussian(3, 2, 7, 4, 0.1, generator=seeded())


def algorithm(text, task=TASK):
    return Spec.parse("algorithm", text, ALGORITHMS).build(ALGORITHMS, task)


def test_predictions_are_sums_of_labels():
    prompt, matrix = random_prompt(batch=2, n=3, queries=2), normal(3, 2)
    expected = [
        [sum(prompt.y[b, i] * matrix[i, k] for i in range(3)).item() for k in range(2)]
        for b in range(2)
    ]
    assert LabelMap(matrix)(prompt).tolist() == [pytest.approx(row) for row in expected]


def test_covariates_do_not_matter():
    prompt = random_prompt(n=3, queries=2)
    other = replace(prompt, x=-prompt.x, x_query=2 * prompt.x_query)
    learner = LabelMap(normal(3, 2))
    assert torch.equal(learner(prompt), learner(other))


@pytest.mark.parametrize(("n", "queries"), [(4, 2), (2, 2), (3, 1)])
def test_prompts_of_another_size_are_refused(n, queries):
    with pytest.raises(ValueError, match=rf"matrix must have the shape \[{n}, {queries}\]"):
        LabelMap(normal(3, 2))(random_prompt(n=n, queries=queries))


def test_shorter_prompts_have_a_matrix_of_their_own_and_empty_ones_the_prediction_0():
    prompt = TASK.sample(3, generator=seeded(1))
    learner = LabelMap(normal(4, 7), lambda k: float(k) * torch.eye(k, 7, dtype=prompt.y.dtype))
    shorter = learner(prompt.prefix(2))
    assert torch.equal(shorter[:, :2], 2 * prompt.y[:, :2])
    assert (shorter[:, 2:] == 0).all()
    for made in (learner, LabelMap(normal(4, 7))):
        assert (made(prompt.prefix(0)) == 0).all()


def test_a_learning_curve_needs_the_matrices_of_shorter_prompts():
    prompt = TASK.sample(3, generator=seeded(1))
    with pytest.raises(ValueError, match=r"matrix must have the shape \[1, 7\]"):
        curve_answers(LabelMap(normal(4, 7)), prompt)


def test_the_curve_of_shown_labels_is_0_as_no_token_is_asked_for_that_was_shown():
    prompt = TASK.sample(3, generator=seeded(1))
    assert (curve_answers(algorithm("shown-labels"), prompt) == 0).all()


def test_the_curve_of_ridge_regression_predicts_every_token_from_those_before_it():
    prompt = TASK.sample(3, generator=seeded(1))
    curve = curve_answers(algorithm("feature-ridge"), prompt)
    for k, asked in ((1, 1), (2, 2), (3, 3), (4, -1)):
        weights = ridge_coefficients(TASK.features[:k], prompt.y[:, :k], 2 * 0.1)
        torch.testing.assert_close(curve[:, k], weights @ TASK.features[asked])


@pytest.mark.parametrize("tau", [0.0, 0.1])
@pytest.mark.parametrize("shown", [1, 4])
def test_ridge_regression_has_the_least_loss_of_all_matrices(tau, shown):
    task = replace(TASK, tau=tau, shown=shown)
    risk = DictionaryRisk.of(task.features, shown, tau)
    matrix = algorithm("feature-ridge", task).matrix
    assert risk(matrix).item() == pytest.approx(risk.infimum, rel=1e-9, abs=1e-12)
    assert risk(1.01 * matrix) > risk.infimum
    if tau:
        assert risk(algorithm("feature-ridge:penalty=1", task).matrix) > risk.infimum
