"""`innerloop identify`: which algorithm is inside a learner, or none of these."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro

from innerloop.algorithms import Learner
from innerloop.analysis import identification as inside
from innerloop.cli.console import console, print_table, say
from innerloop.cli.pictures import require_picture, write_picture
from innerloop.cli.subject import Subject, opened, subject_of, trained
from innerloop.experiments import ALGORITHMS, TASKS, Spec, candidates_for
from innerloop.experiments.candidates import iterative
from innerloop.experiments.devices import usable
from innerloop.experiments.experiment import dtype_of
from innerloop.experiments.kinds import kind_of, require_readable
from innerloop.experiments.kinds import samples as sampled
from innerloop.prompt import Prompt
from innerloop.tasks import Task, moved
from innerloop.tasks.checks import require_seed

ASIDE = 2000
"""Prompts for symmetries, responses, depths and probes."""


def identify(
    learner: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="LEARNER")],
    task: str | None = None,
    candidates: tuple[str, ...] = (),
    shifts: bool = False,
    by: Literal["loop", "layer"] | None = None,
    probes: bool = False,
    twin: Path | None = None,
    picture: Path | None = None,
    samples: int = 20_000,
    seed: int = 1,
    device: str = "cpu",
) -> None:
    """Says which algorithm is inside a learner: identical to rounding, nearest, or none of these.

    Families of algorithms are fitted to the learner's answers on one half of the prompts, and
    everything is measured on the other half, with 95% intervals. The share of the error is 1 for
    the same algorithm and near 0 for one that is merely as good.

    For example:
      innerloop identify runs/mine --shifts
      innerloop identify runs/looped --by loop --picture inside.png
      innerloop identify package.module:factory --task linear:d=5,n=20 --candidates ols ridge gd
      innerloop identify runs/mine --candidates gd compiled-gd:loops=3 newton.safetensors
      innerloop identify ridge:penalty=0.3 --task linear:noise_std=0.5

    Args:
        learner: the folder of a run, a compiled model, the name of a record that ships with its
            weights, a learner or an estimator of scikit-learn of your own, package.module:factory,
            or an algorithm such as ridge:penalty=0.3.
        task: whose prompts to ask; by default the task of the run.
        candidates: families, such as ols ridge gd, see `innerloop list candidates`; compiled models
            such as compiled-gd:loops=3 or their files; folders of runs. By default all families
            that the task has what they need for, but for the slow ones and penalised-gd.
        shifts: also on tasks on which candidates differ, and which of them survive.
        by: also after every loop or layer, beside the steps of iterative algorithms.
        probes: also linear probes of the residuals, with control tasks.
        twin: a run of the same model from another seed, as a yardstick.
        picture: also draw it all to this file.
        samples: fresh prompts, half of them to fit.
        seed: of the prompts.
        device: where to ask the learner, such as cpu or cuda.
    """
    usable(device)
    require_seed(seed)
    if picture is not None:
        require_picture("picture", picture)
    subject = _subject(learner, task, device)
    families = candidates_for(subject.task, candidates)
    inside.require_sizes(samples, families)
    _refuse_what_is_not_inside(subject, by, shifts, probes)
    other = None if twin is None else _twin(twin, subject.task)
    generator = torch.Generator(device).manual_seed(seed)
    with console().status("") as status:
        found = inside.identify(
            subject.learner,
            subject.task,
            families,
            samples=samples,
            generator=generator,
            twin=other,
            watch=status.update,
        )
    title = f"{subject.task_spec}, {samples // 2} held-out prompts, {subject.note}"
    print_table(found.decision.as_text(title))
    say("= identical to rounding, ~ nearest or tied with it")
    for name, reason in found.left_out.items():
        say(f"without {name}: {reason}")
    say(f"\n{found.sentence}")
    matches = []
    if kind_of(subject.task) is Prompt:
        prompt = _prompts(subject, ASIDE, seed + 1)
        _aside(subject, found, prompt, seed)
        if shifts:
            _shifts(subject, found, samples, generator)
        if by is not None:
            matches = _depths(subject, by, prompt, seed)
        if probes:
            _probes(subject, prompt, seed)
    if picture is not None:
        write_picture(picture, inside.plot_identification(found, matches, title=learner))
        say(f"picture: {picture}")


def _subject(learner: str, task: str | None, device: str) -> Subject:
    """A run, a record, an algorithm of the catalogue, or what a user's factory makes."""
    name = learner.partition(":")[0]
    if name in ALGORITHMS:
        if task is None:
            raise ValueError(f"the algorithm {learner} goes with --task: say on which prompts")
        spec = Spec.parse("task", task, TASKS)
        chosen = moved(spec.build(TASKS), device)
        made = Spec.parse("algorithm", learner, ALGORITHMS).build(ALGORITHMS, chosen)
        return Subject(made, chosen, spec, learner)
    if ":" in learner and not Path(learner).exists():
        if task is None:
            raise ValueError(f"{learner} goes with --task: say on which prompts to ask it")
        return subject_of(None, task, learner, device)
    return trained(Path(learner), task, device)


