"""Recipes: how a transformer is trained, as published and as we found it to take fewer steps.

    RECIPES["muon"].experiment("gpt2", "linear:d=5,n=10,dtype=float32", steps=1500)

`innerloop train gpt2 --recipe muon` is the same. What they take is measured by `bench recipes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from innerloop.experiments.catalogue import MODELS, TASKS
from innerloop.experiments.experiment import Experiment
from innerloop.experiments.named_models import StartName
from innerloop.experiments.spec import Spec
from innerloop.tasks import NoClosedForm, Task, law_of


@dataclass(frozen=True)
class Recipe:
    """All of an experiment that is not its model, its task, its length and its seed."""

    about: str
    """In a line."""
    start: StartName
    optimizer: str
    schedule: str
    curriculum: str
    """For regression in more coordinates than it begins with; other tasks begin with all of
    theirs."""
    clip: float | None = 10.0
    objective: str = "positions"

    def experiment(
        self, model: str, task: str, *, steps: int, seed: int = 0, **instead: Any
    ) -> Experiment:
        """The training of this model on this task; `instead` replaces parts of the recipe."""
        spec = Spec.parse("model", model, MODELS)
        if "start" not in spec.options:
            raise ValueError(
                f"a recipe is for transformers, whose start can be chosen; {spec.name} has none"
            )
        # A start that is asked for stays.
        start = {} if "start=" in model else {"start": self.start}
        wide = _can_grow(Spec.parse("task", task, TASKS).build(TASKS))
        parts = {
            "objective": self.objective,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "curriculum": self.curriculum if wide else "none",
            "clip": self.clip,
        } | instead
        return Experiment(spec.with_options(start, MODELS), task, steps=steps, seed=seed, **parts)


def _can_grow(task: Task) -> bool:
    try:
        return law_of(task).d > FIRST_DIMENSIONS
    except NoClosedForm:
        return False


FIRST_DIMENSIONS = 5
GROWING = f"grow:dims={FIRST_DIMENSIONS},every=100"
RECIPES: dict[str, Recipe] = {
    "muon": Recipe(
        "Muon from weights by fan-in, constant and then down to 0; dimensions one by one",
        start="fan-in",
        optimizer="muon",
        schedule="stable-decay",
        curriculum=GROWING,
    ),
    "adam": Recipe(
        "Adam at 0.002 from weights by fan-in, half a cosine; dimensions one by one",
        start="fan-in",
        optimizer="adam:lr=0.002",
        schedule="cosine",
        curriculum=GROWING,
    ),
    "published": Recipe(
        "Adam at 0.0001 from weights of 0.02, no schedule, a slow curriculum (Garg 2022)",
        start="gpt2",
        optimizer="adam:lr=0.0001",
        schedule="constant",
        curriculum=f"grow:dims={FIRST_DIMENSIONS},points=11,every=2000",
        clip=None,
    ),
}
