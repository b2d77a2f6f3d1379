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
from innerloop.training import Checkpoint, Exact, Prompts, clip_norm, cosine, train, warmup
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


@pytest.mark.parametrize("limit", [0.0, -1.0])
def test_a_limit_that_is_not_positive_is_refused(limit):
    with pytest.raises(ValueError, match=f"limit must be positive, got {limit}"):
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
