"""`innerloop evaluate`: a trained model beside algorithms, under shifts, and looped longer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from innerloop import analysis
from innerloop.algorithms import Learner, answers_or_reason
from innerloop.cli import evaluate_translator
from innerloop.cli.console import console, print_table, say
from innerloop.cli.pictures import require_picture, write_picture
from innerloop.cli.subject import Subject, is_compiled, opened, subject_of
from innerloop.experiments import ALGORITHMS, MODELS, REFERENCES, Spec
from innerloop.experiments.devices import usable
from innerloop.experiments.experiment import dtype_of
from innerloop.experiments.kinds import require_readable
from innerloop.models import EachPosition, InContext, LinearAttention, Looped, Translator
from innerloop.models.decoder import SequenceModel
from innerloop.tables import TextTable
from innerloop.tasks import NoClosedForm, Translation
from innerloop.tasks.checks import require_at_least, require_seed
from innerloop.theory.wishart import TooLargeError

THE_MODEL = "the model"
PROMPTS, OF_TRANSFORMERS = 100_000, 2_000
"""Fresh ones, by default; a transformer takes a millisecond or more for each, and is asked about
no more at one time."""


def evaluate(
    run: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RUN]")] = None,
    task: str | None = None,
    model: str | None = None,
    against: tuple[str, ...] = (),
    shifts: bool = False,
    loops: int | None = None,
    beside: str | None = None,
    curve: Path | None = None,
    samples: int | None = None,
    translated: int = 200,
    seed: int = 1,
    device: str = "cpu",
) -> None:
    """Compares a trained model with algorithms on fresh prompts.

    Prints every learner's loss, and how far its predictions are from the model's: the algorithm
    that a model has learned is the one at distance zero. Of a translator, on held-out pairs: the
    cross-entropy for a token of the translation, perplexity, BLEU and chrF.

    For example:
      innerloop evaluate runs/mine --against ols ridge:penalty=0.1 gd:steps=3
      innerloop evaluate runs/mine --shifts
      innerloop evaluate runs/mine --curve curve.png
      innerloop evaluate runs/mine --beside compiled-gd:loops=20 --curve loops.png
      innerloop evaluate --model package.module:factory --task linear:d=5,n=20
      innerloop evaluate runs/translator --translated 50
      innerloop evaluate weights.safetensors --model package.module:factory --task linear:d=5

    Args:
        run: the folder of a run, its checkpoint, a compiled model, the name of a record that ships
            with its weights, or with --model a file of weights.
        task: where to compare; by default the task of the run, whose options are kept where a task
            of the same name does not set them; of a translator, the held-out pairs of its corpus.
        model: in place of a run's: a model of your own, package.module:factory, where factory(task)
            gives the learner; or a model's spec such as gd:layers=2.
        against: algorithms, such as ols ridge:penalty=0.1 gd:steps=3; see `innerloop list
            algorithms`. By default those that belong to the task.
        shifts: instead, the loss under distribution shifts of the task.
        loops: instead, the loss of the model looped 1, 2, ... up to this many times.
        beside: instead, another looped model, such as compiled-gd:loops=20, a run or a file, whose
            predictions after every loop are compared with the model's; with --curve, drawn.
        curve: also draw the learning curves, the loss against the number of examples, to this file.
        samples: fresh prompts, by default 100,000, and 2,000 of a transformer; of a translator, at
            most so many pairs, each once.
        translated: sentences that are translated for BLEU and chrF; 0 for no scores.
        seed: of the prompts.
        device: where to evaluate, such as cpu or cuda.
    """
    usable(device)
    subject = subject_of(run, task, model, device)
    if model is not None:  # what its own code raises is said before the measurements
        with torch.no_grad():
            few = subject.task.sample(2, generator=_generator(0, device))
            answers_or_reason(subject.learner, few)
    if samples is None:
        samples = OF_TRANSFORMERS if _is_transformer(subject) else PROMPTS
    analysis.require_samples(samples)
    require_at_least("translated", translated, 0)
    require_seed(seed)
    if curve is not None:
        require_picture("curve", curve)
    if loops is not None:
        _loops(subject, loops, samples, seed, device)
        return
    if beside is not None:
        _beside(subject, beside, samples, seed, device, curve)
        return
    words = against or REFERENCES[subject.task_spec.name]
    rivals = {
        word: Spec.parse("algorithm", word, ALGORITHMS).build(ALGORITHMS, subject.task)
        for word in words
    }
    learners = {THE_MODEL: subject.learner, **rivals}
    if shifts:
        _shifts(subject, learners, samples, seed, device)
        return
    if isinstance(subject.task, Translation):
        if curve is not None:
            raise ValueError("--curve is for prompts of examples; sentences have no learning curve")
        evaluate_translator.compare(subject, subject.task, learners, samples, translated, seed)
        return
    _comparison(subject, learners, samples, seed, device)
    if curve is not None:
        _curves(subject, learners, curve, samples, seed, device)


def _comparison(
    subject: Subject, learners: dict[str, Learner], samples: int, seed: int, device: str
) -> None:
    table = TextTable(
        f"{subject.task_spec}, {samples} prompts, {subject.note}",
        ["learner", "loss ± standard error", "distance to the model"],
    )
    with console().status("") as status:

        def show(name: str, done: int) -> None:
            status.update(f"{name}: {done} of {samples} prompts")

        for name, learner in learners.items():
            loss = analysis.estimate_risk(
                learner,
                subject.task,
                samples=samples,
                generator=_generator(seed, device),
                watch=partial(show, name),
                chunk=_chunk(subject),
            )
            distance = analysis.prediction_distance(
                learner,
                subject.learner,
                subject.task,
                batch=min(samples, _chunk(subject)),
                generator=_generator(seed, device),
            )
            table.add(name, str(loss), f"{distance:.3g}")
    print_table(table)
    _exact(subject)


def _exact(subject: Subject) -> None:
    """The model's exact loss, where it knows it."""
    risk = getattr(subject.learner, "risk", None)
    if risk is None:
        return
    try:
        with torch.no_grad():
            say(f"exact loss of the model: {risk(subject.task).item():.6g}")
    except (NoClosedForm, TooLargeError) as reason:
        say(f"no exact loss of the model: {reason}")


