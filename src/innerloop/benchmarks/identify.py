"""`innerloop bench identify`: is what was planted found, and is nothing else?

Algorithms of the catalogue are given to `identify` as black boxes, over tasks and parameters; what
it names must be what was planted, with its parameters, unless candidates coincide on the task.
Outsiders, which belong to no family, must be none of these.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from rich.console import Console
from torch import Tensor

from innerloop.algorithms import (
    GDPlusPlus,
    GradientDescent,
    Learner,
    LeastSquares,
    NetworkDescent,
    Newton,
    Ridge,
)
from innerloop.analysis import distinguish, identify
from innerloop.analysis.identification import Candidate, Grade
from innerloop.experiments import ALGORITHMS, TASKS, Spec, candidates_for
from innerloop.models import GradientDescentWeights, LinearAttention
from innerloop.prompt import Prompt
from innerloop.tables import TextTable
from innerloop.tasks import Task

SAMPLES = 400
"""Prompts for each case; agreement to rounding needs no more."""
TASKS_PLANTED = (
    "linear:d=2,n=8,noise_std=0.5",
    "linear:d=5,n=3,noise_std=0",
    "linear:d=5,n=20,noise_std=0",
    "linear:d=5,n=20,noise_std=0.5",
)
SKEWED = "linear:d=3,n=10,prior=inverse,spectrum=1/0.5/0.25,noise_std=0.3"
TOLERANCE = 0.05
"""Relative, of penalties, step sizes and the like; numbers of steps must be exact."""


@dataclass(frozen=True)
class Planted:
    """An algorithm on a task, and what should be said of it."""

    task: str
    family: str
    parameters: Mapping[str, float]
    make: Callable[[Task], Learner]

    def __str__(self) -> str:
        words = ", ".join(f"{key}={value:g}" for key, value in self.parameters.items())
        return f"{self.family}({words}) on {self.task}"

    def is_it(self, candidate: Candidate) -> bool:
        """Whether this candidate is what was planted, with its parameters."""
        if candidate.name != self.family:
            return False
        return all(
            candidate.parameters.get(key) == value
            if isinstance(value, int)
            else abs(candidate.parameters[key] - value) <= TOLERANCE * abs(value)
            for key, value in self.parameters.items()
        )


def planted() -> Iterator[Planted]:
    """Every algorithm of the catalogue over a grid of parameters, sizes and noise."""
    named: list[tuple[str, str, Mapping[str, float]]] = [
        ("zero", "zero", {}),
        ("averaging", "averaging", {}),
        ("ols", "ols", {}),
        *(("neighbours", f"neighbours:k={k}", {"k": k}) for k in (1, 3)),
        *(("ridge", f"ridge:penalty={p}", {"penalty": p}) for p in (1e-9, 0.3, 5.0)),
        *(("lasso", f"lasso:penalty={p}", {"penalty": p}) for p in (0.02, 0.2)),
        *(
            ("gd", f"gd:steps={k},step_size={eta}", {"steps": k, "step_size": eta})
            for k, eta in ((1, 0.2), (3, 0.05), (40, 0.1), (100, 0.02))
        ),
        *(("stable-gd", f"gd:steps={k}", {"steps": k}) for k in (1, 20)),
        *(("newton", f"newton:steps={k}", {"steps": k}) for k in (1, 4)),
        ("one-step", "one-step", {}),
        ("posterior-mean", "posterior-mean", {}),
    ]
    for task in (*TASKS_PLANTED, SKEWED):
        for family, words, parameters in named:
            yield Planted(task, family, parameters, partial(_algorithm, words))
        for k, eta, gamma in ((2, 0.2, 0.7), (4, 0.1, 1.0)):
            numbers = {"steps": k, "step_size": eta, "transform": gamma}
            learner = GDPlusPlus([eta] * k, [gamma] * k)
            yield Planted(task, "gd++", numbers, partial(_given, learner))
        for k, alpha in ((2, 0.05), (6, 0.01)):
            words = f"newton:steps={k},alpha={alpha}"
            yield Planted(
                task, "fixed-newton", {"steps": k, "alpha": alpha}, partial(_algorithm, words)
            )
    for k in (1, 3):
        yield Planted(SKEWED, "ray", {"steps": k}, partial(_algorithm, f"ray:steps={k}"))
        yield Planted(SKEWED, "looped", {"loops": k}, partial(_algorithm, f"looped:loops={k}"))
    eta, matrix = 0.2, torch.tensor([[0.5, 0.1, 0.0], [0.0, 0.8, 0.2], [0.1, 0.0, 1.5]])
    yield Planted(SKEWED, "free-step", {}, partial(_given, GradientDescent([matrix.double()])))
    inverse = torch.diag(1 / torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64))
    descent = GradientDescent.repeated(eta * inverse, 4)
    numbers = {"steps": 4, "step_size": eta}
    yield Planted(SKEWED, "preconditioned-gd", numbers, partial(_given, descent))
    yield Planted("pool", "posterior-mean", {}, partial(_algorithm, "pool-posterior"))
    task = "representation:d=4,n=12,noise_std=0.2"
    for penalty in (0.01, 1.0):
        words = f"feature-ridge:penalty={penalty}"
        yield Planted(task, "feature-ridge", {"penalty": penalty}, partial(_algorithm, words))
    words = f"feature-gd:steps=10,step_size={eta}"
    numbers = {"steps": 10, "step_size": eta}
    yield Planted(task, "feature-gd", numbers, partial(_algorithm, words))
    yield Planted("dictionary", "shown-labels", {}, partial(_algorithm, "shown-labels"))
    yield Planted("dictionary", "feature-ridge", {}, partial(_algorithm, "feature-ridge"))
    yield Planted("autoregression", "feature-ridge", {}, partial(_algorithm, "feature-ridge"))


def _algorithm(words: str, task: Task) -> Learner:
    return Spec.parse("algorithm", words, ALGORITHMS).build(ALGORITHMS, task)


def _given(learner: Learner, task: Task) -> Learner:
    return learner


@dataclass(frozen=True)
class Found:
    """What was said of a planted algorithm."""

    case: Planted
    grade: Grade
    named: Sequence[Candidate]
    surviving: Sequence[Candidate]
    """What is left of them after the shifts; the same where there are none."""

    @property
    def recovered(self) -> bool:
        """Named with its parameters; or what is named coincides with it on every shift too."""
        return self.grade is Grade.IDENTICAL and bool(self.surviving)

    @property
    def exactly(self) -> bool:
        return any(self.case.is_it(candidate) for candidate in self.surviving)


def recover(case: Planted, seed: int = 0, *, shifts: bool = True) -> Found:
    """The planted algorithm, told from its answers alone."""
    task = Spec.parse("task", case.task, TASKS).build(TASKS)
    learner = case.make(task)

    def black_box(prompt: Prompt) -> Tensor:
        return learner(prompt)

    generator = torch.Generator().manual_seed(seed)
    result = identify(black_box, task, candidates_for(task), samples=SAMPLES, generator=generator)
    leading = [standing.candidate for standing in result.decision.leading]
    surviving = leading
    if shifts:
        told = distinguish(black_box, task, result, samples=SAMPLES, generator=generator)
        surviving = told.survivors
    return Found(case, result.decision.grade, leading, surviving)


def outsiders(seed: int) -> dict[str, Learner]:
    """Learners of no family that is a candidate; some of them come very near."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    features, phases = normal(5, 200), 2 * torch.pi * torch.rand(200, generator=generator).double()
    weights = torch.stack([eta * torch.eye(5).double() for eta in (0.3, 0.5)])
    noisy = GradientDescentWeights(weights + 0.02 * normal(2, 5, 5))
    return {
        "kernel ridge": kernel_ridge,
        "random features": partial(random_features, features / 3, phases),
        "mean of ols and ridge": lambda prompt: (LeastSquares()(prompt) + Ridge(1.0)(prompt)) / 2,
        "mean of gd and newton": lambda prompt: (
            (GradientDescent.repeated(0.2, 5)(prompt) + Newton(3)(prompt)) / 2
        ),
        "gd with momentum": partial(momentum, 6, 0.2, 0.5),
        "linear attention, noise in its weights": LinearAttention(noisy).requires_grad_(False),
        "ridge with noisy answers": partial(noisy_answers, seed),
        "a network fitted to the prompt": NetworkDescent(hidden=20, steps=30, seed=seed),
    }


