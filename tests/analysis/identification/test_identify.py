"""Planted algorithms are named with their parameters; everything else is none of these."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from innerloop import theory
from innerloop.algorithms import (
    Averaging,
    GDPlusPlus,
    GradientDescent,
    Lasso,
    LeastSquares,
    NearestNeighbours,
    Newton,
    Ridge,
    StableGradientDescent,
    Zero,
)
from innerloop.analysis import distinguish, identify
from innerloop.analysis.identification import Fixed, Grade, InItsPrecision, telling_shifts
from innerloop.benchmarks.identify import false_alarms, outsiders, planted, recover
from innerloop.experiments import TASKS, Experiment, candidates_for
from innerloop.models import GradientDescentWeights, LinearAttention
from innerloop.tasks import LinearRegression, moved
from tests.samples import normal, seeded

NOISY = LinearRegression.isotropic(4, 12, 0.5)
CLEAN = LinearRegression.isotropic(4, 12)
SKEW = LinearRegression.with_inverse_prior(
    torch.diag(torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64)), 10
)


RIVALS = ("zero", "averaging", "ols", "ridge", "newton", "free-step", "posterior-mean")
"""Quick to fit; all candidates at once are for one test here, and for the slow ones."""


def identified(learner, task=NOISY, names=RIVALS, samples=400, seed=0, **more):
    families = candidates_for(task, sorted(names) if isinstance(names, set) else names)
    return identify(learner, task, families, samples=samples, generator=seeded(seed), **more)


def leading(result):
    return {s.candidate.name: s.candidate.parameters for s in result.decision.leading}


@pytest.mark.parametrize(
    ("learner", "family", "parameters"),
    [
        (Zero(), "zero", {}),
        (Averaging(), "averaging", {}),
        (NearestNeighbours(4), "neighbours", {"k": 4}),
        (LeastSquares(), "ols", {}),
        (Ridge(0.07), "ridge", {"penalty": 0.07}),
        (Ridge(30.0), "ridge", {"penalty": 30.0}),
        (Lasso(0.15), "lasso", {"penalty": 0.15}),
        (GradientDescent.repeated(0.13, 7), "gd", {"steps": 7, "step_size": 0.13}),
        (GradientDescent.repeated(0.02, 101), "gd", {"steps": 101, "step_size": 0.02}),
        (StableGradientDescent(9), "stable-gd", {"steps": 9}),
        (Newton(4), "newton", {"steps": 4, "scale": 1.0}),
        (Newton(2, 0.3), "newton", {"steps": 2, "scale": 0.3}),
        (
            GDPlusPlus([0.3] * 3, [0.7] * 3),
            "gd++",
            {"steps": 3, "step_size": 0.3, "transform": 0.7},
        ),
        (GradientDescent([0.2 * normal(4, 4)]), "free-step", {}),
    ],
    ids=lambda value: type(value).__name__ if callable(value) else None,
)
def test_a_planted_algorithm_is_recovered_with_its_parameters(learner, family, parameters):
    result = identified(lambda prompt: learner(prompt), names={*RIVALS, family})
    assert result.decision.grade is Grade.IDENTICAL
    named = leading(result)
    assert family in named, result.sentence
    assert named[family] == pytest.approx(parameters, rel=1e-6)
    assert "identical to rounding" in result.sentence


def test_descent_with_a_penalty_is_recovered_with_all_three_of_its_numbers():
    (family,) = candidates_for(NOISY, ["penalised-gd"])
    few = replace(family, steps=range(1, 5))
    planted = GradientDescent.repeated(0.1, 3, 0.7)
    result = identify(planted, NOISY, [few], samples=400, generator=seeded())
    assert result.decision.grade is Grade.IDENTICAL
    expected = {"steps": 3, "step_size": 0.1, "penalty": 0.7}
    assert leading(result)["penalised-gd"] == pytest.approx(expected, rel=1e-6)


@settings(max_examples=4)
@given(
    penalty=st.floats(1e-3, 1e3),
    steps=st.integers(1, 30),
    step_size=st.floats(0.005, 0.4),
    seed=st.integers(0, 100),
)
def test_any_penalty_and_any_number_of_steps_is_found(penalty, steps, step_size, seed):
    ridge = identified(Ridge(penalty), NOISY, ["ridge", "ols", "zero"], 200, seed)
    assert ridge.decision.best.candidate.parameters["penalty"] == pytest.approx(penalty, rel=1e-6)
    descent = GradientDescent.repeated(step_size, steps)
    gd = identified(descent, NOISY, ["gd", "ols"], 200, seed)
    assert gd.decision.grade is Grade.IDENTICAL
    assert gd.decision.best.candidate.parameters["steps"] == steps


def test_what_coincides_on_the_task_is_a_tie_and_the_shifts_break_it():
    result = identified(LeastSquares(), CLEAN, ())
    assert {"ols", "ridge", "newton", "posterior-mean"} <= leading(result).keys()
    assert result.decision.best.candidate.name == "ols"
    told = distinguish(LeastSquares(), CLEAN, result, samples=400, generator=seeded(1))
    # Ridge regression with a penalty of rounding is least squares; Newton's steps are not enough.
    assert [c.name for c in told.survivors] == ["ols", "posterior-mean", "ridge"]
    assert told.survivors[-1].parameters["penalty"] < 1e-9
    assert "on the task and on every shift: ols, posterior-mean, ridge" in told.sentence


def test_ridge_with_the_bayesian_penalty_is_the_posterior_mean_and_the_simpler_one_is_first():
    result = identified(Ridge(0.25))
    assert list(leading(result)) == ["posterior-mean", "ridge"]


def test_tied_candidates_that_are_not_exact_are_named_as_ties():
    """Two candidates at the same distance on both sides of the learner."""

    def beside(sign):
        def learner(prompt):
            wave = torch.cos(100 * prompt.x_query[..., 0])  # as often up as down
            return Ridge(0.3)(prompt) + sign * wave

        return Fixed(f"beside {sign}", learner)

    far = Fixed("zero", Zero())
    families = [beside(1.0), beside(-1.0), far]
    result = identify(Ridge(0.3), NOISY, families, samples=2000, generator=seeded())
    assert {c.name for c in (s.candidate for s in result.decision.leading)} == {
        "beside 1.0",
        "beside -1.0",
    }


def test_ties_are_named_where_nothing_is_near():
    zeros = [Fixed(name, Zero()) for name in ("zero", "nothing")]
    result = identify(Ridge(0.3), NOISY, zeros, samples=400, generator=seeded())
    assert result.decision.grade is Grade.NONE
    assert result.sentence.endswith("of the prediction; tied with it: nothing")


def test_an_estimator_is_a_learner_and_a_copy_of_it_is_fitted_to_every_prompt():
    class LeastSquaresEstimator:
        def fit(self, x, y):
            assert not hasattr(self, "w")
            self.w = np.linalg.lstsq(x, y, rcond=None)[0]
            return self

        def predict(self, x):
            return x @ self.w

    result = identify(
        LeastSquaresEstimator(),
        NOISY,
        candidates_for(NOISY, ["ols", "zero"]),
        samples=200,
        generator=seeded(),
    )
    assert result.sentence == "ols: identical to rounding"


def test_compiled_models_are_candidates_by_name():
    model, task, _ = Experiment("compiled-linear-gd:loops=3", "linear:d=2,n=6").build()
    names = ["ols", "compiled-linear-gd:loops=2", "compiled-linear-gd:loops=3"]
    result = identified(model, task, names, 200)
    assert result.sentence == "compiled-linear-gd:loops=3: identical to rounding"
    with pytest.raises(ValueError, match="did you mean compiled-linear-gd"):
        candidates_for(task, ["compiled-linear-gdd"])


@pytest.mark.parametrize("name", outsiders(0))
def test_an_outsider_is_none_of_these(name):
    task = LinearRegression.isotropic(5, 20, 0.5)
    result = identified(outsiders(0)[name], task)
    assert result.decision.grade is not Grade.IDENTICAL, result.sentence
    assert result.sentence.startswith("none of these")


def test_a_model_with_random_weights_is_none_of_these_and_nothing_is_near():
    task = "linear:d=3,n=8,noise_std=0.5,dtype=float32"
    for spec in ("gpt2:layers=2,width=16,heads=2", "looped-transformer:loops=3,width=16,heads=2"):
        model, made, _ = Experiment(spec, task).build()
        result = identified(model.eval(), made)
        assert result.decision.grade is Grade.NONE
        assert result.sentence.startswith("none of these; the best of them, ")


def test_what_is_near_but_not_it_is_named_as_the_nearest_with_its_share():
    def blurred(prompt):
        return Ridge(0.3)(prompt) + 0.05 * torch.sin(40 * prompt.x_query[..., 0])

    result = identified(blurred, names=["zero", "ols", "ridge", "averaging"], samples=2000)
    assert result.decision.grade is Grade.NEAR
    best = result.decision.best
    assert best.candidate.name == "ridge"
    assert best.candidate.parameters["penalty"] == pytest.approx(0.3, rel=0.2)
    assert 0.9 < best.error_share.low < best.error_share.value < best.error_share.high < 1
    assert "none of these exactly; nearest is ridge(penalty=0." in result.sentence


@pytest.mark.parametrize("loops", [1, 3])
def test_the_looped_optimum_is_the_best_preconditioned_step_looped(loops):
    step = theory.linear.looped_optimum(loops, 10, 3).steps[0]
    weights = GradientDescentWeights(step * SKEW.covariance.inverse().unsqueeze(0))
    names = (*RIVALS, "looped", "ray", "preconditioned-gd")
    result = identified(LinearAttention(weights, loops), SKEW, names)
    named = leading(result)
    assert named["looped"] == {"loops": loops}
    assert named["preconditioned-gd"] == pytest.approx(
        {"steps": loops, "step_size": step.item()}, rel=1e-6
    )


def test_layers_at_the_exact_optimum_are_the_steps_that_theory_says():
    best = theory.linear.untied_optimum(3, 10, 3).steps
    weights = GradientDescentWeights(best[:, None, None] * SKEW.covariance.inverse())
    result = identified(LinearAttention(weights), SKEW, (*RIVALS, "looped", "ray"))
    assert leading(result) == {"ray": {"steps": 3}}


def test_one_layer_at_the_exact_optimum_is_the_best_single_step():
    task = LinearRegression(SKEW.covariance, 10, noise_std=0.3)
    setting = (task.covariance, task.n, task.prior, task.noise_std)
    best = theory.linear.one_step_preconditioner(*setting)
    model = LinearAttention(GradientDescentWeights(best.unsqueeze(0)))
    result = identified(model, task, (*RIVALS, "one-step"))
    assert result.decision.best.candidate.name == "one-step"
    (free,) = (s for s in result.decision.leading if s.candidate.name == "free-step")
    torch.testing.assert_close(free.candidate.learner.preconditioners[0], best)


def test_a_learner_in_single_precision_is_identical_to_its_own_rounding():
    task = moved(NOISY, dtype=torch.float32)
    result = identified(GradientDescent.repeated(0.1, 5), task, ("gd", "ols"))
    assert leading(result)["gd"] == pytest.approx({"steps": 5, "step_size": 0.1}, rel=1e-3)


def test_candidates_are_fitted_on_one_half_and_measured_on_the_other():
    """A candidate that knows the first half by heart is as far on the second as it is."""
    seen = []

    class Memory:
        name = "memory"

        def fit(self, observed):
            seen.append(observed.prompt.y_query.clone())
            known = {
                tuple(q): a
                for q, a in zip(
                    observed.prompt.x_query[:, 0].tolist(), observed.answers.tolist(), strict=True
                )
            }

            def recall(prompt):
                rows = [known.get(tuple(q), [0.0]) for q in prompt.x_query[:, 0].tolist()]
                return torch.tensor(rows, dtype=prompt.y.dtype)

            return replace(Fixed("memory", recall).fit(observed), fitted=1)

    result = identify(Ridge(0.3), NOISY, [Memory()], samples=400, generator=seeded())
    assert len(seen[0]) == 200
    assert result.decision.grade is Grade.NONE
    assert result.decision.best.prediction_share.value == 0


def test_a_twin_says_whether_a_candidate_tells_as_much_as_another_training():
    def model(phase):
        return lambda prompt: (
            Ridge(0.3)(prompt) + 0.1 * torch.sin(40 * prompt.x_query[..., 0] + phase)
        )

    reached = identified(model(0.0), names=["ridge", "ols"], twin=model(2.0))
    assert reached.twin.reached
    assert reached.sentence.endswith("of the error, which the nearest candidate reaches")
    not_reached = identified(model(0.0), names=["ridge", "ols"], twin=model(0.1))
    assert not_reached.sentence.endswith("does not reach")


def test_a_model_can_be_a_candidate_in_its_own_precision():
    model, task, _ = Experiment(
        "gpt2:layers=1,width=8,heads=2", "linear:d=3,n=6,dtype=float32"
    ).build()
    model.eval()
    families = [Fixed("itself", InItsPrecision(model, torch.float32)), Fixed("zero", Zero())]
    result = identify(model, task, families, samples=400, generator=seeded())
    assert result.sentence == "itself: identical to rounding"


def test_a_shift_is_a_task_of_the_same_covariates_and_is_survived_by_the_same_algorithm():
    names = [shift.name for shift in telling_shifts(NOISY)]
    assert len(names) == len(set(names)) == 6
    result = identified(Ridge(0.3))
    told = distinguish(Ridge(0.3), NOISY, result, samples=400, generator=seeded(1))
    assert [c.name for c in told.survivors] == ["ridge"]
    rows = told.as_text().rows
    assert [row[0] for row in rows] == ["the task", *names]


def test_a_learner_that_changes_with_the_covariates_survives_nothing():
    def turncoat(prompt):
        wide = prompt.x.square().mean((1, 2), keepdim=True)[:, 0] > 2
        return torch.where(wide, Ridge(100.0)(prompt), Ridge(0.3)(prompt))

    result = identified(turncoat, names=["ridge", "ols", "zero"])
    told = distinguish(turncoat, NOISY, result, samples=400, generator=seeded(1))
    assert not told.survivors
    assert "fails on covariates × 2 (best there " in told.sentence


@pytest.mark.parametrize(
    ("learner", "sentence"),
    [
        (lambda prompt: prompt.y[:, 0], r"shape \[400, 1\] of the targets.*got \[400\]"),
        (lambda prompt: prompt.y_query * float("nan"), "with a number, got nan for prompt 0"),
        (lambda prompt: torch.ones_like(prompt.y_query), "answers 1 to all of 400 prompts"),
        (lambda prompt: {}["w"], "<lambda> fails on the prompts with KeyError: 'w'"),
        (lambda prompt: float("one"), "<lambda> refuses the prompts: could not convert"),
    ],
)
def test_answers_that_say_nothing_are_refused_with_a_sentence(learner, sentence, shapes_unchecked):
    with pytest.raises(ValueError, match=sentence):
        identified(learner, names=["ols"])


@pytest.mark.parametrize(
    ("names", "samples", "sentence"),
    [
        (["ridg"], 600, "no candidate is called 'ridg'; did you mean ridge"),
        (["ols"], 10, "samples must be between 200 and 1000000 prompts to identify, got 10"),
        (["ols", "ols"], 600, "different names, got 'ols' twice"),
        (["feature-ridge"], 600, "feature-ridge needs a task with features"),
        (["feature-gd"], 600, "feature-gd is a family on the task representation only"),
        (["posterior-mean"], 600, "posterior-mean is known for linear functions"),
    ],
)
def test_candidates_that_cannot_be_are_refused_with_a_sentence(names, samples, sentence):
    with pytest.raises(ValueError, match=sentence):
        identified(LeastSquares(), TASKS["tree"](d=3, n=10), names, samples)


def test_a_preconditioner_of_more_entries_than_prompts_is_left_out_with_the_reason():
    task = LinearRegression.isotropic(10, 12, 0.5)
    result = identified(Ridge(0.3), task, ["ridge", "free-step"], 200)
    assert "needs at least 400 predictions" in result.left_out["free-step"]


def test_the_same_seed_gives_the_same_answer():
    one, other = (identified(Ridge(0.3), names=["ridge", "ols"], samples=300) for _ in range(2))
    assert str(one) == str(other)


@pytest.mark.slow
@pytest.mark.parametrize("case", list(planted()), ids=str)
def test_every_algorithm_of_the_catalogue_is_found_again(case):
    """Named to rounding; if not with its own parameters, what is named is the same everywhere."""
    found = recover(case)
    assert found.recovered, found
    assert found.exactly or len(found.named) > 1, found


@pytest.mark.slow
def test_outsiders_are_none_of_these_whatever_the_seed():
    for name, said in false_alarms(range(100, 110)).items():
        assert all(grade is not Grade.IDENTICAL for grade, _ in said), name
