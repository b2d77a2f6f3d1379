"""A model of your own: train it, measure it, save it, and see how it learns within a prompt.

    python examples/own_model.py --folder own_model

A learner is anything called with a prompt that returns a prediction for each of its queries,
[batch, queries]. This one is a kernel smoother with a trained metric: it averages the labels of the
examples with weights softmax(-|M (x_q - x_i)|^2). It is not one of innerloop's models; everything
here works on it all the same.

The same file serves the command line, which finds the function `factory` by its name:

    innerloop evaluate own_model/weights.safetensors --model examples.own_model:factory \\
        --task linear:d=3,n=20,dtype=float32 --against ols zero --curve curve.png
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from innerloop import Prompt
from innerloop.algorithms import LeastSquares, Zero
from innerloop.analysis import (
    estimate_risk,
    learning_curve,
    plot_learning_curves,
    shift_table,
    standard_shifts,
)
from innerloop.tasks import LinearRegression, Task
from innerloop.training import Prompts, cosine, read_weights, save_weights, train


class KernelSmoother(nn.Module):
    """prediction = sum_i softmax_i(-|M (x_q - x_i)|^2) y_i, for every query."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.metric = nn.Parameter(torch.eye(d))
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, prompt: Prompt) -> Tensor:
        if prompt.n == 0:
            return torch.zeros_like(prompt.y_query)
        queries, examples = prompt.x_query @ self.metric.mT, prompt.x @ self.metric.mT
        distances = torch.cdist(queries, examples).square()  # [batch, queries, n]
        weights = (-distances).softmax(-1)
        return self.gain * (weights @ prompt.y.unsqueeze(-1)).squeeze(-1)


def factory(task: Task) -> KernelSmoother:
    """What `innerloop evaluate --model examples.own_model:factory` calls."""
    return KernelSmoother(task.d)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--folder", type=Path, default=Path("own_model"))
    options = parser.parse_args(arguments)

    task = LinearRegression.isotropic(d=3, n=20, dtype=torch.float32)
    model = factory(task)
    train(
        model,
        Prompts(task, batch=256),
        torch.optim.Adam(model.parameters(), lr=0.02),
        steps=options.steps,
        generator=torch.Generator().manual_seed(0),
        schedule=cosine(options.steps),
        clip=1.0,
    )

    learners = {"kernel smoother": model, "least squares": LeastSquares(), "zero": Zero()}
    for name, learner in learners.items():
        generator = torch.Generator().manual_seed(1)
        risk = estimate_risk(learner, task, samples=20_000, generator=generator)
        print(f"{name:16} {risk}")

    print(shift_table(learners, standard_shifts(task), samples=5_000, seed=1))

    options.folder.mkdir(parents=True, exist_ok=True)
    save_weights(model, options.folder / "weights.safetensors")
    again = factory(task)
    again.load_state_dict(read_weights(options.folder / "weights.safetensors"))
    prompt = task.sample(4, generator=torch.Generator().manual_seed(2))
    print(f"saved and loaded: the same predictions: {torch.equal(again(prompt), model(prompt))}")

    curves = {
        name: learning_curve(
            learner, task, samples=5_000, generator=torch.Generator().manual_seed(3)
        )
        for name, learner in learners.items()
    }
    picture = plot_learning_curves(curves, title="linear functions of three covariates")
    picture.savefig(options.folder / "curves.png", dpi=150, bbox_inches="tight")
    print(f"picture: {options.folder / 'curves.png'}")


if __name__ == "__main__":
    main()