def _shifts(
    subject: Subject, learners: dict[str, Learner], samples: int, seed: int, device: str
) -> None:
    every = analysis.standard_shifts(subject.task)
    with console().status("measuring under shifts") as status:
        table = analysis.shift_table(
            learners,
            every,
            samples=samples,
            seed=seed,
            device=device,
            chunk=_chunk(subject),
            watch=lambda shift: status.update(f"measuring: {shift.name}"),
        )
    print_table(table.as_text())


def _curves(
    subject: Subject,
    learners: dict[str, Learner],
    file: Path,
    samples: int,
    seed: int,
    device: str,
) -> None:
    fewer = min(samples, 20_000)
    curves = {}
    with console().status("") as status:
        for name, learner in learners.items():
            status.update(f"learning curve of {name}")
            curves[name] = analysis.learning_curve(
                learner,
                subject.task,
                samples=fewer,
                generator=_generator(seed, device),
                chunk=_chunk(subject),
            )
    picture = analysis.plot_learning_curves(curves, title=f"{subject.task_spec}")
    write_picture(file, picture)
    say(f"learning curves of {fewer} prompts: {file}")


def _beside(
    subject: Subject, words: str, samples: int, seed: int, device: str, file: Path | None
) -> None:
    """The model and another, loop by loop on the same prompts."""
    if isinstance(subject.task, Translation):
        raise ValueError(
            "--beside compares numbers that models say; a translator says how likely words are, "
            "and the cross-entropies of two are compared by evaluating each"
        )
    models: tuple[Any, Any] = (subject.learner, _other(words, subject, device))
    inner = [getattr(model, "model", model) for model in models]
    for model in inner:
        if not isinstance(model, LinearAttention | Looped):
            raise ValueError(f"--beside goes with two looped models, got {type(model).__name__}")
    counts = [model.loops for model in inner]
    with console().status("looping"):
        distances = analysis.loop_distances(
            *models,
            subject.task,
            loops=(counts[0], counts[1]),
            batch=min(samples, 1000),
            generator=_generator(seed, device),
        )
    table = TextTable(
        f"{subject.task_spec}: nearest loop of {words}",
        ["loops", "nearest", "distance", "at as many loops"],
    )
    for count, row in enumerate(distances, 1):
        same = f"{row[count - 1]:.3g}" if count <= len(row) else ""
        table.add(str(count), str(row.argmin().item() + 1), f"{row.min():.3g}", same)
    print_table(table)
    if file is not None:
        picture = analysis.plot_loop_distances(distances, names=(THE_MODEL, words))
        write_picture(file, picture)
        say(f"distances, loop by loop: {file}")


