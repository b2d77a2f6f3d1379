"""Depth by depth, symmetries, responses, probes, and the picture."""

from types import SimpleNamespace

import pytest
import torch

from innerloop import compiled, theory
from innerloop.algorithms import (
    GradientDescent,
    Lasso,
    LeastSquares,
    NearestNeighbours,
    Newton,
    Ridge,
    Scikit,
)
from innerloop.analysis import identify
from innerloop.analysis.identification import (
    Candidate,
    NotDifferentiable,
    compare_responses,
    match_depths,
    plot_identification,
    probe,
    read_out,
    response,
    standard_targets,
    symmetry_table,
)
from innerloop.experiments import Experiment, candidates_for
from innerloop.experiments.named_candidates import (
    fixed_newton,
    gd,
    newton,
    preconditioned_gd,
    stable_gd,
)
from innerloop.models import GradientDescentWeights, InContext, LinearAttention
from innerloop.tasks import LinearRegression
from tests.samples import normal, seeded

TASK = LinearRegression.isotropic(4, 12, 0.2)
PROMPT = TASK.sample(800, generator=seeded())
SKEW = LinearRegression.with_inverse_prior(
    torch.diag(torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64)), 10
)


class Iterated:
    """A learner that is an algorithm, one step for each loop."""

    def __init__(self, loops, algorithm):
        self.loops, self.algorithm = loops, algorithm

    def after_loops(self, prompt, counts):
        return torch.stack([self.algorithm(count)(prompt) for count in counts])


def curve(match):
    return [best.value for best in match.best]


def test_looped_linear_attention_is_one_step_of_descent_for_each_loop():
    step = theory.linear.looped_optimum(4, 10, 3).steps[0]
    weights = GradientDescentWeights(step * SKEW.covariance.inverse().unsqueeze(0))
    prompt = SKEW.sample(400, generator=seeded())
    read = read_out(LinearAttention(weights, 4), prompt, "loop", depths=6)
    match = match_depths(read, prompt, preconditioned_gd(SKEW), generator=seeded())
    assert curve(match) == [1, 2, 3, 4, 5, 6]
    assert match.parameters == pytest.approx({"step_size": step.item()}, rel=1e-8)
    assert max(match.relative) < 1e-12
    assert all((best.low, best.high) == (best.value, best.value) for best in match.best)


def test_compiled_newton_is_newton_loop_by_loop():
    model = InContext(compiled.newton(4, 12, loops=6, alpha=0.02).model())
    read = read_out(model, PROMPT, "loop")
    match = match_depths(read, PROMPT, fixed_newton(TASK), generator=seeded())
    assert curve(match) == [1, 2, 3, 4, 5, 6]
    assert match.parameters == pytest.approx({"alpha": 0.02}, rel=1e-6)
    assert max(match.relative) < 1e-8
    rivals = candidates_for(TASK, ["fixed-newton", "newton", "ols", "stable-gd"])
    named = identify(model, TASK, rivals, samples=300, generator=seeded())
    assert str(named.decision.best.candidate) == "fixed-newton(steps=6, alpha=0.02)"


def test_layers_of_linear_attention_are_read_one_by_one():
    a = 0.3 * normal(3, 4, 4)
    model = LinearAttention(GradientDescentWeights(a))
    read = read_out(model, PROMPT, "layer")
    for layers, answers in enumerate(read.answers, start=1):
        torch.testing.assert_close(answers, GradientDescent(list(a[:layers]))(PROMPT))


def test_newtons_iteration_is_newton_loop_by_loop_and_descent_that_doubles():
    read = read_out(Iterated(8, Newton), PROMPT, "loop")
    own = match_depths(read, PROMPT, newton(TASK), generator=seeded())
    assert curve(own) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert own.parameters["scale"] == pytest.approx(1.0)
    other = curve(match_depths(read, PROMPT, stable_gd(TASK), generator=seeded()))
    assert other[7] / other[3] > 4  # four doublings would be 16, a line through 0 has 2
    descent = read_out(Iterated(5, lambda k: GradientDescent.repeated(0.1, k)), PROMPT, "loop")
    assert curve(match_depths(descent, PROMPT, gd(TASK), generator=seeded())) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("spec", "by", "depths"),
    [
        ("gpt2:layers=2,width=8,heads=2", "layer", ["layer 1", "layer 2"]),
        ("looped-transformer:loops=2,width=8,heads=2", "loop", ["loop 1", "loop 2"]),
        ("algoformer:loops=2,width=8,heads=2", "loop", ["loop 1", "loop 2"]),
        ("algoformer:loops=1,width=8,heads=2", "layer", None),
    ],
)
def test_transformers_are_read_out_and_the_last_depth_is_their_answer(spec, by, depths):
    model, task, _ = Experiment(spec, "linear:d=4,n=12,dtype=float32").build()
    prompt = task.sample(300, generator=seeded())
    read = read_out(model.eval(), prompt, by)
    assert depths is None or list(read.names) == depths
    with torch.no_grad():
        expected = model(prompt).double()
    torch.testing.assert_close(read.answers[-1], expected, rtol=1e-4, atol=1e-5)
    match = match_depths(read, prompt.to(dtype=torch.float64), stable_gd(TASK), generator=seeded())
    assert len(match.as_text().rows) == len(read.names)


@pytest.mark.parametrize(
    ("model", "by", "sentence"),
    [
        (Ridge(0.3), "loop", "only a looped model has loops, got Ridge"),
        (Ridge(0.3), "layer", "only a model with `trace` can be read layer by layer, got Ridge"),
    ],
)
def test_a_learner_without_an_inside_is_refused(model, by, sentence):
    with pytest.raises(ValueError, match=sentence):
        read_out(model, PROMPT, by)


