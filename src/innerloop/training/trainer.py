"""The training loop: sample, loss, step, record."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from innerloop.training.checkpoints import Checkpoint
from innerloop.training.history import History, Metric, measure
from innerloop.training.objectives import Objective

Schedule = Callable[[int], float]
"""From the step, 0 first, to a factor on the learning rate. Stateless: resuming is exact."""

Clip = Callable[[Iterable[nn.Parameter]], None]


def train(
    model: nn.Module,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    *,
    steps: int,
    generator: torch.Generator,
    schedule: Schedule = lambda step: 1.0,
    clip: Clip | None = None,
    metrics: Mapping[str, Metric] | None = None,
    every: int = 100,
    checkpoint: Checkpoint | None = None,
    watch: Callable[[int, float], None] = lambda step, loss: None,
) -> History:
    """Minimises the objective over the model's parameters, in place.

    Args:
        steps: how many in all; a run resumed from a checkpoint does what is left of them.
        generator: the only source of randomness.
        schedule: the learning rate's factor at each step.
        clip: limits the gradients in place, see `clip_norm`.
        metrics: read off the model every `every` steps, before the step, and at the end.
        checkpoint: where to save, and to resume from if there is something to resume.
        watch: called after every step with its number and loss; it only watches.

    A loss with several numbers, as of `Together`, is summed: the members stay independent.
    Ctrl-C finishes the step, saves, and then raises KeyboardInterrupt.
    """
    for name, value in (("steps", steps), ("every", every)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    history, start = History(), 0
    if checkpoint is not None:
        start, history = checkpoint.restore(model, optimizer, generator)
        if start >= steps:
            return history
        history.forget(start)  # a final row: this run goes on from there and records it in turn
    base_rates = [group.setdefault("base_lr", group["lr"]) for group in optimizer.param_groups]
    metrics = metrics or {}
    step = start
    with _interrupt_between_steps() as interrupted:
        while step < steps and not interrupted():
            for group, rate in zip(optimizer.param_groups, base_rates, strict=True):
                group["lr"] = rate * schedule(step)
            loss = objective.loss(model, objective.sample(generator))
            if not loss.isfinite().all():
                raise FloatingPointError(
                    f"the loss became {loss.detach().tolist()} at step {step}; "
                    "a smaller learning rate or clipping may help"
                )
            if step % every == 0:
                history.record(step, loss, measure(metrics, model))
            optimizer.zero_grad()
            loss.sum().backward()
            if clip is not None:
                clip(model.parameters())
            optimizer.step()
            step += 1
            watch(step, loss.detach().mean().item())
            if checkpoint is not None and step % checkpoint.every == 0 and step < steps:
                checkpoint.save(step, model, optimizer, generator, history)
        if step == steps and (not history.columns or history["step"][-1] != steps):
            # On the data that one more step would see, without using it up: a longer run that
            # resumes from here is then the same as one that never stopped.
            state = generator.get_state()
            final = objective.loss(model, objective.sample(generator))
            generator.set_state(state)
            history.record(steps, final, measure(metrics, model))
        if checkpoint is not None:
            checkpoint.save(step, model, optimizer, generator, history)
        if step < steps:
            raise KeyboardInterrupt
    return history


def clip_norm(limit: float, *, per_member: bool = False) -> Clip:
    """Scales the gradient down to this norm; with `per_member`, each member's of an `Ensemble`."""
    if limit <= 0:
        raise ValueError(f"limit must be positive, got {limit}")

    def clip(parameters: Iterable[nn.Parameter]) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
        if not per_member:
            norm: Tensor = sum((g.square().sum() for g in gradients), start=torch.zeros(()))
            factor = (limit / norm.sqrt().clamp_min(1e-300)).clamp_max(1)
            for g in gradients:
                g.mul_(factor)
            return
        squares = [g.flatten(1).square().sum(1) for g in gradients]  # [members] each
        factors = (limit / torch.stack(squares).sum(0).sqrt().clamp_min(1e-300)).clamp_max(1)
        for g in gradients:
            g.mul_(factors.view(-1, *[1] * (g.ndim - 1)))

    return clip


def warmup(steps: int) -> Schedule:
    """Linear from 0 to 1 over these many steps, then constant."""
    return lambda step: min(1.0, (step + 1) / max(steps, 1))


def cosine(steps: int, floor: float = 0.0) -> Schedule:
    """Half a cosine from 1 down to `floor` over these many steps."""
    return lambda step: (
        floor + (1 - floor) * (1 + math.cos(math.pi * min(step / max(steps, 1), 1))) / 2
    )


@contextmanager
def _interrupt_between_steps() -> Iterator[Callable[[], bool]]:
    """Turns Ctrl-C into a question asked between steps, so that no state is left half updated.

    A second Ctrl-C interrupts at once. Outside the main thread Python delivers no signals, and
    nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked = False

    def note(signum: int, frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    previous = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, previous)