def _other(words: str, subject: Subject, device: str) -> Any:
    """A compiled model by name, made for the task, or one that was saved."""
    if is_compiled(words):
        spec = Spec.parse("model", words, MODELS)
        made = spec.build(MODELS, subject.task, _generator(0, "cpu"))
        return made.to(device, dtype_of(subject.task)).eval()
    if words.partition(":")[0] in MODELS:
        raise ValueError(
            f"--beside takes a compiled model such as compiled-gd:loops=20, a run or a file, got "
            f"{words}, which has learned nothing yet"
        )
    saved = opened(Path(words), device)
    require_readable(f"--beside {words}", saved.task, subject.task)
    return saved.model.to(dtype=dtype_of(subject.task))


def _is_transformer(subject: Subject) -> bool:
    return isinstance(subject.learner, InContext | EachPosition | SequenceModel)


def _chunk(subject: Subject) -> int:
    """Prompts at one time: of a transformer fewer, whose residuals take the memory."""
    usual = analysis.chunk_for(subject.task)
    return min(usual, OF_TRANSFORMERS) if _is_transformer(subject) else usual


def _loops(subject: Subject, loops: int, samples: int, seed: int, device: str) -> None:
    """The model looped longer: mean, median and 99th percentile, and whether loops contract."""
    learner: Any = subject.learner
    model = learner.model if isinstance(learner, InContext | Translator) else learner
    if not isinstance(model, LinearAttention | Looped):
        raise ValueError(f"--loops goes with models that have loops, got {type(model).__name__}")
    with console().status("looping") as status:
        generator = _generator(seed, device)
        if isinstance(subject.task, Translation):
            table = evaluate_translator.loop_table(
                learner, subject.task, loops, model.loops, samples, seed
            )
        else:
            table = _loop_table(
                subject,
                loops,
                model.loops,
                samples,
                generator,
                watch=lambda done: status.update(f"looping: {done} of {samples} prompts"),
            )
        few = 10_000 if isinstance(model, LinearAttention) else 64
        prompt = subject.task.sample(min(samples, few), generator=generator)
        radius = analysis.loop_spectral_radius(learner, prompt)
    print_table(table)
    say(
        f"one loop expands on {(radius > 1).double().mean().item():.2%} of {len(radius)} prompts "
        f"(median spectral radius {radius.median().item():.3g}): there, small differences grow "
        "with every further loop"
    )


def _loop_table(
    subject: Subject,
    loops: int,
    trained: int,
    samples: int,
    generator: torch.Generator,
    watch: Callable[[int], None],
) -> TextTable:
    table = TextTable(
        f"loss after each loop, {samples} prompts",
        ["loops", "mean ± standard error", "median", "99th percentile"],
    )
    for row in analysis.loop_curve(
        subject.learner,
        subject.task,
        loops=loops,
        samples=samples,
        generator=generator,
        watch=watch,
    ):
        mark = " (trained)" if row.loops == trained else ""
        table.add(f"{row.loops}{mark}", str(row.mean), f"{row.median:.4g}", f"{row.upper:.4g}")
    return table


def _generator(seed: int, device: str) -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)