def _twin(twin: Path, task: Task) -> Learner:
    """Its model in the precision of the task; on the CPU, where everything is compared."""
    other = opened(twin, "cpu")
    require_readable(f"the twin {twin}", other.task, task)
    return other.model.to(dtype_of(task))


def _refuse_what_is_not_inside(
    subject: Subject, by: inside.By | None, shifts: bool, probes: bool
) -> None:
    """Says so before all the rest is measured."""
    if kind_of(subject.task) is not Prompt:
        if by is not None or shifts or probes:
            raise ValueError(
                "--by, --shifts and --probes are for prompts of examples and queries, and "
                f"{subject.task_spec.name} samples {sampled(subject.task)}"
            )
        return
    one = _prompts(subject, 1, 0).to(dtype=dtype_of(subject.task))
    if by is not None:
        inside.read_out(_on_cpu(subject), one, by)
    if probes:
        inside.read_out(_on_cpu(subject), one, "layer")


def _prompts(subject: Subject, count: int, seed: int) -> Prompt:
    """In double precision, on the CPU."""
    task = moved(subject.task, "cpu", torch.float64)
    return task.sample(count, generator=torch.Generator().manual_seed(seed))


def _aside(subject: Subject, found: inside.Identification, prompt: Prompt, seed: int) -> None:
    """Symmetries, and responses to the query and to labels."""
    learner, dtype = _on_cpu(subject), dtype_of(subject.task)
    generator = torch.Generator().manual_seed(seed)
    say("")
    symmetries = inside.symmetry_table(
        learner, prompt, found.candidates, dtype=dtype, generator=generator
    )
    print_table(symmetries.as_text())
    say("")
    try:
        nearest = [standing.candidate for standing in found.decision.ranked[:NEAREST]]
        table = inside.compare_responses(learner, prompt, nearest, dtype=dtype, generator=generator)
        print_table(table.as_text())
        say(f"\n{table.sentence}")
    except inside.NotDifferentiable as reason:
        say(str(reason))


NEAREST = 5
"""Candidates whose responses are shown."""


def _shifts(
    subject: Subject, found: inside.Identification, samples: int, generator: torch.Generator
) -> None:
    with console().status("") as status:
        told = inside.distinguish(
            subject.learner,
            subject.task,
            found,
            samples=samples,
            generator=generator,
            watch=status.update,
        )
    say("")
    print_table(told.as_text())
    say(f"\n{told.sentence}")


def _depths(subject: Subject, by: inside.By, prompt: Prompt, seed: int) -> list[inside.DepthMatch]:
    learner = _on_cpu(subject)
    with console().status(f"reading out after every {by}"):
        read = inside.read_out(learner, prompt.to(dtype=dtype_of(subject.task)), by)
        matches = [
            inside.match_depths(read, prompt, family, generator=torch.Generator().manual_seed(seed))
            for family in iterative(subject.task)
        ]
    for match in matches:
        say("")
        print_table(match.as_text())
    return matches


def _probes(subject: Subject, prompt: Prompt, seed: int) -> None:
    s, _ = prompt.moments()
    step_size = 1 / torch.linalg.eigvalsh(s)[:, -1].mean().item()
    with console().status("probing"):
        table = inside.probe(
            _on_cpu(subject),
            prompt,
            inside.standard_targets(step_size),
            dtype=dtype_of(subject.task),
            generator=torch.Generator().manual_seed(seed),
        )
    say("")
    print_table(table.as_text())


def _on_cpu(subject: Subject) -> Learner:
    """A copy: a model that is moved is moved for everyone."""
    learner = subject.learner
    return copy.deepcopy(learner).cpu() if isinstance(learner, torch.nn.Module) else learner