def test_a_symmetry_that_only_one_of_two_has_refutes():
    ridge, lasso, near = (
        Candidate("ridge", Ridge(0.3)),
        Candidate("lasso", Lasso(0.1)),
        Candidate("neighbours", NearestNeighbours(3)),
    )
    how = {"dtype": torch.float64, "generator": seeded()}
    table = symmetry_table(Ridge(0.1), PROMPT, [ridge, lasso, near], **how)
    assert [row.kept for row in table.rows] == [True, True, True]
    assert [[c.name for c in row.refuted] for row in table.rows] == [[], ["lasso"], ["lasso"]]

    def first_counts_most(prompt):
        return Ridge(0.1)(prompt) + 0.1 * prompt.y[:, :1]

    table = symmetry_table(first_counts_most, PROMPT, [ridge], **how)
    assert [row.kept for row in table.rows] == [False, True, True]
    assert table.as_text().rows[0][-1] == "all"


def test_responses_of_a_linear_learner_are_its_weights_and_its_map_of_the_labels():
    found = response(Ridge(0.3), PROMPT)
    torch.testing.assert_close(found.to_query, Ridge(0.3).weights(PROMPT))
    gram = PROMPT.x.mT @ PROMPT.x + 0.3 * torch.eye(4)
    hat = (PROMPT.x_query @ torch.linalg.inv(gram) @ PROMPT.x.mT).squeeze(1)
    torch.testing.assert_close(found.to_labels, hat)
    torch.testing.assert_close(found.from_labels, found.answers)


def test_linearity_is_measured_and_responses_are_compared():
    nearest = [Candidate("ridge", Ridge(0.3)), Candidate("nothing", GradientDescent([0.0]))]

    def bent(prompt):
        return torch.tanh(Ridge(0.3)(prompt))

    how = {"dtype": torch.float64, "generator": seeded()}
    straight = compare_responses(Ridge(0.3), PROMPT, nearest, **how)
    curved = compare_responses(bent, PROMPT, nearest, **how)
    assert straight.linear_in_query.low == pytest.approx(1.0)
    assert straight.linear_in_labels.low == pytest.approx(1.0)
    assert curved.linear_in_query.high < 0.95
    assert [row.to_labels.value for row in straight.rows] == pytest.approx([1.0, 0.0])
    assert curved.rows[0].to_labels.high < 0.9


def test_a_learner_without_derivatives_says_so():
    from sklearn.linear_model import Ridge as ScikitRidge

    with pytest.raises(NotDifferentiable, match="no derivatives that PyTorch knows of"):
        response(Scikit(lambda: ScikitRidge(0.1)), PROMPT.part(slice(3)))


class Residuals(torch.nn.Module):
    """A model of one layer whose residual at the query is what a test gives it."""

    def __init__(self, of):
        super().__init__()
        self.of = of

    def trace(self, sequence):
        d = sequence.tokens.shape[-1] - 1
        x, y = sequence.tokens[:, 0:-1:2, :d], sequence.tokens[:, 1::2, d]
        residual = self.of(x, y).unsqueeze(1)
        return SimpleNamespace(names=["layer 1"], residuals=residual.unsqueeze(0))


def test_a_probe_finds_what_is_linearly_there_and_its_control_is_not_there():
    mix, noise = normal(4, 16), normal(4, 16, seed=1)

    def moment(x, y):
        m = (y.unsqueeze(1) @ x).squeeze(1) / y.shape[1]
        return m @ mix + x[:, 0] @ noise

    table = probe(
        Residuals(moment),
        PROMPT,
        standard_targets(0.3, steps=(1, 8)),
        dtype=torch.float64,
        generator=seeded(),
    )
    found = {each.target: each for each in table.probes}
    assert found["X^T y / n"].r2.low > 0.99
    assert found["w after 1 steps"].r2.low > 0.99  # a multiple of it
    assert found["X^T y / n"].control.high < 0.2
    assert found["X^T y / n"].selectivity.low > 0.8
    assert found["w after 8 steps"].r2.high < found["X^T y / n"].r2.low


def test_a_residual_of_chance_has_no_selectivity():
    def chance(x, y):
        return torch.randn(len(x), 16, generator=seeded(len(x)), dtype=torch.float64)

    table = probe(
        Residuals(chance), PROMPT, standard_targets(0.3), dtype=torch.float64, generator=seeded()
    )
    assert all(each.r2.high < 0.05 for each in table.probes)
    assert sum(0.0 in each.selectivity for each in table.probes) >= len(table.probes) - 1


def test_probes_of_few_prompts_are_refused():
    model, _, _ = Experiment(
        "gpt2:layers=1,width=64,heads=2", "linear:d=4,n=12,dtype=float32"
    ).build()
    few = PROMPT.part(slice(100))
    with pytest.raises(ValueError, match="of width 64 need at least 256 prompts, got 100"):
        probe(model, few, standard_targets(0.3), dtype=torch.float32, generator=seeded())


def test_the_picture_has_a_panel_for_distances_errors_and_every_algorithm():
    families = candidates_for(TASK, ["ols", "ridge", "zero"])
    found = identify(LeastSquares(), TASK, families, samples=300, generator=seeded())
    read = read_out(Iterated(3, Newton), PROMPT, "loop")
    matches = [match_depths(read, PROMPT, f(TASK), generator=seeded()) for f in (newton, gd)]
    picture = plot_identification(found, matches, title="planted")
    titles = [axes.get_title() for axes in picture.axes if axes.get_title()]
    assert titles == ["distance to each candidate", "beside ols", "newton", "gd"]
    labels = [text.get_text() for text in picture.axes[0].get_yticklabels()]
    assert labels[-1] == "ols"
