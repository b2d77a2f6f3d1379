"""Loss and gradient of linear attention: Gram space beside the n x n form, and beside its limit.

Everything is float32, and a ratio of times of one run that were taken in turn, so that a busy
machine slows all of them alike.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from functools import partial

import torch
from rich.table import Table
from torch import Tensor

from innerloop.models import (
    GDPlusPlusWeights,
    GradientDescentWeights,
    LinearAttention,
    LinearAttentionWeights,
    associative_forward,
    attention_matrix_forward,
)
from innerloop.prompt import Prompt
from innerloop.tasks import LinearRegression

Predict = Callable[[Prompt], Tensor]

D, LAYERS = 5, 3
FORMS: dict[str, type[GradientDescentWeights] | type[GDPlusPlusWeights]] = {
    "A": GradientDescentWeights,
    "A, B": GDPlusPlusWeights,
}
# n, prompts in token space, prompts in Gram space. The n x n matrices must fit into memory, and so
# must the covariates of long prompts.
SIZES = ((20, 20_000, 20_000), (200, 1_000, 20_000), (2_000, 10, 2_000))
GRAM_SPACE = ("eager", "eager, kept", "compiled", "compiled, kept")


def forward_forms(
    sizes: tuple[tuple[int, int, int], ...] = SIZES, *, compiled: bool | None = None
) -> list[Table]:
    """Three layers at three context lengths, against the n x n form and the arithmetic limit.

    `compiled` says whether to compile; by default where there is a compiler.
    """
    compiled = has_compiler() if compiled is None else compiled
    columns = ("associative", *(way for way in GRAM_SPACE if compiled or "eager" in way))
    setting = f"loss and gradient, {LAYERS} layers, d = {D}, float32"
    missing = None if compiled else "nothing is compiled"
    if missing and not has_compiler():
        missing += ": there is no C++ compiler here"
    faster = Table(title=f"{setting}: times faster than n x n", caption=missing)
    slower = Table(title=f"{setting}: time / (operations / peak of a large matmul)")
    for table, extra in ((faster, ()), (slower, ("n x n",))):
        for column in ("weights", "n", *extra, *columns):
            table.add_column(column, justify="right")
    for name, form in FORMS.items():
        weights = form.gaussian(D, LAYERS, 0.05, generator=_generator(), dtype=torch.float32)
        gram_space = _gram_space(weights, compiled)
        for n, few, many in sizes:
            seconds = _seconds_per_prompt(weights, gram_space, _prompt(n, few), _prompt(n, many))
            ratios = [seconds["n x n"] / seconds[way] for way in columns]
            faster.add_row(name, str(n), *(f"{ratio:.3g}" for ratio in ratios))
            excesses = []
            for way in ("n x n", *columns):
                needed = operations(weights, 0 if way.endswith("kept") else n)
                excesses.append(seconds[way] / (needed * seconds["operation"]))
            slower.add_row(name, str(n), *(f"{excess:.3g}" for excess in excesses))
    return [faster, slower]


def operations(weights: GradientDescentWeights | GDPlusPlusWeights, n: int) -> int:
    """Additions and multiplications that Gram space needs for one prompt's loss and gradient.

    A gradient is counted as twice its forward pass; that of the Gram matrix is not asked for. With
    the Gram matrix kept, it is the number at n = 0.
    """
    d, moves = weights.d, weights.layers - 1
    gram = n * d * (d + 1) + 2 * n * d  # S is symmetric
    forward = weights.layers * 2 * d * d + moves * 2 * d * d + 2 * d  # A r, S w and <w, x_q>
    if isinstance(weights, GDPlusPlusWeights):
        by_vectors = 3 * 2 * 2 * d * d  # B S A^T times m and the query
        by_matrices = 4 * 2 * d**3 + 2 * 2 * d * d  # A S B^T, F^T S F, and F^T times two vectors
        forward += min(moves, 1) * by_vectors + max(moves - 1, 0) * by_matrices
    return gram + 3 * forward


def _seconds_per_prompt(
    weights: LinearAttentionWeights,
    gram_space: dict[str, Predict],
    few: Prompt,
    many: Prompt,
    repeats: int = 5,
) -> dict[str, float]:
    """By way: token space on few prompts, Gram space on many; and of one `operation` at its best.

    The ways take turns, and the shortest time of each counts.
    """
    matrix = torch.ones(1024, 1024)
    calls: dict[str, tuple[Callable[[], object], int]] = {
        "operation": (lambda: matrix @ matrix, 2 * len(matrix) ** 3)
    }
    for way, predict in _token_space(weights).items():
        calls[way] = (loss_and_gradient(weights, partial(predict, few), few.y_query), len(few))
    for way, predict in gram_space.items():
        calls[way] = (loss_and_gradient(weights, partial(predict, many), many.y_query), len(many))
    best = dict.fromkeys(calls, float("inf"))
    for turn in range(repeats + 1):
        for way, (call, units) in calls.items():
            start = time.perf_counter()
            call()
            if turn > 0:  # the first warms up, and compiles
                best[way] = min(best[way], (time.perf_counter() - start) / units)
    return best


def has_compiler() -> bool:
    """Whether torch.compile can build what it writes for the CPU."""
    return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "g++", "clang++"))


def _token_space(weights: LinearAttentionWeights) -> dict[str, Predict]:
    return {
        "n x n": lambda prompt: attention_matrix_forward(*weights.matrices(), prompt),
        "associative": lambda prompt: associative_forward(*weights.matrices(), prompt),
    }


def _gram_space(weights: LinearAttentionWeights, compiled: bool) -> dict[str, Predict]:
    model = LinearAttention(weights)
    ways: dict[str, Predict] = {"eager": _with_fresh_gram(model), "eager, kept": model}
    if compiled:
        quick = LinearAttention(weights)
        # For each size by itself: with open sizes, torch 2.13 keeps strides of the first batch.
        quick.compile(dynamic=False)
        ways |= {"compiled": _with_fresh_gram(quick), "compiled, kept": quick}
    return ways


def _with_fresh_gram(model: LinearAttention) -> Predict:
    def predict(prompt: Prompt) -> Tensor:
        vars(prompt).pop("_kept_moments", None)  # computed within the measured time, every time
        return model(prompt)

    return predict


def loss_and_gradient(
    weights: LinearAttentionWeights, predict: Callable[[], Tensor], target: Tensor
) -> Callable[[], None]:
    """What is timed: a squared loss and its gradient in the weights."""

    def call() -> None:
        weights.zero_grad()
        (predict() - target).square().mean().backward()

    return call


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _prompt(n: int, batch: int) -> Prompt:
    task = LinearRegression.isotropic(D, n)
    return task.sample(batch, generator=_generator()).to(dtype=torch.float32)
