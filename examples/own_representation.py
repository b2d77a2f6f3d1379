"""Attention heads that learn your own representation from labels alone.

    python examples/own_representation.py --output own_representation.png

The tokens are 60 points of the unit circle. Each prompt is another periodic function of the angle,

    y(v) = <lambda, f(v) + noise>,   lambda ~ N(0, I),
    f = 1 / sqrt(2), cos x, sin x, (cos 2x) / 2, (sin 2x) / 2, (cos 3x) / 3, (sin 3x) / 3

with its values at 12 of the points given, noise included, and all 60 asked for. The heads are shown
points and labels, never f: what they know of it, they learned in training, on the exact expected
loss. Trained, they answer a function they have never seen about as well as ridge regression does
that is given f itself, which is the best there is among predictors linear in the labels.

One head cannot: the labels' weights in a prediction then all have one sign (Yang 2024, section
3.3). The right half of the picture shows how far 1, 2, 4, .. heads come, and that floor.

To use a representation of your own, replace `fourier`: any function from tokens [tokens, d] to
features [tokens, features] will do, for instance a small network,

    mlp = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 6)).double()
    task = DictionaryRegression.of(mlp, circle(60, generator), shown=12, tau=0.01)

The heads belong to this dictionary of 60 points. A point that is not among them has no weights.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib import colormaps
from matplotlib.figure import Figure
from torch import Tensor

from innerloop import theory
from innerloop.models import DictionaryAttention
from innerloop.report.plot_style import PALETTE, plot_style
from innerloop.tasks import DictionaryRegression
from innerloop.training import Exact, History, cosine, train

TOKENS, SHOWN, TAU = 60, 12, 0.01
HEADS = (1, 2, 4, 8, 32)


def circle(count: int, generator: torch.Generator) -> Tensor:
    """Points at equal distances on the circle [count, 2], in random order: the first are shown."""
    order = torch.randperm(count, generator=generator)
    return on_circle(2 * torch.pi * order.double() / count)


def on_circle(angles: Tensor) -> Tensor:
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def angle(tokens: Tensor) -> Tensor:
    return torch.atan2(tokens[:, 1], tokens[:, 0])


def fourier(tokens: Tensor) -> Tensor:
    """The representation: three harmonics of the angle, the higher ones weaker."""
    x = angle(tokens)
    harmonics = [wave(j * x) / j for j in (1, 2, 3) for wave in (torch.cos, torch.sin)]
    return torch.stack([torch.full_like(x, 0.5**0.5), *harmonics], dim=1)


def trained_heads(
    task: DictionaryRegression, heads: int, steps: int
) -> tuple[DictionaryAttention, History]:
    """Heads trained on the exact loss; the history has their gap to the best linear predictor."""
    risk = half_risk(task)
    # On a circle logits are smooth in the angle; a larger start lets heads tell neighbours apart.
    start = torch.Generator().manual_seed(1)
    model = DictionaryAttention.gaussian(heads, task.d, len(task.tokens), std=5.0, generator=start)
    history = train(
        model,
        Exact(task),
        torch.optim.Adam(model.parameters(), lr=0.03),
        steps=steps,
        generator=start,
        schedule=cosine(steps),
        every=max(steps // 50, 1),
        metrics={"gap": lambda m: 2 * risk.gap(m.attention(task.tokens, task.shown)).item()},
    )
    return model, history


def half_risk(task: DictionaryRegression) -> theory.softmax.DictionaryRisk:
    """What theory knows of the task; its loss is half the mean squared error, as in the paper."""
    return theory.softmax.DictionaryRisk.of(task.features, task.shown, task.tau, task.second_moment)


def errors(task: DictionaryRegression, models: dict[int, DictionaryAttention]) -> dict[str, float]:
    """Mean squared error for unseen tokens over 1000 new functions, relative to answering 0."""
    prompt = task.sample(1000, generator=torch.Generator().manual_seed(2))
    penalty = task.features.shape[1] * task.tau
    answers = {
        "ridge regression on f": prompt.y
        @ theory.softmax.ridge_matrix(task.features, task.shown, penalty)
    }
    with torch.no_grad():
        answers |= {_count(heads): model(prompt) for heads, model in models.items()}
    unseen = slice(task.shown, None)
    power = prompt.targets[:, unseen].square().mean()
    return {
        name: ((answer - prompt.targets)[:, unseen].square().mean() / power).item()
        for name, answer in answers.items()
    }


def picture(
    task: DictionaryRegression,
    models: dict[int, DictionaryAttention],
    histories: dict[int, History],
) -> Figure:
    """One new function on the left; on the right the gap of every number of heads."""
    drawing = Figure(figsize=(10.5, 4.2))
    function, gaps = drawing.subplots(1, 2)
    few, many = min(models), max(models)
    prompt = task.sample(1, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        answers = {heads: models[heads](prompt)[0, task.shown :] for heads in (few, many)}
    penalty = task.features.shape[1] * task.tau
    (coefficients,) = theory.softmax.ridge_coefficients(
        task.features[: task.shown], prompt.y, penalty
    )
    fine = torch.linspace(-torch.pi, torch.pi, 400, dtype=torch.float64)
    degrees = angle(task.tokens).rad2deg()
    shown, unseen = degrees[: task.shown], degrees[task.shown :]
    function.plot(
        fine.rad2deg(), fourier(on_circle(fine)) @ coefficients, color="#6b7280", linestyle="--"
    )
    function.plot(unseen, prompt.targets[0, task.shown :], "x", color="#9ca3af", markersize=4)
    function.plot(unseen, answers[few], ".", color=PALETTE[1], markersize=5)
    function.plot(unseen, answers[many], "o", color=PALETTE[0], markersize=4)
    function.plot(shown, prompt.y[0], "o", color="black", markersize=8)
    function.legend(
        [
            "ridge regression on f",
            "labels, not shown",
            _count(few),
            _count(many),
            "labels, shown",
        ],
        fontsize=8,
        ncols=3,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.17),
    )
    function.set(title="a new function", xlabel="angle in degrees", ylabel="label")
    function.set_xticks(range(-180, 181, 90))
    colours = colormaps["viridis"](torch.linspace(0, 0.85, len(histories)).tolist())
    for (heads, history), colour in zip(histories.items(), colours, strict=True):
        gaps.plot(history["step"], history["gap"], color=colour, label=f"H = {heads}")
    floor = 2 * theory.softmax.one_head_floor(half_risk(task))
    gaps.axhline(floor, color="black", linewidth=0.8, linestyle=":", label="floor of H = 1")
    gaps.set(
        title="how many heads", xlabel="steps of Adam", ylabel="loss above ridge's", yscale="log"
    )
    gaps.legend(fontsize=8)
    return drawing


def _count(heads: int) -> str:
    return f"{heads} head" + "s" * (heads > 1)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Heads that learn a Fourier basis of the circle.")
    parser.add_argument("--output", type=Path, default=Path("own_representation.png"))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--heads", type=int, nargs="+", default=list(HEADS))
    options = parser.parse_args(arguments)
    tokens = circle(TOKENS, torch.Generator().manual_seed(0))
    task = DictionaryRegression.of(fourier, tokens, SHOWN, TAU)
    models, histories = {}, {}
    for heads in sorted(options.heads):
        models[heads], histories[heads] = trained_heads(task, heads, options.steps)
    print("error for unseen points, relative to answering 0:")
    for name, error in errors(task, models).items():
        print(f"  {name:<24}{error:.3f}")
    with plot_style():
        picture(task, models, histories).savefig(options.output, dpi=150)
    print(f"picture: {options.output}")


if __name__ == "__main__":
    main()
