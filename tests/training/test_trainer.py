import math
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from innerloop.models import GradientDescentWeights, LinearAttention
from innerloop.tasks import LinearRegression
from innerloop.theory.linear import layered_risk, one_step_preconditioner
from innerloop.training import (
    Checkpoint,
    Exact,
    Prompts,
    Terminated,
    clip_norm,
    cosine,
    train,
    warmup,
)
from tests.models.forms import weights
from tests.samples import covariance, seeded

TASK = LinearRegression(covariance(2), 6, noise_std=0.3)
OPTIMIZERS = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.05, betas=(0.9, 0.95)),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
}
optimizers = pytest.mark.parametrize("optimizer", OPTIMIZERS)


class Run:
    """One training run from scratch: everything a new process would make again."""

    def __init__(self, optimizer="adam"):
        self.model = LinearAttention(weights(GradientDescentWeights, d=2, layers=2, scale=0.1))
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.generator = seeded(7)

    def train(self, steps, **settings):
        settings = {"schedule": cosine(10, 0.1), "clip": clip_norm(0.5), "every": 3, **settings}
        return train(
            self.model,
            Prompts(TASK, 16),
            self.optimizer,
            steps=steps,
            generator=self.generator,
            **settings,
        )

    @property
    def weights(self):
        return self.model.weights.preconditioners.detach()


class Stop(Exception):
    pass


def stop_at(step):
    def watch(done, loss):
        if done == step:
            raise Stop

    return watch


@optimizers
def test_a_run_that_died_and_resumed_equals_one_that_did_not(optimizer, tmp_path):
    whole = Run(optimizer)
    history = whole.train(10)
    checkpoint = Checkpoint(tmp_path / "run.safetensors", every=5)
    with pytest.raises(Stop):
        Run(optimizer).train(10, checkpoint=checkpoint, watch=stop_at(7))
    resumed = Run(optimizer)
    steps = []
    again = resumed.train(10, checkpoint=checkpoint, watch=lambda step, loss: steps.append(step))
    assert steps == [6, 7, 8, 9, 10]
    assert torch.equal(resumed.weights, whole.weights)
    assert again.columns == history.columns
    assert torch.equal(resumed.generator.get_state(), whole.generator.get_state())


@optimizers
def test_five_steps_and_five_more_are_ten(optimizer, tmp_path):
    whole = Run(optimizer)
    history = whole.train(10)
    checkpoint = Checkpoint(tmp_path / "run.safetensors")
    Run(optimizer).train(5, checkpoint=checkpoint)
    resumed = Run(optimizer)
    again = resumed.train(10, checkpoint=checkpoint)
    assert torch.equal(resumed.weights, whole.weights)
    assert again["step"] == sorted(set(again["step"]))
    assert again["loss"][-1] == history["loss"][-1]