def kernel_ridge(prompt: Prompt, width: float = 5.0, penalty: float = 0.3) -> Tensor:
    """With a Gaussian kernel, wide enough to be nearly linear."""
    inside = torch.exp(-torch.cdist(prompt.x, prompt.x).square() / (2 * width**2))
    beside = torch.exp(-torch.cdist(prompt.x_query, prompt.x).square() / (2 * width**2))
    system = inside + penalty / width**2 * torch.eye(prompt.n).to(inside)
    return (beside @ torch.linalg.solve(system, prompt.y.unsqueeze(-1))).squeeze(-1)


def random_features(features: Tensor, phases: Tensor, prompt: Prompt) -> Tensor:
    """Ridge regression on cosines (Rahimi and Recht 2007)."""
    maps = [torch.cos(x @ features.to(x) + phases.to(x)) for x in (prompt.x, prompt.x_query)]
    gram = maps[0] @ maps[0].mT + torch.eye(prompt.n).to(prompt.x)
    return (maps[1] @ maps[0].mT @ torch.linalg.solve(gram, prompt.y.unsqueeze(-1))).squeeze(-1)


def momentum(steps: int, eta: float, beta: float, prompt: Prompt) -> Tensor:
    """Polyak's heavy ball."""
    s, m = prompt.moments()
    w = before = torch.zeros_like(m)
    for _ in range(steps):
        gradient = (s @ w.unsqueeze(-1)).squeeze(-1) - m
        w, before = w - eta * gradient + beta * (w - before), w
    return (prompt.x_query @ w.unsqueeze(-1)).squeeze(-1)


