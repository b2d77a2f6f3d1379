"""L-BFGS with a strong Wolfe line search, for losses that are the same function at every call."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from innerloop.training.history import History, Metric


def minimise(
    model: nn.Module,
    loss: Callable[[], Tensor],
    *,
    steps: int,
    memory: int = 100,
    gradient_tolerance: float = 1e-9,
    metrics: Mapping[str, Metric] | None = None,
    every: int = 1,
    watch: Callable[[int, float], None] = lambda step, loss: None,
) -> History:
    """Minimises a deterministic loss over the model's parameters, in place.

    Stops after `steps` iterations, or earlier when no entry of the gradient exceeds
    `gradient_tolerance` or the line search finds nothing lower.

    Args:
        loss: of no arguments; the expected loss, or the loss on one fixed sample.
        memory: how many past steps approximate the Hessian.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    # One iteration per call keeps the state between calls, so that every iterate can be recorded.
    optimizer = torch.optim.LBFGS(
        parameters,
        lr=1.0,
        max_iter=1,
        max_eval=50,  # of the line search; the default would follow max_iter and cut it short
        history_size=memory,
        tolerance_grad=gradient_tolerance,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    history, metrics = History(), metrics or {}
    for step in range(steps):
        before = [p.detach().clone() for p in parameters]
        value = optimizer.step(closure)
        if step % every == 0:
            # The optimizer reports the loss before its step: record the weights it belongs to.
            after = [p.detach().clone() for p in parameters]
            _assign(parameters, before)
            history.record(step, value, metrics, model)
            _assign(parameters, after)
        watch(step, value.item())
        if all(torch.equal(p, old) for p, old in zip(parameters, before, strict=True)):
            break
    history.record(step + 1, loss(), metrics, model)
    return history


@torch.no_grad()
def _assign(parameters: list[nn.Parameter], values: list[Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)
