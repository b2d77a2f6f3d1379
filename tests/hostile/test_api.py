"""The library called with what no one means: refused, or finite and soon there."""

import weakref

import pytest
import torch
from safetensors.torch import load_file

from innerloop.algorithms import GradientDescent, LeastSquares, Newton
from innerloop.analysis import estimate_risk, loop_curve
from innerloop.cli import main
from innerloop.experiments import Experiment
from innerloop.models import GradientDescentWeights, LinearAttention
from innerloop.tasks import LinearRegression
from innerloop.training import cosine, warmup
from tests.hostile.helpers import no_hang, refusal
from tests.samples import seeded

TASK = LinearRegression.isotropic(d=4, n=3)
FEW = TASK.sample(50, generator=seeded())
MANY = LinearRegression.isotropic(d=4, n=30).sample(50, generator=seeded())


@pytest.mark.parametrize("prompt", [FEW, MANY], ids=["n < d", "n > d"])
@pytest.mark.parametrize("steps", [200, 201, 10**12])
def test_newton_steps_without_number_are_the_least_squares_solution_and_quick(prompt, steps):
    """The last digit of some eigenvalues goes to and fro for ever, which must be noticed."""
    with no_hang(20):
        found = Newton(steps)(prompt)
    assert found.isfinite().all()
    torch.testing.assert_close(found, LeastSquares()(prompt), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("steps", [60, 61, 150, 151])
def test_newton_that_stops_early_has_every_digit_of_one_that_does_not(steps):
    last = Newton(steps).iterates(MANY)[:, -1]
    expected = (MANY.x_query @ last.unsqueeze(-1)).squeeze(-1)
    assert torch.equal(Newton(steps)(MANY), expected)


def test_many_steps_of_descent_do_not_keep_every_iterate_in_memory():
    """With a chunk of 20,000 prompts, thousands of iterates would be gigabytes."""
    made, most_at_once = [], 0

    class Watched(GradientDescent):
        def _path(self, prompt):
            nonlocal most_at_once
            for w in super()._path(prompt):
                made.append(weakref.ref(w))
                most_at_once = max(most_at_once, sum(w() is not None for w in made))
                yield w

    Watched.repeated(0.1, 100)(FEW)
    assert len(made) == 101
    assert most_at_once <= 3


@pytest.mark.parametrize("samples", [0, 1, -3, 10**12])
def test_samples_that_give_no_standard_error_or_no_end_are_refused(samples):
    with pytest.raises(ValueError, match=f"samples must be at .* got {samples}"):
        estimate_risk(LeastSquares(), TASK, samples=samples, generator=seeded())


def looped():
    weights = GradientDescentWeights.gaussian(1, 1, 0.1, generator=seeded())
    return LinearAttention(weights, 2), LinearRegression.isotropic(d=1, n=1)


@pytest.mark.parametrize(("loops", "samples"), [(0, 10), (10**9, 10), (2, 1), (2, 10**12)])
def test_loops_and_samples_without_end_are_refused(loops, samples):
    model, task = looped()
    with pytest.raises(ValueError, match="must be at"):
        loop_curve(model, task, loops=loops, samples=samples, generator=seeded())


@pytest.mark.slow
def test_more_errors_than_torch_takes_quantiles_of_have_quantiles():
    model, task = looped()
    (row,) = loop_curve(model, task, loops=1, samples=2**24 + 1, generator=seeded())
    assert 0 < row.median < row.mean.mean < row.upper


@pytest.mark.parametrize("floor", [-1.0, 1.5, float("nan")])
def test_a_schedule_that_would_fail_in_the_middle_of_a_run_is_refused_before_it(floor):
    with pytest.raises(ValueError, match="floor must be between 0 and 1"):
        cosine(10, floor)
    with pytest.raises(ValueError, match="steps must be 0 or more"):
        warmup(-1)


@pytest.mark.parametrize("std", [-1.0, float("nan"), float("inf")])
def test_a_start_of_no_distribution_is_refused(std):
    with pytest.raises(ValueError, match="std must be finite and not negative"):
        GradientDescentWeights.gaussian(2, 1, std, generator=seeded())


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_loss_that_is_lost_in_the_last_step_leaves_nothing_that_is_not_finite(
    folder, capsys, steps
):
    words = ["--optimizer", "sgd:lr=1e155", "--clip", "1e300", "--steps", str(steps)]
    said = refusal(capsys, "train", "gd:layers=2", "--task", "linear:d=2,n=4", *words, "--run", "r")
    assert "the loss became" in said or "not finite" in said
    for path in folder.rglob("*.safetensors"):
        assert all(t.double().isfinite().all() for t in load_file(path).values())


def test_a_learner_of_ones_own_that_breaks_is_refused_with_its_name(folder, capsys):
    (folder / "broken_learner_of_mine.py").write_text("factory = 1 / 0\n")
    words = ["--model", "broken_learner_of_mine:factory", "--task", "linear"]
    said = refusal(capsys, "evaluate", *words)
    assert "cannot import broken_learner_of_mine" in said
    assert "division by zero" in said


@pytest.mark.parametrize("clip", ["x", [], True, float("nan"), 0, -1, {}])
def test_a_clip_that_is_no_limit_makes_no_experiment(shapes_unchecked, clip):
    with pytest.raises(ValueError, match="clip must be positive and finite"):
        Experiment("gd", "linear", clip=clip)


def test_the_same_run_asked_for_twice_in_a_row_is_only_read(folder, capsys):
    words = ["train", "gd:layers=1", "--task", "linear:d=2,n=4", "--steps", "2", "--run", "r"]
    assert main(words) == 0
    before = (folder / "r" / "checkpoint.safetensors").read_bytes()
    assert main(words) == 0
    assert (folder / "r" / "checkpoint.safetensors").read_bytes() == before
