"""`innerloop train`: any model on any task, resumable."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import tyro

from innerloop.cli.console import console, say
from innerloop.experiments import TABLES, Experiment, Spec
from innerloop.experiments.recipes import RECIPES, Recipe
from innerloop.runs import RunStore
from innerloop.tasks import Translation


def train(
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    task: str = "linear",
    recipe: str | None = None,
    objective: str | None = None,
    steps: int = 2000,
    batch: int | None = None,
    lr: float | None = None,
    optimizer: str | None = None,
    schedule: str | None = None,
    curriculum: str | None = None,
    clip: float | None = None,
    seed: int = 0,
    device: str = "cpu",
    mixed_precision: bool = False,
    torch_compile: bool = False,
    run: Path | None = None,
    runs: Path = Path("runs"),
) -> None:
    """Trains a model on a task; the same command goes on where an earlier one stopped.

    For example:
      innerloop train gd:layers=2 --task linear:d=5,n=20,prior=inverse --objective exact
      innerloop train heads:heads=16 --task dictionary:tokens=40,shown=6
      innerloop train dense:layers=3 --task sparse:d=10 --lr 0.003 --schedule warm-up:over=200
      innerloop train gpt2 --task linear:d=5,n=10,dtype=float32 --recipe muon

    Args:
        model: such as gd:layers=3 or gd++:layers=2,loops=4; see `innerloop list models`.
        task: such as linear:d=5,n=20,noise_std=0.1; see `innerloop list tasks`.
        recipe: muon, adam or published: how a transformer is trained, wherever what follows is not
            given; see `innerloop list recipes`.
        objective: exact (no sampling), wishart (sampled Gram matrices), prompts:batch=1000 (if
            there is no recipe), or positions: every example of a prompt (if there is one).
        steps: optimizer steps in all.
        batch: prompts or Gram matrices per step, the same as the objective's option.
        lr: the learning rate, the same as the optimizer's option.
        optimizer: such as adam:lr=0.01, the default without a recipe; adamw, sgd or muon.
        schedule: of the learning rate: cosine, the default without a recipe; constant,
            warm-up:over=100 or stable-decay.
        curriculum: such as grow:dims=5,every=100, to begin with few coordinates; none by default.
        clip: the largest norm of a gradient; 10 without a recipe.
        seed: of the initial weights and of the data.
        device: where to train, such as cpu or cuda.
        mixed_precision: products of matrices in bfloat16; quicker where the device has them.
        torch_compile: compile the layers of a transformer to machine code with torch.compile; takes
            a minute, and gains on a GPU.
        run: the folder of this run; by default one below `runs`, named by the settings.
        runs: the folder of runs.
    """
    parts = {
        "objective": objective,
        "optimizer": optimizer,
        "schedule": schedule,
        "curriculum": curriculum,
        "clip": clip,
    }
    given: dict[str, Any] = {name: part for name, part in parts.items() if part is not None}
    make = Experiment if recipe is None else _recipe(recipe).experiment
    experiment = make(model, task, steps=steps, seed=seed, **given)
    beside = {
        "objective": _with("objective", experiment.objective, {"batch": batch}),
        "optimizer": _with("optimizer", experiment.optimizer, {"lr": lr}),
    }
    experiment = Experiment(**(vars(experiment) | beside))
    config = {"id": f"train-{experiment.model.name}", **experiment.as_json()}
    folder = run or RunStore(runs).folder(config)
    with _progress(steps) as watch:
        made = experiment.run(
            folder,
            device=device,
            mixed_precision=mixed_precision,
            torch_compile=torch_compile,
            watch=watch,
            notify=say,
        )
    say(f"loss {made.history['loss'][-1]:.5g} after {steps} steps")
    say(f"run: {folder}")
    say(f"next: innerloop evaluate {quote(str(folder))}")
    if isinstance(made.task, Translation):
        say(f'next: innerloop translate {quote(str(folder))} "Der Hund schläft im Garten."')


def _recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise ValueError(f"recipe must be one of {', '.join(RECIPES)}, got {name!r}")
    return RECIPES[name]


def _with(kind: str, text: str | Spec, options: dict[str, Any]) -> Spec:
    """The spec with the options that were given beside it."""
    given = {key: value for key, value in options.items() if value is not None}
    spec = Spec.parse(kind, text, TABLES[kind])
    return spec.with_options(given, TABLES[kind]) if given else spec


class _progress:
    """A bar with the loss and the time left; gives the function that the trainer calls.

    It appears with the first step: what is refused before is a sentence alone. Until then a line
    says that something is done, since an exact loss may take a minute to expand.
    """

    def __init__(self, steps: int) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self.progress = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:.4g}"),
            TimeRemainingColumn(),
            console=console(),
        )
        self.waiting = console().status("preparing the first step")
        self.bar = self.progress.add_task("", total=steps, loss=float("nan"))

    def __enter__(self) -> Any:
        self.waiting.start()
        return self._update

    def _update(self, step: int, loss: float) -> None:
        self.waiting.stop()
        self.progress.start()
        self.progress.update(self.bar, completed=step, loss=loss)

    def __exit__(self, *error: Any) -> None:
        self.waiting.stop()
        if self.progress.live.is_started:
            self.progress.stop()
