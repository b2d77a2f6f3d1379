"""The loss of every position, the window of loops, schedules and curricula of sequence models."""

import pytest
import torch

from innerloop.experiments import Experiment, Run
from innerloop.models import BlockShape, Decoder, InContext, Looped
from innerloop.sequence import TokenSequence
from innerloop.tasks import DictionaryRegression, LinearRegression, narrowed
from innerloop.training import EveryPosition, LoopWindow, warmup_stable_decay
from tests.samples import DOUBLE, normal, seeded

TASK = LinearRegression.isotropic(3, 4, noise_std=0.2)
SHAPE = BlockShape(width=8, heads=2)


def decoder():
    return InContext(Decoder(4, 1, SHAPE, layers=1, length=9, generator=seeded(), dtype=DOUBLE))


def looped(**options):
    return InContext(
        Looped(4, 1, SHAPE, loops=5, length=9, generator=seeded(), dtype=DOUBLE, **options)
    )


def test_every_position_counts_and_its_labels_are_clean_as_the_query_is():
    objective, model = EveryPosition(TASK, 6), decoder()
    prompt = objective.sample(seeded(1))
    errors = [(model(p) - p.y_query).square() for p in map(prompt.next_example, range(5))]
    expected = torch.cat(errors, dim=1).mean()
    torch.testing.assert_close(objective.loss(model, prompt), expected)
    assert torch.equal(prompt.next_example(2).y_query[:, 0], prompt.y_clean[:, 2])


def test_sequences_are_trained_on_at_the_positions_they_name():
    model = decoder().model
    batch = TokenSequence(normal(2, 5, 4), torch.tensor([1, 3]), normal(2, 2, 1, seed=1))
    expected = (model(batch) - batch.targets).square().mean()
    torch.testing.assert_close(EveryPosition(TASK, 2).loss(model, batch), expected)


@pytest.mark.parametrize("truncate", [True, False])
def test_the_window_averages_the_last_loop_counts(truncate):
    model = looped(before=1)
    objective = LoopWindow(TASK, 6, loops=5, window=2, truncate=truncate)
    prompt = objective.sample(seeded(1))
    targets = prompt.curve_targets()
    losses = [(model.learning_curve(prompt, loops=t) - targets).square().mean() for t in (4, 5)]
    torch.testing.assert_close(objective.loss(model, prompt), torch.stack(losses).mean())


def test_truncation_drops_the_gradient_of_the_loops_before_the_window():
    model = looped()
    gradients = []
    for truncate in (True, False):
        objective = LoopWindow(TASK, 6, loops=5, window=1, truncate=truncate)
        model.zero_grad()
        objective.loss(model, objective.sample(seeded(1))).backward()
        gradients.append(model.model.inside.blocks[0].merge.weight.grad.clone())
    assert (gradients[0] - gradients[1]).norm() > 0.01 * gradients[1].norm()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: LoopWindow(TASK, 6, loops=3, window=4), "window must be between 1 and the 3"),
        (lambda: LoopWindow(TASK, 6, loops=0, window=1), "loops must be at least 1, got 0"),
        (lambda: EveryPosition(TASK, 0), "batch must be at least 1, got 0"),
        (
            lambda: LoopWindow(TASK, 2, 2, 1).loss(decoder(), TASK.sample(2, generator=seeded())),
            "a window of loops needs a looped model, got Decoder",
        ),
        (lambda: warmup_stable_decay(10, warm=2.0), "warm must be a share of the steps"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_the_rate_rises_stays_and_falls_to_nothing():
    schedule = warmup_stable_decay(100, warm=0.1, decay=0.2)
    assert [schedule(s) for s in (0, 4, 9, 50, 80)] == pytest.approx([0.1, 0.5, 1, 1, 1])
    assert [schedule(s) for s in (90, 99, 100, 120)] == pytest.approx([0.5, 0.05, 0, 0])


def test_a_narrowed_task_is_the_task_of_fewer_coordinates():
    prompt = narrowed(TASK, 2, 3).sample(5, generator=seeded())
    assert prompt.x.shape == (5, 3, 3)
    assert (prompt.x[..., 2] == 0).all()
    assert (prompt.x_query[..., 2] == 0).all()
    assert (prompt.x[..., :2] != 0).all()
    assert narrowed(TASK, 3, 4) is TASK
    dictionary = DictionaryRegression.gaussian(3, 2, 9, 4, 0.1, generator=seeded())
    with pytest.raises(ValueError, match="with a law, got DictionaryRegression"):
        narrowed(dictionary, 2, 3)


def test_a_curriculum_decides_what_is_trained_on_at_each_step_and_resumes(tmp_path):
    experiment = Experiment(
        "gpt2:layers=1,width=8,heads=2",
        "linear:d=3,n=6,dtype=float32",
        "positions:batch=4",
        "muon",
        "stable-decay",
        "grow:dims=1,points=2,every=2",
        steps=6,
    )
    tasks = [experiment._objective(TASK)(step).task for step in range(5)]
    shapes = [task.sample(1, generator=seeded()) for task in tasks]
    assert [p.n for p in shapes] == [2, 2, 4, 4, 4]
    assert [int((p.x[0] != 0).any(0).sum()) for p in shapes] == [1, 1, 2, 2, 3]
    whole = experiment.run(tmp_path / "whole")

    def stop(step, loss):
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        experiment.run(tmp_path / "stopped", watch=stop)
    experiment.run(tmp_path / "stopped")
    again = Run.open(tmp_path / "stopped").model.state_dict()
    for name, weights in whole.model.state_dict().items():
        assert torch.equal(weights, again[name])


def loop_experiment(objective, curriculum):
    return Experiment(
        "looped-transformer:width=8,heads=2",
        "linear:d=3,n=6,dtype=float32",
        objective,
        curriculum=curriculum,
        steps=4,
    )


def test_a_curriculum_over_loops_begins_with_few():
    experiment = loop_experiment("window:batch=4,loops=6,window=4", "grow:dims=3,loops=1,every=2")
    objectives = [experiment._objective(TASK)(step) for step in range(8)]
    assert [o.loops for o in objectives] == [1, 1, 3, 3, 5, 5, 6, 6]
    assert [o.window for o in objectives] == [1, 1, 3, 3, 4, 4, 4, 4]


def test_a_curriculum_over_loops_needs_loops(tmp_path):
    with pytest.raises(ValueError, match="over loops needs the objective window, got positions"):
        loop_experiment("positions:batch=4", "grow:dims=3,loops=1").run(tmp_path)
