"""The training loop: sample, loss, step, record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from innerloop.interrupts import interrupt_between_steps
from innerloop.training.checkpoints import Checkpoint
from innerloop.training.history import History, Metric, measure
from innerloop.training.objectives import Objective
from innerloop.training.randomness import global_generator_of_step
from innerloop.training.schedules import Schedule
from innerloop.training.weights import not_finite

Curriculum = Callable[[int], Objective]
"""From the step, 0 first, to what is minimised there. Stateless: resuming is exact."""

Clip = Callable[[Iterable[nn.Parameter]], None]


def train(
    model: nn.Module,
    objective: Objective | Curriculum,
    optimizer: torch.optim.Optimizer,
    *,
    steps: int,
    generator: torch.Generator,
    schedule: Schedule = lambda step: 1.0,
    clip: Clip | float | None = None,
    metrics: Mapping[str, Metric] | None = None,
    every: int = 100,
    checkpoint: Checkpoint | None = None,
    watch: Callable[[int, float], None] = lambda step, loss: None,
    notify: Callable[[str], None] = lambda sentence: None,
) -> History:
    """Minimises the objective over the model's parameters, in place.

    Args:
        objective: what is minimised, or a function from the step to it.
        steps: how many in all; a run resumed from a checkpoint does what is left of them.
        generator: the only source of randomness, that of dropout included.
        schedule: the learning rate's factor at each step.
        clip: the largest norm of the gradient, or what limits it in place, see `clip_norm`.
        metrics: read off the model every `every` steps, before the step, and at the end.
        checkpoint: where to save, and to resume from if there is something to resume.
        watch: called after every step with its number and loss; it only watches.
        notify: told in a sentence what one should know of a run that is resumed.

    A loss with several numbers, as of `Together`, is summed: the members stay independent.
    The model is in `train` mode for losses, in `eval` mode for metrics, and is left in `eval` mode.
    Ctrl-C finishes the step, saves, and then raises KeyboardInterrupt; SIGTERM likewise, and
    raises `Terminated`. A loss or a weight that is not finite is a FloatingPointError, and is
    never saved: the checkpoint stays at the last good state.
    """
    for name, value in (("steps", steps), ("every", every)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if isinstance(clip, int | float):
        clip = clip_norm(clip)
    _require_rates(optimizer)
    objective_at = (lambda step: objective) if isinstance(objective, Objective) else objective
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    metrics = metrics or {}
    history, step = History(), 0
    if checkpoint is not None:
        step, history = checkpoint.restore(model, optimizer, generator, notify)
        if step >= steps:
            if step > steps:
                notify(f"{checkpoint.path} is at step {step}, past {steps}; it is left as it is")
            model.eval()
            return history
        history.require_columns({"step": step, "loss": 0.0, **metrics})
        history.forget(step)  # a final row: this run goes on from there and records it in turn
    saved = step
    base_rates = [group.setdefault("base_lr", group["lr"]) for group in optimizer.param_groups]

    def loss_at(step: int) -> Tensor:
        now = objective_at(step)
        loss = now.loss(model, now.sample(generator))
        if not loss.isfinite().all():
            raise _not_finite(f"the loss became {loss.detach().tolist()} at step {step}", saved)
        return loss

    def measured() -> dict[str, object]:
        model.eval()
        numbers = measure(metrics, model)
        model.train()
        return numbers

    model.train()
    try:
        with interrupt_between_steps() as interrupted:
            while step < steps and not interrupted():
                factor = schedule(step)
                if not 0 <= factor < math.inf:
                    raise ValueError(
                        f"schedule must give finite factors of at least 0, got {factor} "
                        f"for step {step}"
                    )
                for group, rate in zip(optimizer.param_groups, base_rates, strict=True):
                    group["lr"] = rate * factor
                with global_generator_of_step(generator, step, device):
                    loss = loss_at(step)
                    if step % every == 0:
                        history.record(step, loss, measured())
                    optimizer.zero_grad()
                    loss.sum().backward()
                if clip is not None:
                    clip(model.parameters())
                optimizer.step()
                step += 1
                watch(step, loss.detach().mean().item())
                if checkpoint is not None and step % checkpoint.every == 0 and step < steps:
                    checkpoint.save(step, model, optimizer, generator, history)
                    saved = step
            if bad := not_finite(dict(model.named_parameters())):
                what = f"the weights {', '.join(bad)} are not finite after step {step}"
                raise _not_finite(what, saved)
            if step == steps and (not history.columns or history["step"][-1] != steps):
                # On the data that one more step would see, without using it up: a longer run that
                # resumes from here is then the same as one that never stopped.
                state = generator.get_state()
                buffers = [(b, b.clone()) for b in model.buffers()]
                with global_generator_of_step(generator, step, device):
                    final = loss_at(step)
                    generator.set_state(state)
                    for buffer, before in buffers:
                        buffer.copy_(before)
                    history.record(steps, final, measured())
            if checkpoint is not None:
                checkpoint.save(step, model, optimizer, generator, history)
            if step < steps and (stop := interrupted()):
                raise stop
    finally:
        model.eval()
    return history


def clip_norm(limit: float, *, per_member: bool = False) -> Clip:
    """Scales the gradient down to this norm; with `per_member`, each member's of an `Ensemble`."""
    if not 0 < limit < math.inf:
        raise ValueError(
            f"limit must be positive and finite, got {limit}; without clip there is none"
        )

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


def _require_rates(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor) or not 0 <= group["lr"] < math.inf:
            raise ValueError(
                f"the optimizer's lr must be a finite number of at least 0, got {group['lr']}"
            )


def _not_finite(what: str, saved: int) -> FloatingPointError:
    kept = f"the state of step {saved} is kept" if saved else "nothing was saved before"
    return FloatingPointError(f"{what}; a smaller learning rate or clipping may help ({kept})")