def noisy_answers(seed: int, prompt: Prompt) -> Tensor:
    """Ridge regression, each answer off by about a thousandth."""
    answers = Ridge(0.3)(prompt)
    noise = torch.randn(answers.shape, generator=torch.Generator().manual_seed(seed))
    return answers * (1 + 1e-3 * noise.to(answers))


OUTSIDE = "linear:d=5,n=20,noise_std=0.5"
SEEDS = 3


def false_alarms(seeds: Sequence[int]) -> dict[str, list[tuple[Grade, str]]]:
    """What is said of every outsider, seed by seed: the grade and the sentence."""
    task = Spec.parse("task", OUTSIDE, TASKS).build(TASKS)
    said: dict[str, list[tuple[Grade, str]]] = {}
    for seed in seeds:
        for name, learner in outsiders(seed).items():
            result = identify(
                learner,
                task,
                candidates_for(task),
                samples=SAMPLES,
                generator=torch.Generator().manual_seed(seed),
            )
            said.setdefault(name, []).append((result.decision.grade, result.sentence))
    return said


def confusion(found: Sequence[Found]) -> TextTable:
    """The confusion matrix without its zeros: a row for every planted family."""
    table = TextTable(
        "planted, and what survives the task and its shifts (ties name several)",
        ["planted", "cases", "in how many of them which family survives"],
        left=3,
    )
    for family in dict.fromkeys(each.case.family for each in found):
        own = [each for each in found if each.case.family == family]
        counts: Counter[str] = Counter()
        for each in own:
            counts.update({c.name for c in each.surviving} or {"none of these"})
        ordered = sorted(counts.items(), key=lambda pair: (pair[0] != family, -pair[1], pair[0]))
        words = ", ".join(f"{name} {count}" for name, count in ordered)
        table.add(family, str(len(own)), words)
    return table


def run(console: Console) -> None:
    """The confusion matrix, the outsiders, and what 20,000 prompts take."""
    found = []
    cases = list(planted())
    with console.status("") as status:
        for number, case in enumerate(cases):
            status.update(f"{number} of {len(cases)}: {case}")
            found.append(recover(case))
        status.update(f"outsiders on {OUTSIDE}")
        said = false_alarms(range(SEEDS))
    console.print(confusion(found).render(console.width), soft_wrap=True, highlight=False)
    recovered = sum(each.recovered for each in found)
    exact = sum(each.exactly for each in found)
    console.print(
        f"\nidentical to rounding: {recovered} of {len(found)}; named with the parameters planted "
        f"(steps exactly, others within {TOLERANCE:.0%}): {exact}; the others:",
        soft_wrap=True,
        highlight=False,
    )
    for each in found:
        if not (each.recovered and each.exactly):
            names = ", ".join(map(str, each.surviving)) or "none of these"
            console.print(f"  {each.case}: {names}", soft_wrap=True, highlight=False)
    table = TextTable(f"\noutsiders on {OUTSIDE}, {SEEDS} seeds", ["outsider", "false alarms"])
    for name, grades in said.items():
        table.add(name, str(sum(grade is Grade.IDENTICAL for grade, _ in grades)))
    console.print(table.render(console.width), soft_wrap=True, highlight=False)
    for name, grades in said.items():
        console.print(f"  {name}: {grades[0][1]}", soft_wrap=True, highlight=False)
    console.print(
        f"\n20,000 prompts of d = 5, n = 20: {seconds_for(20_000):.0f} s", highlight=False
    )


def seconds_for(samples: int) -> float:
    """All default candidates against a planted ridge regression."""
    task = Spec.parse("task", OUTSIDE, TASKS).build(TASKS)
    start = time.perf_counter()
    identify(
        Ridge(0.3),
        task,
        candidates_for(task),
        samples=samples,
        generator=torch.Generator().manual_seed(0),
    )
    return time.perf_counter() - start
