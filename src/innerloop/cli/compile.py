"""`innerloop compile`: a transformer whose weights a construction writes, as an ordinary file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro

from innerloop.algorithms import answers
from innerloop.analysis import plot_attention
from innerloop.cli.console import console, say
from innerloop.cli.pictures import require_picture, write_picture
from innerloop.compiled import Program, multiplications, parameter_count, unrolled
from innerloop.experiments import MODELS, OPTIMIZERS, TASKS, Experiment, Spec
from innerloop.experiments.compiled_models import PREFIX, CompiledFactory, Construction
from innerloop.models import LinearAttention
from innerloop.prompt import Prompt
from innerloop.runs import require_writable
from innerloop.tasks import Task
from innerloop.training import Checkpoint, History

HOME = {
    "representation": "representation:d={d},n={n},dtype={dtype}",
    "autoregression": "autoregression:d={d},n={n},scaled=false,dtype={dtype}",
    "chain-of-thought": "chain-of-thought:d={d},n={n},dtype={dtype}",
}
"""The task of a construction; of all others, linear regression."""
FRESH = 100
"""Prompts on which the model is compared with its algorithm."""


def compile(
    construction: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CONSTRUCTION")],
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])],
    dim: int = 5,
    examples: int = 20,
    loops: int | None = None,
    dtype: Literal["float64", "float32"] = "float64",
    error: float | None = None,
    task: str | None = None,
    unroll: bool = False,
    draw: Path | None = None,
) -> None:
    """Writes a transformer that runs an algorithm, with no training.

    The file is an ordinary one: evaluate it, or train on from it under the same name, such as
    `innerloop train compiled-gd:loops=3,c=0.3,error=10 --task linear:d=2,n=6 --lr 1e-4`: coarse
    heads (a large c), since fine ones have gradients of 1/c in every loop and break.

    Examples:
      innerloop compile newton --dim 4 --examples 16 --loops 20 -o newton.safetensors
      innerloop evaluate newton.safetensors --task linear --against newton:steps=20
      innerloop compile gd:step_size=0.3,form=refined --dim 4 --loops 100 -o gd.safetensors
      innerloop compile chain-of-thought --dim 3 --examples 6 -o chain.safetensors

    Args:
        construction: gd, representation, autoregression, chain-of-thought, newton, causal-gd,
            causal-newton, linear-gd or linear-gd++, with options such as gd:penalty=0.1; see
            `innerloop list models` for those of compiled-gd and so on.
        output: the file to write.
        dim: d, the coordinates of x.
        examples: n, of the longest prompt.
        loops: T, the steps of the algorithm.
        dtype: the precision of the weights.
        error: the largest error that is accepted, relative to the labels; what cannot be met is
            refused.
        task: in place of --dim, --examples and --dtype, the task that it is made for.
        unroll: write a standard transformer, with layers of its own for every loop.
        draw: also draw what the heads attend to on a fresh prompt, up to the first loop and after
            the last, to this file.
    """
    require_writable("output", output)
    if draw is not None:
        require_picture("draw", draw)
    name, _, options = construction.partition(":")
    words = HOME.get(name, "linear:d={d},n={n},dtype={dtype}")
    task_spec = Spec.parse("task", task or words.format(d=dim, n=examples, dtype=dtype), TASKS)
    asked = {"loops": loops, "error": error, "unroll": unroll or None}
    spec = _spec(name, options).with_options(
        {key: value for key, value in asked.items() if value is not None}, MODELS
    )
    experiment = Experiment(spec, task_spec)
    model, made_for, generator = experiment.build()
    checkpoint = Checkpoint(output, config=experiment.chosen)
    optimizer = experiment.optimizer.build(OPTIMIZERS, model)
    factory = MODELS[spec.name]
    if isinstance(factory, CompiledFactory):
        made = factory.construction(made_for, **spec.options)
        _describe(made, model, made_for, unroll)
        if draw is not None:
            _draw(made.program, made_for, draw)
    else:
        assert isinstance(model, LinearAttention)
        say(f"{spec}: one layer of linear attention, looped {model.loops} times; exact")
    checkpoint.save(0, model, optimizer, generator, History())
    say(f"{parameter_count(model)} parameters: {output}")


def _spec(name: str, options: str) -> Spec:
    known = [key.removeprefix(PREFIX) for key in MODELS if key.startswith(PREFIX)]
    if name not in known:
        raise ValueError(f"no construction is called {name!r}; known: {', '.join(known)}")
    return Spec.parse("model", f"{PREFIX}{name}:{options}" if options else PREFIX + name, MODELS)


def _describe(made: Construction, model: torch.nn.Module, task: Task, unroll: bool) -> None:
    """The rows, heads and counts of a program, and how far it is from its algorithm."""
    console().print(str(made.program), soft_wrap=True, highlight=False, markup=False)
    prompts = task.sample(FRESH, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        distance = (answers(model, prompts) - answers(made.explicit, prompts)).abs().max().item()
    say(
        f"error after {made.program.loops} loops: expected about {made.program.expected_error:.1e} "
        f"of the labels' size, measured {distance:.1e} on {FRESH} prompts"
    )
    looped = made.program.model()
    flat, length = unrolled(looped), made.program.length
    say(
        f"as a standard transformer it has {parameter_count(flat) / parameter_count(looped):.3g} "
        f"times the parameters, and {multiplications(flat, length) / 1e6:.3g} million "
        f"multiplications, as many" + ("; this is that transformer" if unroll else "")
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
