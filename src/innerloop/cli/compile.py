"""`innerloop compile`: a transformer whose weights a construction writes, as an ordinary file."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

import torch
import tyro

from innerloop.algorithms import answers
from innerloop.analysis import plot_attention
from innerloop.cli.console import console, say
from innerloop.cli.pictures import require_picture, write_picture
from innerloop.compiled import Program, multiplications, parameter_count, require_error
from innerloop.experiments import MODELS, OPTIMIZERS, TASKS, Experiment, Spec
from innerloop.experiments.compiled_models import PREFIX, CompiledFactory, Construction
from innerloop.prompt import Prompt
from innerloop.runs import require_writable
from innerloop.tasks import Task
from innerloop.training import Checkpoint, History

HOME = {
    "representation": "representation:d={dim},n={examples},dtype={dtype}",
    "autoregression": "autoregression:d={dim},n={examples},scaled=false,dtype={dtype}",
    "chain-of-thought": "chain-of-thought:d={dim},n={examples},dtype={dtype}",
}
"""The task of a construction; of all others, linear regression."""
SIZES = {"dim": 5, "examples": 20, "dtype": "float64"}
"""Of the task, unless they are given."""
FRESH = 100
"""Prompts on which the model is compared with its algorithm."""


def compile(
    construction: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CONSTRUCTION")],
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])],
    dim: int | None = None,
    examples: int | None = None,
    loops: int | None = None,
    dtype: Literal["float64", "float32"] | None = None,
    error: float | None = None,
    task: str | None = None,
    unroll: bool = False,
    draw: Path | None = None,
) -> None:
    """Writes a transformer that runs an algorithm, with no training.

    The file is an ordinary one: evaluate it, or train on from it under the same name, such as
    `innerloop train compiled-gd:loops=3,c=0.3,error=10 --task linear:d=2,n=6 --lr 1e-4`: coarse
    heads (a large c), since fine ones have gradients of 1/c in every loop and break.

    For example:
      innerloop compile newton --dim 4 --examples 16 --loops 20 -o newton.safetensors
      innerloop evaluate newton.safetensors --task linear --against newton:steps=20
      innerloop compile gd:step_size=0.3,form=refined --dim 4 --loops 100 -o gd.safetensors
      innerloop compile chain-of-thought --dim 3 --examples 6 -o chain.safetensors

    Args:
        construction: gd, representation, autoregression, chain-of-thought, newton, causal-gd,
            causal-newton, linear-gd or linear-gd++, with options such as gd:penalty=0.1; see
            `innerloop list models` for those of compiled-gd and so on.
        output: the file to write.
        dim: d, the coordinates of x; 5 by default.
        examples: n, of the longest prompt; 20 by default.
        loops: T, the steps of the algorithm.
        dtype: the precision of the weights; float64 by default.
        error: the largest error that is accepted, relative to the largest label. What is expected
            to be above it, or is measured to be on fresh prompts, is refused.
        task: in place of --dim, --examples and --dtype, the task that it is made for.
        unroll: write a standard transformer, with layers of its own for every loop.
        draw: also draw what the heads attend to on a fresh prompt, up to the first loop and after
            the last, to this file.
    """
    require_writable("output", output)
    if draw is not None:
        require_picture("draw", draw)
    name, _, options = construction.partition(":")
    spec = _spec(name, options, {"loops": loops, "error": error, "unroll": unroll or None})
    task_spec = _task(name, task, {"dim": dim, "examples": examples, "dtype": dtype})
    made_for = task_spec.build(TASKS)
    factory = MODELS[spec.name]
    assert isinstance(factory, CompiledFactory)
    found = factory.construction(made_for, **spec.options)
    if draw is not None and not isinstance(found.made, Program):
        raise ValueError(f"--draw shows what softmax heads attend to, and {name} has none")
    model = found.model(made_for, unroll=unroll)
    console().print(str(found.made), soft_wrap=True, highlight=False, markup=False)
    _report_error(found, model, made_for, error)
    if isinstance(found.made, Program):
        _report_size(found.made, unroll)
        if draw is not None:
            _draw(found.made, made_for, draw)
    experiment = Experiment(spec, task_spec)
    checkpoint = Checkpoint(output, config=experiment.chosen)
    generator = torch.Generator().manual_seed(experiment.seed)  # of a training that goes on
    checkpoint.save(0, model, experiment.optimizer.build(OPTIMIZERS, model), generator, History())
    say(f"{parameter_count(model)} parameters: {output}")
    against = f" --against {found.words}" if found.words else ""
    say(f"next: innerloop evaluate {quote(str(output))}{against}")


def _spec(name: str, options: str, beside: dict[str, Any]) -> Spec:
    """The model of the catalogue, with the options that were given beside it."""
    known = [key.removeprefix(PREFIX) for key in MODELS if key.startswith(PREFIX)]
    if name not in known:
        raise ValueError(f"no construction is called {name!r}; known: {', '.join(known)}")
    spec = Spec.parse("model", f"{PREFIX}{name}:{options}" if options else PREFIX + name, MODELS)
    given = {key: value for key, value in beside.items() if value is not None}
    return spec.with_options(given, MODELS)


def _task(name: str, task: str | None, sizes: dict[str, Any]) -> Spec:
    """The task that is given, or that of the construction in these sizes."""
    given = {key: value for key, value in sizes.items() if value is not None}
    if task is None:
        words = HOME.get(name, "linear:d={dim},n={examples},dtype={dtype}")
        task = words.format(**(SIZES | given))
    elif given:
        options = " and ".join(f"--{key}" for key in given)
        raise ValueError(f"--task {task} says what {options} would say; give one of them")
    return Spec.parse("task", task, TASKS)


def _report_error(
    found: Construction, model: torch.nn.Module, task: Task, wanted: float | None
) -> None:
    """How far the model is from its algorithm; refused if that is above what is wanted."""
    fresh = task.sample(FRESH, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        difference = answers(model, fresh) - answers(found.explicit, fresh)
    measured = (difference.abs().max() / fresh.targets.abs().max()).item()
    where = f"measured {measured:.1e} on {FRESH} prompts"
    if isinstance(found.made, Program):
        program = found.made
        say(
            f"error after {program.loops} loops, relative to the largest label: expected at most "
            f"about {program.expected_error:.1e}, {where}"
        )
        require_error(measured, fresh.targets.dtype, wanted, program.loops, measured=True)
    else:
        say(f"error after {found.made.loops} loops, relative to the largest label: {where}")


def _report_size(program: Program, unroll: bool) -> None:
    """What a standard transformer costs more: a copy of the looped layers for every loop."""
    looped = program.model()
    more = (program.loops - 1) * parameter_count(looped.inside)
    say(
        f"as a standard transformer it has {1 + more / parameter_count(looped):.3g} times the "
        f"parameters, and {multiplications(looped, program.length) / 1e6:.3g} million "
        "multiplications, as many" + ("; this is that transformer" if unroll else "")
    )


def _draw(program: Program, task: Task, file: Path) -> None:
    """The attention maps of every layer that has heads; of the loop, the first time it runs."""
    sample = task.sample(1, generator=torch.Generator().manual_seed(1))
    sequence = sample.interleave().last() if isinstance(sample, Prompt) else sample
    trace = program.model(sequence.tokens.dtype).trace(sequence)
    loops = (program.loops - 1) * len(program.inside)
    parts = [*program.before, *program.inside, *program.after]
    skipped = len(program.before) + len(program.inside)
    places = [i if i < skipped else i + loops for i in range(len(parts))]
    shown = [(place, layer) for place, layer in zip(places, parts, strict=True) if layer.heads]
    length = sequence.tokens.shape[1]
    names = [str(t + 1) for t in range(length)]
    if isinstance(sample, Prompt):
        names = [f"{'y' if t % 2 else 'x'}{t // 2 + 1}" for t in range(length - 1)] + ["query"]
    picture = plot_attention(
        trace,
        [place for place, _ in shown],
        titles=[[head.does for head in layer.heads] for _, layer in shown],
        tokens=names,
    )
    write_picture(file, picture)
    say(f"attention maps: {file}")