@optimizers
def test_an_interrupted_run_saves_and_its_continuation_equals_the_whole(optimizer, tmp_path):
    whole = Run(optimizer)
    history = whole.train(10)
    checkpoint = Checkpoint(tmp_path / "run.safetensors")

    def interrupt(step, loss):
        if step == 4:
            os.kill(os.getpid(), signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        Run(optimizer).train(10, checkpoint=checkpoint, watch=interrupt)
    assert signal.getsignal(signal.SIGINT) is handler
    resumed, steps = Run(optimizer), []
    again = resumed.train(10, checkpoint=checkpoint, watch=lambda step, loss: steps.append(step))
    assert steps == [5, 6, 7, 8, 9, 10]
    assert torch.equal(resumed.weights, whole.weights)
    assert again.columns == history.columns


def test_a_second_interrupt_stops_at_once():
    def interrupt(step, loss):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the second interrupt should have stopped the run here")

    with pytest.raises(KeyboardInterrupt):
        Run().train(10, watch=interrupt)


def test_control_c_in_a_terminal_leaves_a_checkpoint(tmp_path):
    path = tmp_path / "run.safetensors"
    script = textwrap.dedent(f"""
        import sys, time
        from pathlib import Path
        from innerloop.training import Checkpoint
        from tests.training.test_trainer import Run

        def watch(step, loss):
            if step == 3:
                print("ready", flush=True)
            time.sleep(0.05 if step >= 3 else 0)

        Run().train(100_000, checkpoint=Checkpoint(Path({str(path)!r})), watch=watch)
    """)
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
    run = Run()
    step, _ = Checkpoint(path).restore(run.model, run.optimizer, run.generator)
    assert step >= 3
    uninterrupted = Run()
    with pytest.raises(Stop):
        uninterrupted.train(100_000, watch=stop_at(step))
    assert torch.equal(run.weights, uninterrupted.weights)
    assert torch.equal(run.generator.get_state(), uninterrupted.generator.get_state())


def test_a_finished_run_is_not_trained_again(tmp_path):
    checkpoint = Checkpoint(tmp_path / "run.safetensors")
    first = Run()
    history = first.train(6, checkpoint=checkpoint)
    again, steps = Run(), []
    repeated = again.train(6, checkpoint=checkpoint, watch=lambda step, loss: steps.append(step))
    assert steps == []
    assert torch.equal(again.weights, first.weights)
    assert repeated.columns == history.columns


def test_a_run_that_went_further_is_left_as_it_is(tmp_path):
    checkpoint = Checkpoint(tmp_path / "run.safetensors")
    first = Run()
    history = first.train(8, checkpoint=checkpoint)
    shorter = Run()
    again = shorter.train(5, checkpoint=checkpoint)
    assert torch.equal(shorter.weights, first.weights)
    assert again.columns == history.columns
    _, saved = checkpoint.restore(shorter.model, shorter.optimizer, shorter.generator)
    assert saved.columns == history.columns


def test_history_has_a_row_every_few_steps_and_one_at_the_end():
    run, seen = Run(), []
    history = run.train(
        8,
        every=3,
        metrics={"trace": lambda m: m.weights.preconditioners.detach().sum()},
        watch=lambda step, loss: seen.append(loss),
    )
    assert history["step"] == [0, 3, 6, 8]
    assert set(history.columns) == {"step", "loss", "trace"}
    assert len(history) == 4
    assert history["loss"][:3] == [seen[0], seen[3], seen[6]]


def test_metrics_are_read_before_the_step_whose_loss_stands_beside_them():
    run = Run()
    start = run.weights.clone()
    history = run.train(
        4,
        every=1,
        metrics={"weights": lambda m: m.weights.preconditioners.detach(), "number": lambda m: 2.5},
    )
    assert history["weights"][0] == start.tolist()
    assert history["weights"][-1] == run.weights.tolist()
    assert history["number"] == [2.5] * 5
    model = LinearAttention(GradientDescentWeights(start))
    objective = Prompts(TASK, 16)
    assert history["loss"][0] == objective.loss(model, objective.sample(seeded(7))).item()


def test_training_reaches_the_exact_optimum():
    task = LinearRegression(covariance(2), 6, noise_std=0.3)
    model = LinearAttention(weights(GradientDescentWeights, d=2, layers=1, scale=0.1))
    best = one_step_preconditioner(task.covariance, 6, None, 0.3)
    floor = layered_risk(best.unsqueeze(0), task.covariance, 6, None, 0.3).item()
    start = Exact(task).loss(model).item()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    history = train(
        model, Exact(task), optimizer, steps=400, generator=seeded(), schedule=cosine(400)
    )
    assert start > 2 * floor
    assert history["loss"][-1] == pytest.approx(floor, rel=1e-6)
    torch.testing.assert_close(model.weights.preconditioners[0], best, rtol=1e-2, atol=1e-3)


def test_the_learning_rate_follows_the_schedule():
    run, rates = Run("sgd"), []
    run.train(
        4,
        schedule=lambda step: 1 / (step + 1),
        watch=lambda step, loss: rates.append(run.optimizer.param_groups[0]["lr"]),
    )
    assert rates == [0.05, 0.05 / 2, 0.05 / 3, 0.05 / 4]


def test_a_loss_that_is_not_finite_stops_the_run():
    run = Run()
    with torch.no_grad():
        run.model.weights.preconditioners.fill_(1e200)
    with pytest.raises(FloatingPointError, match=r"the loss became (inf|nan) at step 0; a smaller"):
        run.train(3)


def test_no_steps_are_refused():
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        Run().train(0)


def test_training_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    Run().train(3)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_clipping_scales_the_whole_gradient_to_the_limit(dtype):
    parameters = [torch.nn.Parameter(torch.zeros(2, dtype=dtype)) for _ in range(2)]
    gradients = [torch.tensor([3.0, 0.0], dtype=dtype), torch.tensor([0.0, 4.0], dtype=dtype)]
    for limit, factor in ((1.0, 0.2), (5.0, 1.0), (50.0, 1.0)):
        for p, g in zip(parameters, gradients, strict=True):
            p.grad = g.clone()
        clip_norm(limit)(parameters)
        for p, g in zip(parameters, gradients, strict=True):
            assert p.grad.dtype == dtype
            torch.testing.assert_close(p.grad, factor * g)


@pytest.mark.parametrize("per_member", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_clipping_leaves_a_zero_gradient_at_zero(dtype, per_member):
    parameter = torch.nn.Parameter(torch.zeros(3, 2, dtype=dtype))
    parameter.grad = torch.zeros_like(parameter)
    clip_norm(1.0, per_member=per_member)([parameter])
    assert (parameter.grad == 0).all()


def test_clipping_by_member_treats_each_row_alone():
    first, second = torch.nn.Parameter(torch.zeros(2, 2)), torch.nn.Parameter(torch.zeros(2, 1, 1))
    first.grad = torch.tensor([[3.0, 0.0], [0.3, 0.0]])
    second.grad = torch.tensor([[[4.0]], [[0.4]]])
    clip_norm(1.0, per_member=True)([first, second])
    torch.testing.assert_close(first.grad, torch.tensor([[0.6, 0.0], [0.3, 0.0]]))
    torch.testing.assert_close(second.grad.flatten(), torch.tensor([0.8, 0.4]))


@pytest.mark.parametrize("limit", [0.0, -1.0, math.inf, math.nan])
def test_a_limit_that_is_not_positive_and_finite_is_refused(limit):
    with pytest.raises(ValueError, match=f"limit must be positive and finite, got {limit}"):
        clip_norm(limit)


def test_warmup_rises_linearly_to_one():
    schedule = warmup(4)
    assert [schedule(step) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_cosine_falls_to_its_floor():
    schedule = cosine(8, floor=0.2)
    assert schedule(0) == 1
    assert schedule(4) == pytest.approx(0.6)
    assert schedule(8) == pytest.approx(0.2)
    assert schedule(100) == pytest.approx(0.2)
    values = [schedule(step) for step in range(9)]
    assert values == sorted(values, reverse=True)
    assert schedule(2) == pytest.approx(0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2)


class WithDropout(torch.nn.Module):
    """Answers a prompt's query through a layer with dropout, and keeps count of its calls."""

    def __init__(self, *extra):
        super().__init__()
        linear = torch.nn.Linear(2, 1, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.fill_(0.3)
            linear.bias.zero_()
        self.layers = torch.nn.Sequential(torch.nn.Dropout(0.5), linear, *extra)

    def forward(self, prompt):
        return self.layers(prompt.x_query).reshape(prompt.y_query.shape)


def train_with_dropout(steps, checkpoint=None, generator=None, model=None, **settings):
    model = model or WithDropout()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    generator = generator or seeded(7)
    history = train(
        model,
        Prompts(TASK, 16),
        optimizer,
        steps=steps,
        generator=generator,
        checkpoint=checkpoint,
        **{"every": 5, **settings},
    )
    return torch.cat([p.detach().flatten() for p in model.parameters()]), history


def test_with_dropout_too_five_steps_and_five_more_are_ten(tmp_path):
    checkpoint = Checkpoint(tmp_path / "run.safetensors")
    torch.manual_seed(1)
    whole, history = train_with_dropout(10)
    torch.manual_seed(2)
    train_with_dropout(5, checkpoint)
    resumed, again = train_with_dropout(10, checkpoint)
    assert torch.equal(resumed, whole)
    assert again.columns == history.columns
    # A generator of another seed takes over the seed with the state.
    train_with_dropout(5, Checkpoint(tmp_path / "other.safetensors"))
    resumed, _ = train_with_dropout(
        10, Checkpoint(tmp_path / "other.safetensors"), generator=seeded(99)
    )
    assert torch.equal(resumed, whole)


def test_dropout_follows_the_seed_and_differs_from_step_to_step():
    masks = []

    class Seen(torch.nn.Module):
        def forward(self, x):
            masks.append(torch.nn.functional.dropout(torch.ones(64), training=self.training))
            return x

    model = WithDropout(Seen())
    train_with_dropout(3, model=model, metrics={"loss in eval": lambda m: m(prompt()).sum().item()})
    trained = [m.tolist() for m in masks if (m != 1).any()]
    assert len(trained) == 4  # three steps and the final row
    assert len({tuple(m) for m in trained}) == 4
    again, masks[:] = list(masks), []
    train_with_dropout(3, model=WithDropout(Seen()), generator=seeded(8))
    assert masks[0].tolist() != again[0].tolist()


def prompt():
    return TASK.sample(4, generator=seeded(1))


def test_training_with_dropout_leaves_the_global_generator_alone():
    model, before = WithDropout(), torch.get_rng_state()
    train_with_dropout(3, model=model)
    assert torch.equal(torch.get_rng_state(), before)


def test_losses_are_in_train_mode_metrics_and_what_comes_after_in_eval_mode():
    model, modes = WithDropout(), []

    class Watched:
        def sample(self, generator):
            return Prompts(TASK, 4).sample(generator)

        def loss(self, model, batch):
            modes.append(("loss", model.training))
            return Prompts(TASK, 4).loss(model, batch)

    def metric(model):
        modes.append(("metric", model.training))
        return 0.0

    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, Watched(), optimizer, steps=3, generator=seeded(), metrics={"m": metric}, every=2)
    assert set(modes) == {("loss", True), ("metric", False)}
    assert len(modes) == 4 + 3
    assert not any(module.training for module in model.modules())


def test_an_error_leaves_the_model_in_eval_mode_too():
    model = WithDropout()
    with pytest.raises(Stop):
        train_with_dropout(3, model=model, watch=stop_at(2))
    assert not model.training


def test_running_averages_are_not_touched_by_the_final_loss(tmp_path):
    def averaged():
        return WithDropout(
            torch.nn.Flatten(0), torch.nn.Unflatten(0, (-1, 1)), torch.nn.BatchNorm1d(1).double()
        )

    whole, first, second = averaged(), averaged(), averaged()
    train_with_dropout(6, model=whole)
    checkpoint = Checkpoint(tmp_path / "run")
    train_with_dropout(3, checkpoint, model=first)
    train_with_dropout(6, checkpoint, model=second)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name
    assert whole.layers[-1].num_batches_tracked == 6


def test_a_curriculum_says_what_is_minimised_at_each_step(tmp_path):
    def curriculum(step):
        asked.append(step)
        return Prompts(LinearRegression(covariance(2), 2 + step, noise_std=0.3), 16)

    def run(steps, checkpoint=None):
        model = LinearAttention(weights(GradientDescentWeights, d=2, layers=1, scale=0.1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        train(model, curriculum, optimizer, steps=steps, generator=seeded(), checkpoint=checkpoint)
        return model.weights.preconditioners.detach()

    asked = []
    whole = run(6)
    assert asked == [0, 1, 2, 3, 4, 5, 6]
    asked = []
    run(3, Checkpoint(tmp_path / "run"))
    resumed = run(6, Checkpoint(tmp_path / "run"))
    assert asked == [0, 1, 2, 3, 3, 4, 5, 6]
    assert torch.equal(resumed, whole)


def test_a_number_clips_as_clip_norm_does():
    one, other = Run(), Run()
    one.train(5, clip=0.5)
    other.train(5, clip=clip_norm(0.5))
    assert torch.equal(one.weights, other.weights)
    free = Run()
    free.train(5, clip=None)
    assert not torch.equal(free.weights, one.weights)


@pytest.mark.parametrize("clip", [math.nan, math.inf, 0.0, -1.0])
def test_a_clip_that_is_no_limit_is_refused_before_any_step(clip):
    run = Run()
    with pytest.raises(ValueError, match="limit must be positive and finite"):
        run.train(3, clip=clip, watch=stop_at(1))


@pytest.mark.parametrize("lr", [math.inf, math.nan, -1.0, torch.tensor(0.1)])
def test_a_learning_rate_that_is_no_number_is_refused_before_any_step(lr):
    run = Run("sgd")
    run.optimizer.param_groups[0]["lr"] = lr
    with pytest.raises(ValueError, match="lr must be a finite number of at least 0, got"):
        run.train(3, watch=stop_at(1))


@pytest.mark.parametrize("factor", [math.inf, math.nan, -0.1])
def test_a_schedule_that_gives_no_number_is_refused_where_it_does(factor):
    run = Run("sgd")
    with pytest.raises(ValueError, match=f"got {factor} for step 2"):
        run.train(5, schedule=lambda step: factor if step == 2 else 1.0)
    assert run.weights.isfinite().all()


class SquaredNorm:
    """Of the weights; with `broken`, the loss or only its gradient is not a number."""

    def __init__(self, broken=None):
        self.broken = broken

    def sample(self, generator):
        return None

    def loss(self, model, batch):
        square = model.weights.preconditioners.square().sum()
        if self.broken == "loss":
            return square * math.nan
        if self.broken == "gradient":
            # sqrt has the value 0 and an infinite slope at 0: a finite loss with a NaN gradient.
            return square + (square * 0).sqrt()
        return square


def breaks(at, what):
    """Fine until a step, and broken from there on."""
    return lambda step: SquaredNorm(what if step >= at else None)


@pytest.mark.parametrize(
    ("at", "what", "sentence"),
    [
        (5, "loss", r"the loss became nan at step 5; a smaller .* \(the state of step 4 is kept\)"),
        (6, "loss", "the loss became nan at step 6"),  # only the final row sees it
        (5, "gradient", "the weights weights.preconditioners are not finite after step 6"),
        (3, "gradient", "after 4 steps the weights .* are not finite"),  # found when saving
    ],
)
def test_what_is_not_finite_is_never_saved(at, what, sentence, tmp_path):
    checkpoint = Checkpoint(tmp_path / "run", every=2)
    run = Run("sgd")
    with pytest.raises(FloatingPointError, match=sentence):
        train(
            run.model,
            breaks(at, what),
            run.optimizer,
            steps=6,
            generator=run.generator,
            checkpoint=checkpoint,
        )
    saved = Run("sgd")
    step, _ = checkpoint.restore(saved.model, saved.optimizer, saved.generator)
    assert step == (2 if at == 3 else 4)
    assert saved.weights.isfinite().all()


def test_an_interrupted_run_that_is_not_finite_is_not_saved(tmp_path):
    def interrupt(step, loss):
        if step == 4:
            os.kill(os.getpid(), signal.SIGINT)

    run = Run("sgd")
    with pytest.raises(FloatingPointError, match="are not finite after step 4"):
        train(
            run.model,
            breaks(3, "gradient"),
            run.optimizer,
            steps=9,
            generator=run.generator,
            checkpoint=Checkpoint(tmp_path / "run"),
            watch=interrupt,
        )
    assert not (tmp_path / "run").exists()


def test_sigterm_finishes_the_step_saves_and_ends(tmp_path):
    def terminate(step, loss):
        if step == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    handler = signal.getsignal(signal.SIGTERM)
    whole, checkpoint = Run(), Checkpoint(str(tmp_path / "run"))
    whole.train(10)
    with pytest.raises(Terminated):
        Run().train(10, checkpoint=checkpoint, watch=terminate)
    assert signal.getsignal(signal.SIGTERM) is handler
    resumed, steps = Run(), []
    resumed.train(10, checkpoint=checkpoint, watch=lambda step, loss: steps.append(step))
    assert steps == [5, 6, 7, 8, 9, 10]
    assert torch.equal(resumed.weights, whole.weights)
    assert issubclass(Terminated, KeyboardInterrupt)


def test_resuming_says_what_one_should_know(tmp_path):
    told = []
    old = Checkpoint(tmp_path / "run", versions={"innerloop": "0.0.9", "torch": "2.0"})
    Run().train(4, checkpoint=old, notify=told.append)
    Run().train(6, checkpoint=old, notify=told.append)
    assert told == []
    Run().train(8, checkpoint=Checkpoint(tmp_path / "run"), notify=told.append)
    assert len(told) == 1
    assert "was written with innerloop 0.0.9, torch 2.0; this is" in told[0]
    Run().train(5, checkpoint=Checkpoint(tmp_path / "run"), notify=told.append)
    assert told[1:] == [f"{tmp_path / 'run'} is at step 8, past 5; it is left as it is"]


def test_resuming_with_other_metrics_is_refused(tmp_path):
    checkpoint = Checkpoint(tmp_path / "run")
    Run().train(4, checkpoint=checkpoint, metrics={"one": lambda m: 1.0})
    with pytest.raises(
        ValueError, match="has the columns step, loss, one; rows of step, loss, two"
    ):
        Run().train(8, checkpoint=checkpoint, metrics={"two": lambda m: 2.0})
